"""The models: their sizes are the published ones, their layers have the published names, and they run."""

from dataclasses import replace

import numpy as np
import pytest
from google.protobuf import text_format
from nets import write_images

import readers
import scaffe
from scaffe import cli, models
from scaffe.errors import ScaffeError
from scaffe.proto import NetParameter, SolverParameter
from scaffe.proto.files import read_solver

# Where a count is published for a net of exactly these layers, it stands here; else what to add to or take from it.
PUBLISHED = {
    "lenet": 431_080,  # Caffe's MNIST example; TensorFlow's and MXNet's copies of it count the same
    "cifar10_quick": 145_578,  # Caffe's CIFAR-10 example
    "cifar10_full": (3 * 32 + 32 * 32 + 32 * 64) * 25 + 2 * 32 + 64 + 64 * 4 * 4 * 10 + 10,  # by cuda-convnet's sizes
    "cifar10_full_sigmoid": 89_578,  # as many
    "cifar10_full_sigmoid_bn": 89_578 + 2 * (32 + 32 + 64),  # a factor and a shift for each channel
    "alexnet": 60_965_224,  # Caffe's model zoo; Krizhevsky et al. 2012 say 60 million
    "caffenet": 60_965_224,
    "nin": (3 * 121 + 2 * 96 + 96 * 25 * 256 // 96) * 96  # by the layers' sizes: conv1, cccp1 and 2, conv2,
    + 2 * 256**2 + 256 * 9 * 384 + 2 * 384**2 + 384 * 9 * 1024 + 1024**2 + 1024 * 1000  # cccp3 and 4, ..., cccp8
    + 3 * 96 + 3 * 256 + 3 * 384 + 2 * 1024 + 1000,  # biases
    "vgg16": 138_357_544,  # Simonyan and Zisserman 2015, table 2: 138 million; Keras and torchvision
    "vgg19": 143_667_240,  # 144 million there; Keras and torchvision
    "googlenet": 6_998_552,  # the deploy net of Caffe's model zoo
    "inception_bn": 11_295_240 - 10_016,  # Cadene's bninception, less its convolutions' biases: one for each channel
    "resnet50": 25_557_032 + 64,  # torchvision, and the biases of conv1 that He's Caffe files have
    "resnet101": 44_549_160,  # torchvision
    "mobilenet": 4_231_976,  # Howard et al. 2017, table 4: 4.2 million; torch ports
    "word_lm": 19_775_200,
    "gnmt": (17_191 + 7_709) * 128  # the words' vectors; 8 encoder layers, the first twice, the second over both;
    + 4 * 128 * (8 * (128 + 128 + 1) + (256 + 128 + 1))
    + 4 * 128 * ((128 + 128 + 1) + 7 * (256 + 128 + 1))  # 8 decoder layers, all but the first over the context too
    + 2 * 128 * 128 + 128 + 128 + 7_709 * (128 + 1),  # attention: query, keys, biases, score; the scores of words
    "ncf": (6_040 + 3_706) * (8 + 16) + 32 * 33 + 16 * 33 + 8 * 17 + 17,  # vectors, MLP 32, 16, 8, score
    "lstm": 19_775_200,  # TensorFlow's PTB tutorial, medium: 10,000 x 650 x 2 + 10,000 + 2 x 4 x (650 x 1,300 + 650)
}  # fmt: skip
WITH_AUXILIARY_LOSSES = {"googlenet": 13_378_280}  # Caffe's train_val; 13.0 million in torchvision, its heads smaller

# Of published weights: first blobs of some layers, by the layers' names.
SHAPES = {
    "lenet": {"conv2": (50, 20, 5, 5), "ip1": (500, 800)},
    "cifar10_quick": {"conv3": (64, 32, 5, 5), "ip1": (64, 1024)},
    "cifar10_full": {"conv3": (64, 32, 5, 5), "ip1": (10, 1024)},
    "cifar10_full_sigmoid": {"conv2": (32, 32, 5, 5), "ip1": (10, 1024)},
    "cifar10_full_sigmoid_bn": {"conv3": (64, 32, 5, 5), "scale3": (64,)},
    "caffenet": {"conv2": (256, 48, 5, 5), "fc6": (4096, 9216), "fc8": (1000, 4096)},
    "nin": {"conv4-1024": (1024, 384, 3, 3), "cccp8-1024": (1000, 1024, 1, 1)},
    "googlenet": {
        "conv1/7x7_s2": (64, 3, 7, 7), "inception_4c/5x5": (64, 24, 5, 5),
        "inception_5b/pool_proj": (128, 832, 1, 1), "loss3/classifier": (1000, 1024)},
    "resnet50": {"conv1": (64, 3, 7, 7), "res4f_branch2b": (256, 256, 3, 3), "scale5c_branch2c": (2048,),
        "bn2a_branch1": (256,), "res5a_branch1": (2048, 1024, 1, 1), "fc1000": (1000, 2048)},
    "resnet101": {"res3b3_branch2a": (128, 512, 1, 1), "bn4b22_branch2c": (1024,), "scale5c_branch2a": (512,)},
    "mobilenet": {"conv2_1/dw": (32, 1, 3, 3), "conv5_6/sep/bn": (1024,), "conv6/sep/scale": (1024,),
        "fc7": (1000, 1024, 1, 1)},
}  # fmt: skip

# Where images of 224 x 224 only cost time, those are smaller.
SMALLER = {"alexnet": (3, 67, 67), "caffenet": (3, 67, 67), "vgg16": (3, 32, 32), "vgg19": (3, 32, 32)}


def parameters(net):
    return sum(p.blob.count for p in net.parameters if not p.statistic)


def unfilled(net):
    """The net with zeros for weights, which take no time to draw."""
    for layer in net.layer:
        for _, message in layer.ListFields():
            if hasattr(message, "DESCRIPTOR"):
                for field in ("weight_filler", "bias_filler"):
                    if field in message.DESCRIPTOR.fields_by_name:
                        message.ClearField(field)
    return net


def test_every_model_has_a_published_size():
    assert PUBLISHED.keys() == models.MODELS.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_deploy_net_has_the_parameters_and_layer_names_that_are_published(name):
    model = models.get(name)
    net = scaffe.Net(unfilled(model.deploy()), scaffe.TEST)
    assert parameters(net) == PUBLISHED[name] == model.parameters
    assert net.outputs == ["prob"] and model.classes in net.blobs["prob"].shape
    shapes = SHAPES.get(name, {})
    assert {layer: net.params[layer][0].shape for layer in shapes} == shapes


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_net_trains_an_iteration_and_every_parameter_gets_a_gradient(name):
    model = models.get(name)
    model = replace(model, shape=SMALLER.get(name, model.shape))
    net = scaffe.Net(model.train_val(batch=1, data="input"), scaffe.TRAIN)
    rng = np.random.default_rng(0)
    for blob, shape in model.inputs(1).items():
        draws = {"data": rng.standard_normal, **dict.fromkeys(("cont", "back", "source", "next"), np.ones)}
        net.blobs[blob].data[...] = draws.get(blob, np.zeros)(shape)
    net.forward()
    net.backward()
    assert 0 < net.loss() < 1000
    assert [p.label for p in net.parameters if not p.statistic and not np.any(p.blob.diff)] == []
    if name in WITH_AUXILIARY_LOSSES:
        assert parameters(net) == WITH_AUXILIARY_LOSSES[name]


def test_googlenet_weighs_its_auxiliary_losses():
    net = scaffe.Net(unfilled(models.get("googlenet").train_val(batch=1, data="dummy")), scaffe.TRAIN)
    assert net.loss_weights() == pytest.approx({"loss1/loss1": 0.3, "loss2/loss1": 0.3, "loss3/loss3": 1})


def test_dummy_data_runs_without_a_caller():
    for name in ("lenet", "lstm", "gnmt"):
        net = scaffe.Net(models.get(name).train_val(batch=3, classes=7, data="dummy"), scaffe.TEST)
        assert sorted(net.forward()) == ["accuracy", "loss"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_solvers_and_train_val_files_are_read_back_as_written(name):
    model = models.get(name)
    for message, kind in ((model.train_val(batch=5), NetParameter), (model.solver("n.prototxt"), SolverParameter)):
        assert text_format.Parse(text_format.MessageToString(message), kind()) == message
    layers = model.train_val(batch=5).layer
    assert layers[0].top == layers[1].top and layers[0].name == layers[1].name
    assert [layer.include[0].phase for layer in layers[:2]] == [scaffe.TRAIN, scaffe.TEST]
    assert not any(layer.type in ("SoftmaxWithLoss", "Accuracy") for layer in model.deploy().layer)


def test_printed_cifar10_nets_read_their_databases_and_solvers_step(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples/cifar10").mkdir(parents=True)
    for part in ("train", "test"):
        write_images(f"examples/cifar10/cifar10_{part}_lmdb", shape=(3, 32, 32))
    readers.write_mean("examples/cifar10/mean.binaryproto", np.full((3, 32, 32), 120, np.float32))
    for file, flags in (("train_val.prototxt", ["--batch", "32"]), ("solver.prototxt", ["--solver"])):
        assert cli.main(["models", "cifar10_quick", *flags]) == 0
        (tmp_path / file).write_text(capsys.readouterr().out)
    param = read_solver("solver.prototxt")
    param.test_iter[:] = [1]
    solver = scaffe.Solver(param)
    solver.step(2)
    assert solver.iter == 2 and solver.net.blobs["data"].shape == (32, 3, 32, 32)
    assert solver.test_nets[0].blobs["data"].shape == (100, 3, 32, 32)
    solver.close()


def test_the_list_has_all_models_and_options_reach_the_net(capsys):
    assert cli.main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(models.MODELS)
    assert cli.main(["models", "cifar10_quick", "--deploy", "--batch", "3", "--classes", "4"]) == 0
    net = scaffe.Net(text_format.Parse(capsys.readouterr().out, NetParameter()), scaffe.TEST)
    assert net.forward()["prob"].shape == (3, 4)
    assert cli.main(["models", "inception_bn", "--deploy", "--classes", "4", "--sizes", "side=32"]) == 0
    net = scaffe.Net(text_format.Parse(capsys.readouterr().out, NetParameter()), scaffe.TEST)
    assert net.blobs["data"].shape == (1, 3, 32, 32) and net.forward()["prob"].shape == (1, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["googlnet"], r"unknown model 'googlnet'; did you mean 'googlenet'\?"),
        (["inception_bn", "--sizes", "side=48"], "give a side of 32, 64, ..., got 48"),
        (["lenet", "--sizes", "side=48"], "lenet has no size 'side'; its sizes: none"),
        (["lenet", "--batch", "0"], "batch must be 1 or more, got 0"),
        (["lenet", "--solver", "--batch", "3"], "--batch says nothing about solver"),
        (["--deploy"], "name a model; known models: lenet"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(arguments, message, capsys):
    assert cli.main(["models", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(ScaffeError, match=message):
        raise ScaffeError(error)
