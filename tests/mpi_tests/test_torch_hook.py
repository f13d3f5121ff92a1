"""The communication hook: what rounding loses in one iteration is added in the next, and all ranks get the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

import collectives.torch  # noqa: E402
from collectives.errors import ArgumentError  # noqa: E402
from collectives.progress import PROGRESS  # noqa: E402

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks, pytest.mark.filterwarnings("ignore::FutureWarning")]

ITERATIONS = 32
ROUNDING = {"bf16": 2**-8, "float16": 2**-11, "int8": 1 / 127}  # of the largest number


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("scaffe")
    yield
    dist.destroy_process_group()
    PROGRESS.end_thread()  # which has no stream of a later test's device


def totals(codec: str, feedback: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of ITERATIONS gradients, the same in each, and what it is without rounding."""
    ranks = dist.get_world_size()
    inputs = [torch.randn(1, 3000, generator=torch.Generator().manual_seed(by)) for by in range(ranks)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3000, 1, bias=False))
    model.register_comm_hook(None, collectives.torch.hook(codec, error_feedback=feedback))
    total = torch.zeros(1, 3000)
    for _ in range(ITERATIONS):
        model.zero_grad()
        model(inputs[dist.get_rank()]).sum().backward()
        total += model.module.weight.grad
    first = total.clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, total)
    return total, ITERATIONS * torch.stack(inputs).mean(0)


@pytest.mark.parametrize("codec", ROUNDING)
def test_feedback_keeps_the_error_of_a_sum_as_small_as_one_roundings(codec: str) -> None:
    total, exact = totals(codec, feedback=False)
    largest = exact.abs().max() / ITERATIONS
    lost = (total - exact).abs()
    assert 0 < lost.max() < 2 * ITERATIONS * 4 * ROUNDING[codec] * largest
    fed, _ = totals(codec, feedback=True)
    assert (fed - exact).abs().mean() < 0.7 * lost.mean()


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ArgumentError, match="unknown codec 'bf8'; known are bf16, float16, int8"):
        collectives.torch.hook("bf8")
