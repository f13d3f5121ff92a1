"""Ranks that train on stand-ins for GPUs, arrays and collectives, reach what ranks reach on the host."""

from dataclasses import replace

import numpy as np
import pytest
from host_kernels import RawModule
from mpi4py import MPI
from nets import shared_folder, solver_with, tower
from recorded import Tape
from strict_arrays import StrictDevice, StrictGpu

import scaffe
from readers import Reading
from scaffe.compute import Compute
from scaffe.monitor.watching import Watching
from scaffe.parallel.run import Run
from scaffe.parallel.world import World

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
OWNERS = Run("SC-OBR", reduce="auto", bucket_bytes="16K", drive="hook")
WAYS = {
    "one message": Run("SC-B", reduce="chain"),
    "overlapped": Run("SC-OBR", reduce="chain", bucket_bytes="0", drive="hook"),
    "by a helper": Run("SC-OBR", reduce="chain", bucket_bytes="0", drive="helper"),
    "spread": Run("SC-OBR", owners="spread", reduce="chain", bucket_bytes="16K", drive="hook"),
    "slices": replace(OWNERS, owners="slices"),
    "slices by a helper": replace(OWNERS, owners="slices", drive="helper"),
    "slices in one message": Run("SC-B", owners="slices", reduce="ring"),
    "every rank updates": Run("SC-OBR", "allreduce", "chain", bucket_bytes="0", drive="hook"),
    "by NCCL": Run("SC-OBR", reduce="nccl", bucket_bytes="0", drive="hook"),
    "by NCCL and a helper": Run("SC-OBR", reduce="nccl", bucket_bytes="0", drive="helper"),
    "as tuned": Run("auto"),
    "rounded": Run("SC-OBR", reduce="chain", drive="hook", gradient_numbers="bf16"),
    "rounded slices, with feedback": replace(OWNERS, owners="slices", gradient_numbers="int8"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shared_folder(COMM, tmp_path_factory, "devices")


def trained(folder, run, gpu, engine="reference", iterations=3, fields=None, **how):
    """Return the parameters after a few iterations; `fields` are the solver's."""
    world = World(COMM.Dup())
    world.take_gpu(gpu)
    param = solver_with(tower(folder / "db"), snapshot_prefix=str(folder / "snap"), **(fields or {}))
    solver = scaffe.Solver(
        param, world=world, run=run, compute=Compute(engine=engine), watching=Watching(stall_seconds=0), **how
    )
    solver.step(iterations)
    solver.parts.propagate.sync()
    values = solver.net.packed.host_data().copy()
    solver.close()
    return values


@pytest.mark.parametrize("way", WAYS)
def test_devices_and_hosts_reach_the_same_parameters(folder, way):
    run = WAYS[way]
    on_host = trained(folder, replace(run, reduce="ring" if run.owners == "slices" else "chain"), None)
    device = StrictDevice(seed=COMM.rank, sharing=False)
    on_device = trained(folder, run, StrictGpu(device))
    assert device.done > 0 or COMM.size == 1  # messages went through the device's streams
    np.testing.assert_allclose(on_device, on_host, rtol=0, atol=1e-6)
    assert np.abs(on_device).max() > 0.01


RULES = ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "LARS"]
OWNED = [*((rule, "slices", -1) for rule in RULES), *((rule, "slices", 0.05) for rule in ("SGD", "LARS"))]


@pytest.mark.two_ranks
@pytest.mark.parametrize(("rule", "owners", "limit"), [*OWNED, ("Adam", "spread", -1), ("LARS", "spread", 0.05)])
def test_each_rule_updates_by_its_kernel_what_its_rank_owns(folder, monkeypatch, rule, owners, limit):
    monkeypatch.setattr(RawModule, "folder", folder)  # each kernel compiled once
    fields = {"type": rule, "clip_gradients": limit, "iter_size": 2}
    fields |= {"momentum": 0.0} if rule in ("AdaGrad", "RMSProp") else {}

    def run(owners):
        gpu = StrictGpu(StrictDevice(seed=COMM.rank, sharing=False))
        return trained(folder, replace(OWNERS, owners=owners), gpu, "auto", 2, fields)

    ours, expected = run(owners), run("root")
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(("owners", "numbers"), [("spread", "float32"), ("slices", "float32"), ("slices", "int8")])
def test_a_state_of_devices_goes_on_on_hosts(folder, owners, numbers):
    """With the history and, of int8, with what rounding gradients has lost."""
    rounded = replace(OWNERS, owners=owners, reduce="ring", gradient_numbers=numbers)  # alike on both: the same bits
    told = OWNERS if numbers == "float32" else rounded

    def solver(run, gpu):
        world = World(COMM.Dup())
        world.take_gpu(gpu)
        param = solver_with(tower(folder / "db"), type="Adam", snapshot_prefix=str(folder / f"of {owners}"))
        return scaffe.Solver(
            param, world=world, run=run, compute=Compute(engine="reference"), watching=Watching(stall_seconds=0)
        )

    on_device = solver(replace(told, owners=owners), StrictGpu(StrictDevice(seed=COMM.rank, sharing=False)))
    on_device.step(2)
    path = COMM.bcast(on_device.snapshot())
    residuals = on_device.parts.residuals.kept
    assert (residuals is not None and residuals.any()) == (numbers == "int8" and COMM.rank == 0 and COMM.size > 1)
    assert [one.size for one in on_device.parts.rule.history] == [on_device.parts.rule.owned.count] * 2
    on_device.step(2)
    expected = on_device.net.packed.host_data().copy()
    on_device.close()
    on_host = solver(told, None)
    on_host.restore(path)
    on_host.step(2)
    np.testing.assert_allclose(on_host.net.packed.host_data(), expected, rtol=0, atol=1e-6)
    on_host.close()


@pytest.mark.parametrize("drive", ["hook", "helper"])
def test_devices_are_given_what_one_reader_or_their_own_read(folder, drive):
    def trained_by(readers):
        gpu = StrictGpu(StrictDevice(seed=COMM.rank, sharing=False))
        return trained(folder, Run("SC-OBR", reduce="chain", drive=drive), gpu, reading=Reading(readers=readers))

    np.testing.assert_array_equal(trained_by("single"), trained_by("parallel"))


@pytest.mark.two_ranks
@pytest.mark.parametrize("way", ["one message", "by a helper", "every rank updates", "slices"])
def test_runs_that_devices_record_between_messages_reach_the_same_parameters(folder, monkeypatch, way):
    monkeypatch.setattr(RawModule, "folder", folder)  # each kernel compiled once
    on_host = trained(folder, WAYS[way], None, iterations=7)
    device = StrictDevice(seed=COMM.rank, sharing=False)
    repeated = []
    monkeypatch.setattr(Tape, "launch", lambda tape, launch=Tape.launch: repeated.append(1) or launch(tape))
    on_device = trained(folder, WAYS[way], StrictGpu(device), "auto", iterations=7)
    assert len(repeated) > 2
    np.testing.assert_allclose(on_device, on_host, rtol=0, atol=1e-5 * np.abs(on_host).max())
