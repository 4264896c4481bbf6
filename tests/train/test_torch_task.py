from __future__ import annotations

from dataclasses import replace
from threading import Lock

import numpy as np
import pytest

from anarchic.core.rules import AfaCd
from anarchic.data import Dataset, iid, load
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.experiment import Experiment
from anarchic.sim.simulate import simulate
from anarchic.train.backends import Batched, Loop
from anarchic.train.draws import Draws
from anarchic.train.task import LocalWork

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic.train import probe  # noqa: E402
from anarchic.train.torch_data import PAD, crop_and_flip, padded, pick_crops  # noqa: E402
from anarchic.train.torch_task import TorchTask, cross_entropy  # noqa: E402


def data():
    return load("digits")


def task(module=None, **settings):
    found = data()
    module = make("logistic", found) if module is None else module
    return TorchTask(module, found, iid(found.y_train, 4, 0), **settings)


def net(*layers):
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 10))


def test_the_vector_is_the_model_in_safetensors_order():
    module = net()
    flat = task(module).init()
    assert task(module).layout.names == ("1.bias", "1.weight")
    assert np.array_equal(flat[:10], module[1].bias.detach().numpy())
    assert np.array_equal(flat[10:], module[1].weight.detach().numpy().reshape(-1))


def test_a_digest_tells_of_data_deal_and_crops():
    """A run goes on only with its own task."""
    found = data()
    plain = task().digest()
    assert task().digest() == plain
    other_deal = TorchTask(make("logistic", found), found, iid(found.y_train, 4, 1))
    other_labels = replace(found, y_train=found.y_train[::-1].copy())
    other_data = TorchTask(make("logistic", found), other_labels, iid(found.y_train, 4, 0))
    others = [other_deal, other_data, task(augment=True), task(precision="bf16")]
    assert len({plain, *(other.digest() for other in others)}) == 5


def test_a_worker_draws_only_from_its_own_samples():
    found = data()
    parts = [np.arange(100, 110), np.arange(500, 503)]
    marked = Dataset(
        "marked", np.arange(len(found.y_train), dtype=np.float32)[:, None], found.y_train,
        found.x_test[:, 0, 0, :1], found.y_test, 10,
    )  # fmt: skip
    module = nn.Linear(1, 10)
    problem = TorchTask(module, marked, parts)
    picks = problem.pick(Draws(0, np.array([0, 1]), np.array([0, 0]), 50), 8)
    drawn = marked.x_train[picks["sample"]][..., 0]
    assert set(drawn[0].reshape(-1).tolist()) == set(range(100, 110))
    assert set(drawn[1].reshape(-1).tolist()) == set(range(500, 503))


def test_evaluation_counts_what_the_model_gets_right():
    problem = task()
    params = np.zeros(650, np.float32)
    params[3] = 1.0  # the bias of class 3: everything is a three
    found = problem.evaluate(params)
    assert found["accuracy"] == pytest.approx((data().y_test == 3).mean())
    expected = np.log(9 + np.e) - (data().y_test == 3).mean()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


def test_cross_entropy_is_torch_s():
    outputs, labels = torch.randn(6, 10), torch.randint(0, 10, (6,))
    expected = nn.functional.cross_entropy(outputs, labels)
    torch.testing.assert_close(cross_entropy(outputs, labels), expected)


def test_frozen_parameters_and_buffers_stay_behind():
    module = net(nn.Linear(64, 64))
    module[1].weight.requires_grad_(False)
    module.register_buffer("count", torch.tensor(3))
    assert task(module).layout.names == ("1.bias", "2.bias", "2.weight")


def test_tied_weights_travel_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(64, 64)
            self.two = nn.Linear(64, 64)
            self.two.weight = self.one.weight
            self.out = nn.Linear(64, 10)

        def forward(self, x):
            return self.out(self.two(self.one(x.flatten(1))))

    problem = task(Tied(), dtype="float64")
    assert "two.weight" not in problem.layout.names
    picks = problem.pick(Draws(0, np.array([0]), np.array([0]), 1), 4)
    at_0 = {name: pick[:, 0] for name, pick in picks.items()}
    params = torch.tensor(problem.init())
    alone = problem.gradient(params, 0, {name: pick[0] for name, pick in at_0.items()})
    lanes = problem.lane_gradients(params[None], np.array([0]), at_0)
    torch.testing.assert_close(lanes[0], alone)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (nn.BatchNorm1d(64), 'BatchNorm1d.*buffers="average".*buffers="local".*nn.GroupNorm'),
        (nn.LazyLinear(64), "'1.weight' of Sequential has no shape yet: call the module once"),
    ],
)
def test_modules_that_cannot_be_trained_as_they_are_are_refused_with_a_remedy(layer, says):
    with pytest.raises(ConfigError, match=says):
        task(net(layer))


@pytest.mark.parametrize("wrong", [{"sparse": True}, {"max_norm": 1.0}])
def test_embeddings_that_are_no_dense_tensors_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"nn.Embedding with .*leave that out"):
        task(nn.Embedding(3, 3, **wrong))


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused(register):
    module = net()
    handle = getattr(module[1].weight, register)(lambda _: None)
    with pytest.raises(ConfigError, match=r"'1.weight' of Sequential has a hook.*remove it"):
        task(module)
    handle.remove()
    task(module)


