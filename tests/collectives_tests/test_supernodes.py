"""Supernodes: which host stands in which one, and what crosses between them as in swCaffe's figure 7."""

import pytest

from collectives.errors import AlgorithmError, ArgumentError
from collectives.group import Group
from collectives.schedules.algorithms import make_schedule, order_for
from collectives.supernodes import as_text, crossing, describe_crossing, finder

HOSTS = ["n0", "n1.site.org", "n2", "n3"]


@pytest.mark.parametrize(
    "told", ["n0,n1;n2,n3", "n0 , n1 ; n2, n3, unused", [["n0", "n1.site.org"], ["n2", "n3"]]], ids=str
)
def test_hosts_are_found_by_name_with_and_without_their_domain(told):
    assert Group.of(HOSTS, [finder(told)(host) for host in HOSTS]).supernodes == (0, 0, 1, 1)


def test_parts_in_parentheses_name_a_supernode():
    find = finder(r"rack(\d+)-pod(\w)-.*")
    assert find("rack12-podA-7") == find("rack12-podA-8.site") == "12.A"
    assert find("rack1-pod2-1") != find("rack12-podA-7")


def test_slurm_tells_switches_above_a_node():
    def of(address, pattern):
        return finder("slurm", {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern})("any")

    tree = "switch.switch.node"
    assert of("top.s4.tux1", tree) == of("top.s4.tux2.site.org", tree) == "top.s4" != of("top.s5.tux3", tree)
    for address, pattern, said in (
        ("tux1", "node", "SLURM gives nodes but no switches: SLURM_TOPOLOGY_ADDR is 'tux1'"),
        ("s4.tux1", tree, "SLURM_TOPOLOGY_ADDR 's4.tux1' does not match its pattern 'switch.switch.node'"),
        ("", "", "are not set; start with srun"),
    ):
        with pytest.raises(ArgumentError, match=said):
            of(address, pattern)


@pytest.mark.parametrize(
    ("told", "host", "said"),
    [
        ("n0,n1;n1,n2", "n0", "host n1 is in two of them, number 0 and 1"),
        ("n0,n1;n2", "n9", "host n9 is in none of 'n0,n1;n2'"),
        ("n[0-3];n4", "n0", r"'n\[0-3\]' is not a host name; expected hosts as in"),
        ("n0;;n1", "n0", "'' is not a host name"),
        ("rack(.*", "rack1", r"the pattern 'rack\(.\*' is invalid: missing \)"),
        ("rack(?:1|2)", "rack1", "has no part in parentheses that names a supernode"),
        (r"rack(\d)", "host7", "host host7 does not match the pattern"),
    ],
)
def test_what_makes_no_sense_is_one_line(told, host, said):
    with pytest.raises(ArgumentError, match=f"^supernodes: .*{said}") as error:
        finder(told)(host)
    assert "\n" not in str(error.value)


def test_a_node_in_two_supernodes_is_refused():
    with pytest.raises(ArgumentError, match="ranks 1 and 2 share a node, but are in two supernodes: 'a' and 'b'"):
        Group.of("xyyz").with_supernodes("aabb")
    assert Group.of("xyyz").with_supernodes("abba").supernodes == (0, 1, 1, 0)


def test_nodes_make_a_group_of_their_own():
    assert Group.of("xxyyzz", "aabbaa").of_nodes() == Group.of("xyz", "aba")


def test_halving_crosses_where_least_is_sent():
    """Figure 7: 8 nodes in 2 supernodes; each sends half of all across once each way, or, renumbered, an eighth."""
    group, n = Group.uniform(8, nodes_per_supernode=4), 800
    for order, each in ((range(8), n // 2), (order_for("halving", group), n // 8)):
        assert crossing(make_schedule("allreduce", "halving", 8, n, order=list(order)), group) == 8 * 2 * each
    said = describe_crossing("allreduce", "halving", n, group)
    assert said == f"2 supernodes; {2 * n} bytes cross them, without renumbering {8 * n}"


def test_a_chain_leaves_each_supernode_once():
    group = Group.of("abcdef", "xyxyxy")
    assert describe_crossing("reduce", "chain", 10, group).endswith("; 10 bytes cross them, without renumbering 50")
    with pytest.raises(AlgorithmError, match="unknown algorithm 'magic'"):
        describe_crossing("reduce", "magic", 10, group)


def test_too_many_messages_are_not_counted():
    group = Group.uniform(3000, nodes_per_supernode=100)
    assert describe_crossing("allreduce", "ring", 4000, group).startswith("30 supernodes; too many messages to count")


def test_lists_are_written_as_a_flag_has_them():
    assert as_text([["a", "b"], ["c"]]) == as_text("a,b;c") == "a,b;c"
