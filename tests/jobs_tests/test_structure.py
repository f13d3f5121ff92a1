from __future__ import annotations

import ast
import configparser
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BELOW_THE_NET = {"net", "blobs.packed", "solvers", "training", "parallel", "monitor", "timeline", "tools"}
BELOW_THE_NET |= {"cli", "commands"}
GROUND = {"atomic", "lock_owner", "outputs", "plan_file", "process_state", "__init__"}  # files of any kind
BELOW_THE_NET |= {f"files.{one.stem}" for one in (ROOT / "scaffe/files").glob("*.py") if one.stem not in GROUND}
MARKED = re.compile(r"^(?:pytestmark|@).*pytest\.mark\.mpi\b", re.MULTILINE)


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's tree; most tests here walk those of all files."""
    return ast.parse(path.read_text(), str(path))


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """Give back the memory of the trees at the end."""
    yield
    parsed.cache_clear()


def imports(package: str) -> Iterator[tuple[str, str]]:
    """Yield (file, dotted name) for each import in a package's own source."""
    for path in sorted((ROOT / package).rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                yield from ((str(path), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                yield from ((str(path), f"{node.module}.{alias.name}") for alias in node.names)


def offenders(package: str, forbidden: set[str]) -> list[tuple[str, str]]:
    return [(file, name) for file, name in imports(package) if any(f"{name}.".startswith(f"{f}.") for f in forbidden)]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("collectives", {"scaffe", "readers"}),
        ("readers", {"scaffe", "collectives", "mpi4py"}),
        ("scaffe/layers", {"mpi4py", *(f"scaffe.{room}" for room in BELOW_THE_NET)}),
        ("scaffe/solvers", {"mpi4py", *(f"scaffe.{room}" for room in BELOW_THE_NET - {"solvers", "blobs.packed"})}),
        ("scaffe/proto", {"mpi4py", "scaffe.layers", *(f"scaffe.{room}" for room in BELOW_THE_NET)}),
    ],
)
def test_no_package_imports_what_stands_above_it(package: str, forbidden: set[str]) -> None:
    assert list(imports(package)), f"no imports found in {package}"
    assert offenders(package, forbidden) == []


def test_mpi_is_opened_in_scaffe_parallel_alone() -> None:
    places = {file for file, name in offenders("scaffe", {"mpi4py"})}
    assert places and all("parallel" in {one.name for one in Path(file).parents} for file in places)


def test_a_workflows_name_stands_in_its_own_file_alone() -> None:
    places = {
        (str(path.relative_to(ROOT)), node.value)
        for package in ("collectives", "readers", "scaffe")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and re.fullmatch(r"SC-\w+", str(node.value))
    }
    room = "scaffe/parallel/workflows"
    assert ("scaffe/parallel/workflows/sc_b.py", "SC-B") in places
    own = {(f"{room}/{name.lower().replace('-', '_')}.py", name) for _, name in places}
    assert places == own


# Who may speak of a device: whoever chooses it, describes it or says in a record which one is wanted.
CHOOSERS = (
    "devices/", "commands/", "compute.py", "defaults.py", "parallel/world.py", "pycaffe/", "tools/hardware.py",
    "training/default_compute.py",
)  # fmt: skip
BELOW_THE_SEAM = ("engines/", *CHOOSERS)
DEVICE_WORDS = {"gpu", "graphs", "report", "cupy", "cuda", "is_gpu", "on_gpu"}


def modules(but: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    """Yield (path in scaffe, tree) of each module that stands in none of these places."""
    for path in sorted((ROOT / "scaffe").rglob("*.py")):
        place = str(path.relative_to(ROOT / "scaffe"))
        if not place.startswith(but) and not place.endswith("_pb2.py"):
            yield place, parsed(path)


def test_nobody_above_the_engines_asks_which_engine_computes() -> None:
    found = [
        f"{place}:{node.lineno}: {ast.unparse(node)[:80]}"
        for place, tree in modules(BELOW_THE_SEAM)
        for node in ast.walk(tree)
        if _asks_for_a_device(node) or _compares_engines(node) or _compares_with_a_device(node)
    ]
    created = ("net/built.py", "layers/layer.py")  # where a layer says engine: CAFFE
    assert [line for line in found if not line.startswith(created)] == []


def _asks_for_a_device(node: ast.AST) -> bool:
    """Say whether an expression reads an attribute that only some engines have, or decides by a device."""
    tests = node.ifs if isinstance(node, ast.comprehension) else []
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        tests = [node.test]
    if tests:
        names = {one.id for test in tests for one in ast.walk(test) if isinstance(one, ast.Name)}
        return bool(names & DEVICE_WORDS)
    return isinstance(node, ast.Attribute) and node.attr in DEVICE_WORDS and ast.unparse(node) not in PASSED_ON


PASSED_ON = {"self.world.gpu", "world.gpu", "self.compute.graphs", "compute.graphs"}  # to whoever makes engines


def _compares_with_a_device(node: ast.AST) -> bool:
    """Say whether an expression or a case compares with the name of a device or an engine."""
    if not isinstance(node, (ast.Compare, ast.match_case)):
        return False
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.pattern]
    names = {"cuda", "gpu", "onednn"}
    return any(isinstance(one, ast.Constant) and one.value in names for side in sides for one in ast.walk(side))


def _compares_engines(node: ast.AST) -> bool:
    """Say whether an expression compares an engine's name, or its class."""
    if isinstance(node, ast.Compare):  # to look a name up in a register is no comparison
        exact = any(isinstance(one, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)) for one in node.ops)
        return exact and any("engine.name" in ast.unparse(side) for side in (node.left, *node.comparators))
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func) == "isinstance" and "engine" in ast.unparse(node.args[0])