class Deciding(nn.Module):
    """A linear layer, with something done to what it gives."""

    def __init__(self, then):
        super().__init__()
        self.linear, self.then = nn.Linear(64, 10), then

    def forward(self, x):
        return self.then(self.linear(x.flatten(1)))


def computed(backend, then):
    torch.manual_seed(0)
    problem = task(Deciding(then))
    table = Sampler(4, 2, ConstantSteps(2)).timetable(0, 2)
    work = LocalWork(lr=0.1, batch=8)
    return simulate(Experiment(problem, AfaCd(2, 1.0), table, work, backend=backend))


@pytest.mark.parametrize(
    "then",
    [
        lambda z: z if z.sum() > 0 else 2 * z,
        lambda z: z / z.abs().max().item(),
        lambda z: z - z[z > 0].sum(),
    ],
)
def test_a_model_that_decides_by_values_is_computed_visit_by_visit(then, caplog):
    probe._say.cache_clear()
    batched = computed(Batched(), then).params
    assert "values of a tensor decide what it does" in caplog.text
    assert np.array_equal(batched, computed(Loop(), then).params)


def test_a_model_that_begins_to_decide_is_sent_to_the_loop():
    def late(z):
        return z if len(z) < 8 or z.sum() > 0 else 2 * z  # not with the two samples of a look

    with pytest.raises(ConfigError, match=r"Deciding cannot be .* at once.* backend=Loop\(\)"):
        computed(Batched(), late)
    assert np.isfinite(computed(Loop(), late).params).all()


def test_a_model_that_begins_to_draw_is_refused():
    def late(z):
        return z if len(z) < 8 else z + torch.rand(z.shape)

    with pytest.raises(ConfigError, match="draws random numbers now"):
        computed(Batched(), late)


def test_what_is_drawn_elsewhere_is_refused():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=r"draws from 'then.rng'.*Draw by torch"):
        task(Deciding(lambda z: 10 * z * float(rng.random())))


def test_an_error_of_the_module_is_said_before_training():
    with pytest.raises(ConfigError, match=r"Deciding fails on inputs .* cannot be multiplied"):
        task(Deciding(lambda z: z @ z))


def test_a_module_that_returns_more_than_the_loss_takes_needs_a_forward():
    with pytest.raises(ConfigError, match=r"Deciding returns a tuple, not a tensor: give forward="):
        task(Deciding(lambda z: (z, 1)))
    found = task(Deciding(lambda z: (z, 1)), forward=lambda module, x: module(x)[0])
    assert 0 <= found.evaluate(found.init())["accuracy"] <= 1


def test_a_model_by_name_that_gives_no_module_is_refused():
    with pytest.raises(ConfigError, match=r"'builtins:repr' gave a str .* a torch.nn.Module"):
        make("builtins:repr", data())


def test_a_selection_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"train= selects none of the 2 parameters.*'1.weight'"):
        task(net(), train=lambda name: "lora_" in name)


def test_a_module_that_cannot_be_copied_is_refused():
    module = net()
    module.lock = Lock()
    with pytest.raises(ConfigError, match="cannot be copied"):
        task(module)


def test_an_unknown_policy_for_buffers_is_refused():
    with pytest.raises(ConfigError, match="mean"):
        task(net(), buffers="mean")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([[0, 1], []], "Worker 1 holds no sample"),
        ([[0, 1437]], "samples 0 to 1437, but the training samples are numbered 0 to 1436"),
        ([[-1, 5]], "samples -1 to 5"),
    ],
)
def test_samples_that_there_are_not_are_refused(parts, says):
    found = data()
    with pytest.raises(ConfigError, match=says):
        TorchTask(make("logistic", found), found, [np.array(part, int) for part in parts])


def test_a_module_without_parameters_is_refused():
    module = net()
    module.requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter that requires a gradient"):
        task(module)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said():
    with pytest.raises(ConfigError, match="no GPU"):
        task(device="cuda")


def test_crops_and_flips_move_the_image_and_nothing_else():
    image = torch.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    index = torch.tensor([0, 0, 0])
    crops = torch.tensor([[PAD, PAD, 0], [PAD, PAD, 1], [PAD + 1, PAD - 1, 0]])
    same, mirrored, moved = crop_and_flip(padded(image), index, crops)
    assert torch.equal(same, image[0])
    assert torch.equal(mirrored, image[0].flip(-1))
    assert torch.equal(moved[0, :3, 1:], image[0, 0, 1:, :3])
    assert moved[0, 3].sum() == moved[0, :, 0].sum() == 0  # what came from outside is zero


def test_crops_are_uniform():
    bits = torch.tensor(Draws(0, np.arange(50), np.zeros(50, int), 4).bits("augment", 300))
    crops = pick_crops(bits)
    assert crops.shape == (50, 4, 100, 3)
    for column, ways in ((0, 9), (1, 9), (2, 2)):
        counts = torch.bincount(crops[..., column].reshape(-1), minlength=ways)
        assert len(counts) == ways
        assert (abs(counts - 20_000 / ways) < 5 * (20_000 / ways) ** 0.5).all()
