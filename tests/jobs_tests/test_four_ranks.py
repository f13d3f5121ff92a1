"""What jobs/test.sh shows on 2 and 3 ranks holds on 4: a binomial tree's last level is full, a group has a leader
that is not the root."""

import re
import sys

CHOSEN = {
    "test_ranks_equal_one": "dropout",
    "test_collectives": "levels or leaders_of",
    "test_supernodes_over_ranks": "crosses or training",
}


def test_four_ranks(mpirun):
    command = [sys.executable, "-m", "mpi4py", "-m", "pytest", "--with-mpi", "-m", "mpi", "-p", "no:cacheprovider"]
    files = [f"tests/mpi_tests/{file}.py" for file in CHOSEN]
    names = " or ".join(f"{file}.py and ({names})" for file, names in CHOSEN.items())
    result = mpirun(4, *command, "-v", *files, "-k", names, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.findall(r"^\S*/(\w+)\.py::\S.* PASSED", result.stdout, re.MULTILINE)
    assert {*passed} == {*CHOSEN}
