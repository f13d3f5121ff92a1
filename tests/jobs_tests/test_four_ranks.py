"""What jobs/test.sh shows on 2 and 3 ranks holds on 4: a binomial tree's last level is full, a group has a leader
that is not the root."""

import re
import sys

import pytest

CHOSEN = {
    "mpi_tests/test_ranks_equal_one.py": "plain or dropout",
    "mpi_tests/test_collectives.py": "levels or leaders_of",
    "mpi_tests/test_supernodes_over_ranks.py": "crosses or training",
}


@pytest.mark.parametrize("file", CHOSEN)
def test_four_ranks(mpirun, file):
    command = [sys.executable, "-m", "mpi4py", "-m", "pytest", "--with-mpi", "-m", "mpi", "-p", "no:cacheprovider"]
    result = mpirun(4, *command, f"tests/{file}", "-k", CHOSEN[file], timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"= [1-9]\d* passed, \d+ deselected", result.stdout)
