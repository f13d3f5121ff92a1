"""install: `import caffe` and its submodules give scaffe's modules, the same objects, and shadow no other caffe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

import scaffe
import scaffe.pycaffe as caffe
from scaffe.pycaffe.names import CONSENT

# What `from caffe import NAME` gives in pycaffe 1.0.
PUBLIC = [
    "AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "Classifier", "Layer", "NCCL", "Net", "NesterovSolver", "NetSpec",
    "RMSPropSolver", "SGDSolver", "TEST", "TRAIN", "__version__", "get_solver", "has_nccl", "init_log", "io",
    "layer_type_list", "layers", "log", "params", "set_device", "set_mode_cpu", "set_mode_gpu", "set_multiprocess",
    "set_random_seed", "set_solver_count", "set_solver_rank", "solver_count", "solver_rank", "to_proto", "Timer",
]  # fmt: skip


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, in `folder`."""
    (folder / "program.py").write_text(program)
    command = [sys.executable, "program.py"]
    return subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True)


def printed(program: str, folder: Path, **environment: str) -> str:
    """Return what a program prints, which exits with 0."""
    ran = run(program, folder, **environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_names_of_pycaffe_are_there():
    assert [name for name in PUBLIC if not hasattr(caffe, name)] == []
    assert caffe.__version__ == "1.0.0"
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)
    assert {"Convolution", "Data", "InnerProduct", "Python"} <= set(caffe.layer_type_list())


def test_its_modules_and_classes_are_scaffes_own():
    assert caffe.Net is scaffe.Net and caffe.Classifier is scaffe.Classifier and caffe.io is scaffe.pictures.io
    assert caffe.layers is scaffe.layers and caffe.proto.caffe_pb2 is scaffe.proto.caffe_pb2


def test_caffe_pb2_is_one_namespace(tmp_path):
    pb = caffe.proto.caffe_pb2
    (tmp_path / "net.prototxt").write_text('name: "n" layer { name: "a" blobs { data: 3 shape { dim: 1 } } }')
    net = text_format.Merge((tmp_path / "net.prototxt").read_text(), pb.NetParameter())
    assert type(net.layer[0].blobs[0]) is pb.BlobProto and type(net.layer[0].blobs[0].shape) is pb.BlobShape
    assert pb.BlobProtoVector(blobs=net.layer[0].blobs).blobs[0].data[0] == 3
    assert (pb.TRAIN, pb.TEST, pb.Phase.Name(1)) == (0, 1, "TEST")
    assert pb.Datum(channels=1, label=4).label == 4 and pb.SolverParameter().type == "SGD"


IMPORTS = """
import sys
import scaffe.pycaffe
scaffe.pycaffe.install()
import caffe, caffe.io, caffe.net_spec, caffe.proto, caffe.pycaffe, caffe._caffe, caffe.classifier
import caffe.proto.caffe_pb2 as pb
from caffe.proto import caffe_pb2
from caffe import layers as L, params as P
from caffe.pycaffe import Net
assert pb is caffe_pb2 and caffe.Net is Net and L.ReLU and P.Pooling.AVE == 1
assert caffe is scaffe.pycaffe and caffe.io is scaffe.pictures.io is sys.modules["caffe.io"]
print(caffe._caffe.__name__, caffe.net_spec.__name__)
"""


def test_every_form_of_import_gives_the_same_modules(tmp_path):
    assert printed(IMPORTS, tmp_path) == "scaffe.pycaffe scaffe.spec.netspec\n"
    assert printed(IMPORTS.replace("install()", "install(); scaffe.pycaffe.install()"), tmp_path)


def test_importing_it_imports_no_mpi_no_pictures_and_no_gpu(tmp_path):
    heavy = "mpi4py", "matplotlib", "h5py", "PIL", "tqdm", "cupy", "pydot", "graphviz"
    program = f"import sys; import scaffe.pycaffe as c; c.install(); print([m for m in {heavy} if m in sys.modules])"
    assert printed(program, tmp_path) == "[]\n"


INSTALL = "import scaffe.pycaffe; scaffe.pycaffe.install({}); import caffe; print(caffe.__name__)"


@pytest.mark.parametrize("first", ["", "import caffe; "])
def test_another_caffe_is_named_and_replaced_on_demand_alone(tmp_path, first):
    (tmp_path / "caffe").mkdir()
    (tmp_path / "caffe/__init__.py").write_text("real = True\n")
    (tmp_path / "caffe/test.py").write_text("")
    refused = run(first + INSTALL.format(""), tmp_path)
    assert refused.returncode == 1
    assert f"another caffe is here, {tmp_path / 'caffe/__init__.py'}: write `import scaffe.pycaffe" in refused.stderr
    assert printed(first + INSTALL.format("replace=True"), tmp_path) == "scaffe.pycaffe\n"
    nothing = first + "import scaffe.pycaffe; import caffe; print(caffe.real)"
    assert printed(nothing, tmp_path) == "True\n"


def test_a_module_that_the_program_made_is_another_caffe_too(tmp_path):
    program = "import sys, types; sys.modules['caffe'] = types.ModuleType('caffe'); "
    assert "a module that this program made" in run(program + INSTALL.format(""), tmp_path).stderr


def test_a_folder_called_caffe_is_none(tmp_path):
    (tmp_path / "caffe/python").mkdir(parents=True)
    for first in ("", "import caffe; "):
        assert printed(first + INSTALL.format(""), tmp_path) == "scaffe.pycaffe\n"


CHILDREN = """
import multiprocessing, sys
import scaffe.pycaffe
if __name__ == "__main__":
    scaffe.pycaffe.install({})

def child(_):
    import caffe.io
    return caffe.__name__, scaffe.defaults.get_defaults().compute.allow_python_layers

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, *pool.map(child, [0])[0])
"""


@pytest.mark.parametrize(("given", "allowed"), [("", False), ("allow_python_layers=True", True)])
def test_processes_that_multiprocessing_starts_have_caffe_and_the_same_consent(tmp_path, given, allowed):
    lines = printed(CHILDREN.format(given), tmp_path).splitlines()
    assert lines == [f"{method} scaffe.pycaffe {allowed}" for method in ("fork", "spawn", "forkserver")]


def test_the_environment_can_consent(tmp_path):
    program = "import scaffe.pycaffe as c, scaffe.defaults as d; c.install(); print(d.get_defaults().compute)"
    assert "allow_python_layers=True" in printed(program, tmp_path, **{CONSENT: "1"})
    assert "allow_python_layers=False" in printed(program, tmp_path, **{CONSENT: ""})


def test_the_environments_consent_holds_without_install(tmp_path):
    program = "import scaffe.pycaffe, scaffe.defaults as d; print(d.get_defaults().compute)"
    assert "allow_python_layers=True" in printed(program, tmp_path, **{CONSENT: "1"})
    assert "allow_python_layers=False" in printed(program, tmp_path, **{CONSENT: ""})


def test_submodules_can_be_imported_by_the_packages_own_name(tmp_path):
    program = (
        "import scaffe.pycaffe.io as io\nfrom scaffe.pycaffe.proto import caffe_pb2\n"
        "import scaffe.pictures.io, scaffe.proto, sys\n"
        "print(io is scaffe.pictures.io, caffe_pb2 is scaffe.proto.caffe_pb2, 'caffe' in sys.modules)\n"
    )
    assert printed(program, tmp_path) == "True True False\n"
