"""What jobs/test.sh shows on 2 and 3 ranks holds on 4, where the last level of a binomial tree is full."""

import re
import sys


def test_four_ranks_equal_one(mpirun):
    pytest = [sys.executable, "-m", "mpi4py", "-m", "pytest", "--with-mpi", "-m", "mpi", "-p", "no:cacheprovider"]
    tests = "tests/mpi_tests/test_ranks_equal_one.py"
    result = mpirun(4, *pytest, tests, "-k", "plain or dropout", timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"= [1-9]\d* passed, \d+ deselected", result.stdout)
