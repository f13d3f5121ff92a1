"""What an iteration launches on a GPU, in nets with known numbers of layers."""

import launch_counts
import pytest


@pytest.mark.parametrize(("numbers", "most"), [("float32", 527), ("bf16", 636)])
def test_an_iteration_of_resnet_launches_what_its_layers_need(numbers, most):
    launches = launch_counts.counted("resnet50", numbers)
    form = {"float32": "first", "bf16": "last_bf16"}[numbers]
    for kernel in (f"norm_chunks_{form}", f"normalise_{form}", f"norm_back_chunks_{form}", f"normalise_back_{form}"):
        assert launches[kernel] == 53, kernel  # BatchNorms; Scale, ReLU and the sums of shortcuts add none
    ending = "_bf16" if numbers == "bf16" else ""
    assert launches[f"sum_back_unrectified{ending}"] == 16  # blocks
    assert not any(name.startswith(("relu", "eltwise", f"scale_{form}", "scale_back")) for name in launches)
    assert launches["update_SGD"] == 1
    assert sum(launches.values()) <= most


@pytest.mark.parametrize(
    ("name", "float32", "bf16"), [("alexnet", 83, 96), ("googlenet", 593, 659), ("cifar10_quick", 47, 54)]
)
def test_an_iteration_launches_no_more_than_it_did(name, float32, bf16):
    assert sum(launch_counts.counted(name).values()) <= float32
    assert sum(launch_counts.counted(name, "bf16").values()) <= bf16
