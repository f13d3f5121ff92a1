"""A deploy net loads weights that Caffe wrote, and reproduces what Caffe computed with them."""

import re

import numpy as np
import pytest
from both_engines import needs_onednn
from deploy import deploy

import scaffe
from readers import LMDBReader, decode, read_mean
from scaffe.compute import Compute

ENGINES = ["reference", pytest.param("onednn", marks=needs_onednn)]
BATCH = 40


@pytest.fixture
def artefacts(cases):
    return cases / "caffe" / "artefacts"


def batch(artefacts, database, number):
    """Return the images, as the nets take them, and the labels of a batch, in plain numpy."""
    with LMDBReader(artefacts / database) as reader:
        records = [decode(value) for _, value in reader.read(range(number * BATCH, (number + 1) * BATCH))]
    images = np.array([image for image, _ in records], np.float32) - read_mean(artefacts / "mean.binaryproto")
    return images / 64, np.array([label for _, label in records])


@pytest.fixture(params=ENGINES)
def losses(request, artefacts, tmp_path):
    """losses(weights, images, labels): the batch's mean cross entropy from a deploy net's probabilities."""
    model = deploy(artefacts / "quick_xavier.prototxt", tmp_path / "deploy.prototxt", BATCH)

    def run(weights, images, labels):
        net = scaffe.Net(model, scaffe.TEST, weights=artefacts / weights, compute=Compute(request.param))
        prob = net.forward(data=images)["prob"].astype(np.float64)
        assert prob.sum(axis=1) == pytest.approx(np.ones(BATCH), abs=1e-6)
        return -np.log(prob[np.arange(BATCH), labels]).mean(), (prob.argmax(axis=1) == labels).mean()

    return run


@pytest.mark.parametrize(("weights", "iteration"), [("init", 0), ("iter_25", 25)])
def test_a_deploy_net_reproduces_the_losses_of_caffes_training(artefacts, losses, weights, iteration):
    images, labels = batch(artefacts, "train_lmdb", 0)  # 200 records, so iteration 25 starts over
    assert np.array_equal(images[:4], np.load(artefacts / "quick_xavier_batch0_data.npy"))
    assert np.array_equal(labels, np.load(artefacts / "quick_xavier_batch0_label.npy"))
    loss, _ = losses(f"quick_xavier_{weights}.caffemodel", images, labels)
    assert loss == pytest.approx(np.load(artefacts / "quick_xavier_losses.npy")[iteration], rel=2e-5)


def test_a_deploy_net_reproduces_the_scores_of_caffes_test(artefacts, losses):
    said = re.findall(r"Batch (\d), (\w+) = (\S+)$", (artefacts / "quick_xavier_test.log").read_text(), re.M)
    theirs = {(int(number), what): float(value) for number, what, value in said}
    assert len(theirs) == 10
    for number in range(5):
        images, labels = batch(artefacts, "train_encoded_png_lmdb", number)
        loss, accuracy = losses("quick_xavier_iter_25.caffemodel", images, labels)
        assert loss == pytest.approx(theirs[number, "loss"], rel=2e-5)  # printed with six digits
        assert accuracy == pytest.approx(theirs[number, "accuracy"])
