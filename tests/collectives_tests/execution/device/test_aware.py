"""Which MPI library takes device pointers: it is asked in its own words, and the environment has the last."""

from types import SimpleNamespace

import pytest

from collectives.errors import ArgumentError
from collectives.execution.device.aware import support, takes_device_pointers


def mpich(code, answer):
    def query(kind, found):
        assert kind.value == 0
        found._obj.value = answer
        return code

    return SimpleNamespace(MPIX_GPU_query_support=query)


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (SimpleNamespace(MPIX_Query_cuda_support=lambda: 1), True),
        (SimpleNamespace(MPIX_Query_cuda_support=lambda: 0), False),
        (mpich(0, 1), True),
        (mpich(0, 0), False),
        (mpich(1, 1), False),  # the query itself failed
        (SimpleNamespace(), False),
    ],
)
def test_the_library_is_asked(library, expected):
    assert takes_device_pointers({}, library) is expected


@pytest.mark.parametrize(("told", "expected"), [("1", True), ("0", False)])
def test_the_environment_overrides_what_it_answers(told, expected):
    other = SimpleNamespace(MPIX_Query_cuda_support=lambda: not expected)
    assert takes_device_pointers({"COLLECTIVES_CUDA_AWARE": told}, other) is expected


def test_who_says_so_is_told():
    told = support({"COLLECTIVES_CUDA_AWARE": "1"}, SimpleNamespace())
    assert told == (True, "COLLECTIVES_CUDA_AWARE=1")
    assert support({}, mpich(0, 1)) == (True, "MPIX_GPU_query_support of the library")
    neither = "neither MPIX_Query_cuda_support nor MPIX_GPU_query_support is in the library"
    assert support({}, SimpleNamespace()) == (False, neither)


def test_another_value_is_an_error():
    with pytest.raises(ArgumentError, match="COLLECTIVES_CUDA_AWARE is 0 or 1, got 'yes'"):
        takes_device_pointers({"COLLECTIVES_CUDA_AWARE": "yes"})
