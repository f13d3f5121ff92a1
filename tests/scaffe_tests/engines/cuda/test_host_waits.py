"""How often the host waits for the GPU in an iteration: never for work of that iteration, whatever the net."""

import pytest
from nets import solver_with
from recorded import CARD
from strict_arrays import StrictGpu

import scaffe
from scaffe.compute import Compute
from scaffe.parallel.world import open_world

DATA = """layer {{ name: "digits" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.004 }}
  data_param {{ source: "{source}" batch_size: 2 backend: LMDB }} }}"""
ENDS = """
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""


def layer(kind, name, bottom, top="", fields=""):
    bottoms = " ".join(f'bottom: "{one}"' for one in bottom.split())
    return f'layer {{{{ name: "{name}" type: "{kind}" {bottoms} top: "{top or name}" {fields} }}}}\n'


def conv(name, bottom, fields):
    return layer("Convolution", name, bottom, "", f"convolution_param {{{{ num_output: 4 {fields} }}}}")


def full(name, bottom, outputs=10):
    return layer("InnerProduct", name, bottom, "", f"inner_product_param {{{{ num_output: {outputs} }}}}")


def pool(name, bottom, kind="MAX"):
    return layer("Pooling", name, bottom, "", f"pooling_param {{{{ pool: {kind} kernel_size: 3 stride: 3 }}}}")


STEM = conv("c1", "data", "kernel_size: 5 stride: 3")
NETS = {
    "LeNet": STEM + pool("p1", "c1") + full("f1", "p1", 8) + layer("ReLU", "r1", "f1", "f1") + full("ip", "f1"),
    "CIFAR-10 quick": STEM + pool("p1", "c1") + layer("ReLU", "r1", "p1", "p1") + pool("p2", "p1", "AVE")
    + full("ip", "p2"),
    "AlexNet": STEM + layer("ReLU", "r1", "c1", "c1") + layer("LRN", "n1", "c1") + pool("p1", "n1")
    + conv("c2", "p1", "kernel_size: 3 pad: 1 group: 2") + full("f1", "c2", 8) + layer("Dropout", "d1", "f1", "f1")
    + full("ip", "f1"),
    "GoogLeNet": STEM + conv("a", "c1", "kernel_size: 1") + conv("b", "c1", "kernel_size: 3 pad: 1")
    + layer("Concat", "ab", "a b") + pool("p1", "ab", "AVE") + full("ip", "p1"),
    "ResNet": STEM + layer("BatchNorm", "b1", "c1") + layer("Scale", "s1", "b1") + layer("ReLU", "r1", "s1", "s1")
    + conv("c2", "s1", "kernel_size: 3 pad: 1") + layer("Eltwise", "e1", "s1 c2") + pool("p1", "e1", "AVE")
    + full("ip", "p1"),
}  # fmt: skip


@pytest.fixture
def make(images):
    """Return a function that makes a solver of a net on a stand-in for a GPU."""
    world, made = open_world(), []

    def make(net, graphs, **fields):
        world.take_gpu(StrictGpu())
        text = (DATA + NETS[net] + ENDS).format(source=images)
        made.append(scaffe.Solver(solver_with(text, **fields), world=world, compute=Compute(graphs=graphs)))
        world.take_gpu(None)
        return made[-1]

    yield make
    for solver in made:
        solver.close()


def waits(solver, iterations):
    """Return how often the host waits in each iteration for what the iteration itself put on a stream.

    The last one ends the step, and waits for its loss.
    """
    iterate, found = solver._iterate, []

    def counted(**how):
        put, before = CARD.put, len(CARD.waits)
        iterate(**how)
        found.append(sum(work > put for work in CARD.waits[before:]))

    solver._iterate = counted
    solver.step(iterations)
    return found[:-1]


@pytest.mark.parametrize("graphs", ["on", "off"])
@pytest.mark.parametrize("net", NETS)
def test_the_host_never_waits_for_what_an_iteration_puts_on_the_stream(make, net, graphs):
    solver = make(net, graphs, display=0)
    assert waits(solver, 8) == [0] * 7


def test_a_layer_that_asks_for_a_number_is_waited_for_in_each_iteration(make):
    solver = make("LeNet", "off", display=0)
    relu = solver.net.layer_dict["r1"]
    forward = relu.forward
    relu.forward = lambda bottom, top: forward(bottom, top) or float(top[0].array.sum())
    assert waits(solver, 4) == [1] * 3
