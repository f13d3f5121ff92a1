"""A run's settings: by flags, by a cluster's file, and what is wrong with them."""

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.setting import with_flags
from scaffe.training.settings import read_settings


@pytest.fixture
def written(tmp_path):
    """Write a run's configuration and return its path."""

    def write(text):
        path = tmp_path / "cluster.toml"
        path.write_text(text)
        return path

    return write


def test_a_file_spells_keys_as_the_flags_do(written):
    run = read_settings(written('workflow = "SC-OB"\nreduce = "cb"\nchain-size = 8\nbucket-bytes = 65536\n')).run
    assert run == Run(workflow="SC-OB", reduce="cb", chain_size=8, bucket_bytes="65536")
    assert run.how == {"algorithm": "cb", "chain_size": 8, "chunk_bytes": 0}


def test_supernodes_are_lists_or_what_a_flag_has(written):
    lists, text = 'supernodes = [["n0", "n1"], ["n2"]]', "supernodes = 'n0,n1;n2'"
    assert read_settings(written(lists)).run == read_settings(written(text)).run == Run(supernodes="n0,n1;n2")


def test_parameters_go_down_the_tree_that_s_caffes_own_reduce_goes_up():
    run = Run(reduce="cb:levels", chain_size=8)
    assert (run.how["algorithm"], run.how_down) == ("cb:levels", {**run.how, "algorithm": "cb"})


def test_flags_go_over_the_file(written):
    run = read_settings(written('workflow = "SC-OB"\nreduce = "chain"\n')).run
    given = {"workflow": "SC-OBR", "reduce": None, "sync": None}
    assert with_flags(run, given) == Run(workflow="SC-OBR", reduce="chain")


@pytest.mark.parametrize(
    "name", ["auto", "mpi", "slices", "nccl", "chain", "cb-8:levels", "leaders-mpi", "leaders-chain"]
)
def test_every_algorithm_of_a_reduce_is_known(name):
    Run(reduce=name).check_reduce()


def test_an_algorithm_counts_for_what_the_ranks_do_and_a_chain_size_for_its_name():
    Run(reduce="ring", sync="allreduce").check_reduce()
    Run(reduce="cb", chain_size=4).check_reduce()
    for run in (Run(reduce="ring"), Run(reduce="cb"), Run(reduce="cb-8:levels", sync="allreduce")):
        with pytest.raises(ScaffeError, match=f"--reduce: .*'{run.reduce}'"):
            run.check_reduce()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('workflow = "SC-X"', "unknown workflow 'SC-X'; known: auto SC-B"),
        ('sync = "gossip"', "unknown sync 'gossip'; known: reduce-bcast allreduce"),
        ('drive = "spin"', "unknown drive 'spin'; known: auto hook helper"),
        ("chain-size = -1", "chain_size must be 0 or more, got -1"),
        ("chunk-bytes = -4", "chunk_bytes must be 0 or more, got -4"),
        ('bucket-bytes = "some"', "bucket_bytes must be bytes such as 4M, inf or auto; got 'some'"),
        ("bucket-bytes = -1", "bucket_bytes must be bytes such as 4M, inf or auto; got '-1'"),
        ("workflow = 3", "workflow must be a string, got 3"),
        ("chain-size = true", "chain-size must be a whole number, got True"),
        ('work-flow = "SC-B"', "unknown key 'work-flow' in [run]; did you mean 'workflow'?"),
        ('supernodes = "n0;n1;"', "supernodes: '' is not a host name"),
        ('supernodes = [["n0"], ["n1", "n0"]]', "supernodes: host n0 is in two of them, number 0 and 1"),
        ('supernodes = "rack(.*"', "supernodes: the pattern 'rack(.*' is invalid: missing ), unterminated subpattern"),
        ("supernodes = [3]", "supernodes must be a string, got [3]"),
        ("sync = [\n]\nsync = 1 2", "line 3"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_wrong_file_is_told_with_its_path(tmp_path, text, message):
    path = tmp_path / "cluster.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ScaffeError) as caught:
        read_settings(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ScaffeError, match="none.toml: no such file or directory"):
        read_settings(tmp_path / "none.toml")
