"""The engine's products of matrices: every layout, added or not, rounded as asked; cuBLAS is a stand-in."""

import threading

import numpy as np
import pytest
from fake_cublas import NOT_SUPPORTED, FakeCublas, narrowed, widened
from hypothesis import given
from hypothesis import strategies as st
from recorded import Stream
from strict_arrays import Array, StrictGpu, xp

import scaffe
from scaffe import engines
from scaffe.engines.cuda.cublas import Cublas, _load
from scaffe.engines.cuda.graphs import Recorder
from scaffe.engines.cuda.products import Products
from scaffe.errors import CublasError, DeviceError

SIDES = st.integers(1, 5)


@pytest.fixture
def gpu():
    return StrictGpu()


def multiply(gpu, a, b, out, compute="float32", **how):
    """Multiply NumPy's arrays on the stand-in, and wait for the result."""
    if isinstance(how.get("bias"), np.ndarray):
        how["bias"] = Array(how["bias"])
    Products(gpu, compute)(Array(a), Array(b), Array(out), **how)
    gpu.wait()


def laid_out(rng, shape, turned):
    """Return a matrix, or several, of that shape, in memory as it is or transposed."""
    if not turned:
        return rng.standard_normal(shape).astype(np.float32)
    return np.swapaxes(rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(np.float32), -1, -2)


@given(st.integers(0, 3), SIDES, SIDES, SIDES, *[st.booleans()] * 5)
def test_products_of_all_layouts_are_numpys(count, m, n, k, turned_a, turned_b, turned_out, add, one_b):
    rng = np.random.default_rng(0)
    front = (count,) if count else ()
    a, b = laid_out(rng, (*front, m, k), turned_a), laid_out(rng, (k, n) if one_b else (*front, k, n), turned_b)
    out = laid_out(rng, (*front, m, n), turned_out and not one_b)
    expected = np.matmul(a.astype(np.float64), b) + (out if add else 0)
    multiply(StrictGpu(), a, b, out, add=add)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_part_of_a_matrix_is_written_and_nothing_beside_it(gpu):
    rng = np.random.default_rng(1)
    whole = np.zeros((5, 7), np.float32)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 9), (9, 4)))
    multiply(gpu, a[:, :6], b[:6], whole[1:4, 2:6])
    expected = np.zeros_like(whole)
    expected[1:4, 2:6] = a[:, :6] @ b[:6]
    np.testing.assert_allclose(whole, expected, atol=1e-5)


def test_a_matrix_with_gaps_in_its_rows_is_refused(gpu):
    a = Array(np.zeros((4, 4), np.float32))
    with pytest.raises(ValueError, match="cuBLAS needs a stride of 1"):
        Products(gpu, "float32")(a[:, ::2], a[:2], a[:, :4])


@pytest.mark.parametrize(("compute", "bits"), [("tf32", 10), ("bf16", 7)])
def test_numbers_are_rounded_as_asked_and_sums_are_float32(gpu, compute, bits):
    kept, lost = np.float32(1 + 2.0**-bits), np.float32(1 + 2.0 ** -(bits + 1))  # halves go to even, which is one
    a = np.array([[kept, lost]], np.float32)
    for kind, expected in ((compute, kept**2 + 1), ("float32", kept**2 + lost**2)):
        out = np.zeros((1, 1), np.float32)
        multiply(gpu, a, a.T, out, kind)
        assert out[0, 0] == expected


@pytest.mark.parametrize("out", [np.float32, np.uint16])
@pytest.mark.parametrize("compute", ["float32", "bf16"])
def test_factors_of_bfloat16_are_multiplied_as_they_are(gpu, compute, out):
    rng = np.random.default_rng(2)
    a, b, bias = (narrowed(rng.standard_normal(shape).astype(np.float32), np.uint16) for shape in ((3, 6), (6, 4), 4))
    bias = bias if out == np.uint16 else widened(bias)
    expected, found = np.matmul(widened(a), widened(b)) + widened(bias), np.zeros((3, 4), out)
    multiply(gpu, a, b, found, compute, bias=bias)
    np.testing.assert_array_equal(found, narrowed(expected, np.dtype(out)))


@pytest.mark.parametrize(("a", "b", "out"), ["fHf", "ffH", "ddd", "HHd"])
def test_types_that_cublas_does_not_multiply_are_refused(gpu, a, b, out):
    with pytest.raises(CublasError, match=r"product of \(2, 2\) by \(2, 2\) into \(2, 2\): no product of"):
        multiply(gpu, *(np.zeros((2, 2), dtype) for dtype in (a, b, out)))


def test_a_product_that_the_library_refuses_names_layer_shapes_and_status(tmp_path):
    library, path = FakeCublas(), tmp_path / "net.prototxt"
    path.write_text("""
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }""")
    gpu = StrictGpu()
    gpu.libraries["cublas"] = Cublas(library, gpu)
    net = scaffe.Net(path, scaffe.TEST, engine=engines.create(gpu=gpu))
    library.refuses = NOT_SUPPORTED
    said = r"layer 'ip' .*product of \(2, 3\) by \(3, 4\) into \(2, 4\): cublasGemmEx_64: CUBLAS_STATUS_NOT_SUPPORTED"
    with pytest.raises(DeviceError, match=said):
        net.forward(x=np.ones((2, 3)))


def test_streams_and_threads_take_turns_and_none_has_the_librarys_own_workspace(gpu):
    a, library = np.ones((2, 2), np.float32), gpu.libraries["cublas"]
    products, outs, failures = Products(gpu, "float32"), [np.zeros((2, 2), np.float32) for _ in range(6)], []

    def work(outs):
        try:
            gpu.use()
            for out in outs:  # on the thread's stream, on another one, and back; the stand-in asserts the rest
                with Stream(non_blocking=True) if out is outs[1] else gpu.stream:
                    products(Array(a), Array(a), Array(out))
                    gpu.wait()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, args=(outs[3:],))
    work(outs[:3])
    thread.start()
    thread.join()
    assert failures == [] and all((out == 2).all() for out in outs)
    assert len(set(map(id, library._workspaces.values()))) == 3  # the rank's stream, and a further one of each thread


def test_products_are_recorded_by_a_thread_that_has_never_multiplied(gpu):
    a, out = Array(np.ones((2, 2), np.float32)), Array(np.zeros((2, 2), np.float32))
    products = Products(gpu, "float32")
    graph = Recorder(gpu, products.prepare).record(lambda: products(a, a, out, add=True))
    assert (out.get() == 0).all()
    for _ in range(3):
        graph.launch()
    assert (out.get() == 6).all()


def test_cupys_own_products_refuse_to_be_recorded(gpu):
    a = Array(np.ones((2, 2), np.float32))
    for work in (lambda: xp.matmul(a, a), lambda: a @ a, lambda: a.dot(a), lambda: xp.einsum("ij,ij->i", a, a)):
        with pytest.raises(NotImplementedError, match="calling cuBLAS API during stream capture"):
            Recorder(gpu, lambda: None).record(work)
    Recorder(gpu, lambda: None).record(lambda: a.reshape(-1).dot(a.reshape(-1)))  # by kernels of CuPy's own


def test_the_library_that_cupy_loads_has_these_functions_and_says_why_it_refuses():
    cupy = pytest.importorskip("cupy")
    gpu = StrictGpu()
    gpu.xp = cupy
    try:
        library = Cublas(_load(gpu), gpu)
    except CublasError as error:
        pytest.skip(str(error))
    with pytest.raises(CublasError, match=r"cublasSetStream_v2: CUBLAS_STATUS_NOT_INITIALIZED"):
        library.call("cublasSetStream_v2", None, 0)
