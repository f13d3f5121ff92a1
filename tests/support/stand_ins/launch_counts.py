"""Launches of an iteration, counted on a stand-in for a GPU whose kernels compute nothing: any net, in seconds."""

from collections import Counter
from contextlib import ExitStack
from unittest.mock import patch

import fake_cublas
import fake_cudnn
import host_kernels
import numpy as np
import strict_arrays
from cudnn_gpu import gpu_with

import scaffe
from scaffe import engines, models, solvers
from scaffe.compute import Compute
from scaffe.engines.cuda import kernel_choice
from scaffe.proto import NetParameter, SolverParameter

NETS = "alexnet", "googlenet", "resnet50", "vgg16", "cifar10_quick"


class Launches(Counter):
    """Work put on the device since `clear`, by kind: kernels by name, "cuBLAS", "cuDNN", and "CuPy" for its own."""

    def kernel(self, kernel, *arguments):
        self[kernel.name] += 1

    def library(self, name):
        return lambda written, work: self.update({name: 1})

    def act(self, written, work):
        self["CuPy"] += 1
        return work()

    def made(self, given, make):
        result = make()
        if isinstance(result, np.ndarray) and not any(np.may_share_memory(result, one) for one in given):
            self["CuPy"] += 1
        return result


def counted(name, numbers="float32", batch=2):
    """Return the launches of a model's forward pass, backward pass and update."""
    launches = Launches()
    with ExitStack() as stack:
        kernel = lambda *given: launches.kernel(*given)  # noqa: E731  a function, to be bound as a method
        stack.enter_context(patch.object(host_kernels.Kernel, "__call__", kernel))
        for module, library in ((fake_cublas, "cuBLAS"), (fake_cudnn, "cuDNN")):
            stack.enter_context(patch.object(module, "act", launches.library(library)))
        stack.enter_context(patch.object(kernel_choice.Agreement, "agrees", lambda agreement, name: True))
        stack.enter_context(patch.object(strict_arrays, "act", launches.act))
        stack.enter_context(patch.object(strict_arrays, "made", launches.made))
        param = NetParameter.FromString(models.get(name).train_val(batch=batch, data="input").SerializeToString())
        for layer in param.layer:  # whose values no one asks for
            for field in ("convolution_param", "inner_product_param"):
                if layer.HasField(field):
                    getattr(layer, field).ClearField("weight_filler")
        net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(Compute(numbers=numbers, graphs="off"), gpu_with()))
        net.keep_diffs = False
        solver = SolverParameter(type="SGD", base_lr=0.1, lr_policy="fixed", momentum=0.9)
        rule = solvers.create(solver, net.packed, net.engine)
        for _ in range(2):
            launches.clear()
            iterate(net, rule)
    return launches


def iterate(net, rule):
    net.clear_param_diffs()
    for i in range(len(net.layers)):
        net.forward_layer(i)
    net.engine.loss(net).add(1)
    for i in reversed(range(len(net.layers))):
        net.backward_layer(i)
    rule.update([i for i, parameter in enumerate(net.parameters) if not parameter.statistic], 0.1, 0)