def test_nets_are_given_an_engine_and_no_device() -> None:
    device = {"scaffe.devices.gpu", "scaffe.devices.ahead"}
    assert [one for room in ("net", "pictures", "fine_tuning") for one in offenders(f"scaffe/{room}", device)] == []


def test_nobody_above_the_engines_imports_one() -> None:
    engines = {"scaffe.engines.cuda", "scaffe.engines.onednn"}
    rooms = ("scaffe/engines/", "scaffe/tools/hardware.py")  # which describes oneDNN
    places = {str(Path(file).relative_to(ROOT)) for file, _ in offenders("scaffe", engines)}
    assert places and {place for place in places if not place.startswith(rooms)} == set()


def test_the_base_of_engines_and_the_context_know_none() -> None:
    low = ("engine.py", "context.py", "delivery.py", "choices.py", "compute.py")
    high = {f"scaffe.{room}" for room in (*BELOW_THE_NET, "engines", "layers", "devices.gpu", "devices.ahead")}
    high -= {"scaffe.monitor"}
    found = [one for one in offenders("scaffe", high) if str(Path(one[0]).relative_to(ROOT / "scaffe")) in low]
    assert found == []


def test_layers_and_engines_are_asked_by_methods_that_all_of_them_have() -> None:
    """hasattr stays where protobuf messages and the modules of commands are looked at."""
    found = [
        f"{place}:{node.lineno}"
        for place, tree in modules(("proto/", "spec/netspec.py", "commands/__init__.py"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_guess(node)
    ]
    assert found == []


def _is_guess(call: ast.Call) -> bool:
    """Say whether a call is hasattr, or getattr of a layer, net, engine or context with a default."""
    name = ast.unparse(call.func)
    if name != "getattr" or len(call.args) < 3:
        return name == "hasattr"
    return bool({"layer", "layers", "net", "engine", "context"} & set(re.findall(r"\w+", ast.unparse(call.args[0]))))


def test_the_iteration_has_at_most_twenty_lines() -> None:
    tree = ast.parse((ROOT / "scaffe/parallel/iteration.py").read_text())
    iterate = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "iterate")
    first, last = iterate.body[1].lineno, iterate.body[-1].end_lineno  # behind the docstring
    assert last is not None and last - first + 1 <= 20


def test_every_package_that_is_imported_is_a_requirement() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    options = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    required = {line.strip() for option in options for line in option.splitlines()}
    known = {"PIL": "pillow", "google": "protobuf", "sklearn": "scikit-learn"}
    known |= {"cupy": "cupy-cuda13x", "cudnn": "nvidia-cudnn-frontend"}
    for package in ("collectives", "readers", "scaffe"):
        for file, name in imports(package):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names | {"collectives", "readers", "scaffe"}:
                wanted = known.get(top, top)
                assert any(r == wanted or r.startswith((f"{wanted}>", f"{wanted}=", f"{wanted}<")) for r in required), (
                    file,
                    top,
                )


def test_every_test_below_mpi_tests_runs_under_mpirun() -> None:
    for path in (ROOT / "tests/mpi_tests").glob("test_*.py"):
        assert "pytest.mark.mpi" in path.read_text(), f"{path} has no pytestmark = pytest.mark.mpi"


def test_no_other_test_runs_under_mpirun_but_those_on_devices() -> None:
    """Since jobs/test.sh gives the ranks only these folders."""
    marked = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py") if MARKED.search(path.read_text())}
    assert marked == {"mpi_tests", "device_tests"}


def nodes(kind: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the nodes of a kind in the source of the three packages, each with its file."""
    for package in ("collectives", "readers", "scaffe"):
        for path in (ROOT / package).rglob("*.py"):
            if not path.name.endswith("_pb2.py"):
                yield from ((path, node) for node in ast.walk(parsed(path)) if isinstance(node, kind))


def test_a_class_name_stands_for_one_idea() -> None:
    names = [node.name for _, node in nodes(ast.ClassDef) if not node.name.startswith("_")]
    assert {name for name, count in Counter(names).items() if count > 1} == set()


def test_no_file_or_function_is_long() -> None:
    long = [path for path, _ in nodes(ast.Module) if len(path.read_text().splitlines()) > 457]
    for path, node in nodes(ast.FunctionDef):
        body = node.body[1:] if ast.get_docstring(node) else node.body
        if body and body[-1].end_lineno - body[0].lineno >= 48:
            long.append((path, node.name))
    assert long == []
