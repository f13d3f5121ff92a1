"""Buckets are slices of the packed arrays, in the layers' order, that together are all that is learned."""

from math import inf

import nets
import pytest

import scaffe
from scaffe.parallel import buckets as module
from scaffe.parallel.buckets import make_buckets
from scaffe.setting import parse_bytes

SIZES = [0, 1, 100, 3000, 4000, 10_000, inf]


@pytest.fixture
def small_pieces(monkeypatch):
    """Let layers of few bytes be cut."""
    monkeypatch.setattr(module, "SMALLEST", 64)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("buckets")
    nets.write_images(folder / "db", 12)
    net = scaffe.Net(nets.solver_with(nets.tower(folder / "db")).net_param, scaffe.TRAIN)
    yield net
    net.close()


@pytest.mark.parametrize("nbytes", SIZES)
def test_buckets_are_all_that_is_learned(net, nbytes):
    buckets = make_buckets(net, nbytes)
    assert [i for bucket in buckets for i in bucket.parameters] == list(range(len(net.packed.parameters)))
    assert buckets[0].part.start == 0
    assert all(a.part.stop <= b.part.start < a.part.stop + 16 for a, b in zip(buckets, buckets[1:], strict=False))


@pytest.mark.parametrize("nbytes", SIZES)
def test_only_a_layer_alone_is_larger_than_asked(net, nbytes):
    for bucket in make_buckets(net, nbytes, cut=False):
        owners = {net.packed.parameters[i].layer for i in bucket.parameters}
        assert len(owners) == 1 or 4 * (bucket.part.stop - bucket.part.start) <= nbytes


@pytest.mark.parametrize(("nbytes", "labels"), [(48_000, ["ip1", "ip2 to ip5"]), (96_000, ["ip1 to ip5"])])
def test_the_first_bucket_is_smaller(net, nbytes, labels):
    assert [bucket.label(net) for bucket in make_buckets(net, nbytes)] == labels


@pytest.mark.parametrize("nbytes", SIZES[1:-1])
def test_larger_layers_are_cut(net, nbytes, small_pieces):
    pieces, whole = make_buckets(net, nbytes), make_buckets(net, nbytes, cut=False)
    assert all(4 * (piece.part.stop - piece.part.start) <= max(64, nbytes) for piece in pieces)
    assert len(pieces) > len(whole) or nbytes == 10_000
    for bucket in whole:
        cut = [piece for piece in pieces if piece.layers == bucket.layers]
        assert [p.part.start for p in cut] == [bucket.part.start, *(p.part.stop for p in cut[:-1])]
        assert cut[-1].part.stop == bucket.part.stop
        assert {i for piece in cut for i in piece.parameters} == {*bucket.parameters}
        assert all(piece.part.start % 16 == 0 for piece in cut)


def test_pieces_have_names(net, small_pieces):
    labels = [bucket.label(net) for bucket in make_buckets(net, 3000)]
    assert len({*labels}) == len(labels)
    assert any(label.startswith("ip1 1/") for label in labels)


def test_no_layer_is_cut_into_less_than_is_worth_a_message(net):
    assert make_buckets(net, 1) == make_buckets(net, 0)


def test_no_bytes_give_each_layer_its_own_and_infinity_one_to_all(net):
    owners = [parameter.layer for parameter in net.packed.parameters]
    assert len(make_buckets(net, 0)) == len(set(owners))
    assert len(make_buckets(net, inf)) == 1


def test_shared_weights_belong_to_all_layers_that_use_them(net):
    names = [[net.layers[i].name for i in bucket.layers] for bucket in make_buckets(net, 0)]
    assert names == [["ip1"], ["ip2", "ip4"], ["ip3"], ["ip4"], ["ip5"]]
    assert make_buckets(net, inf)[0].label(net) == "ip1 to ip5"


def test_bytes_are_written_with_units():
    assert [parse_bytes(text) for text in ("0", "7", "64K", "4m", "1G", "inf")] == [0, 7, 65536, 4 << 20, 1 << 30, inf]
