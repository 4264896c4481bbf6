"""How long SCAFFOLD's controls become in short runs, by our code and by a plain loop."""

from dataclasses import replace

import numpy as np

from anarchic.core.arrays import norms
from anarchic.errors import Diverged
from anarchic.models import make
from anarchic.sim.engine import Engine
from anarchic.sim.settings import build, partition
from anarchic.study import Cell, Job


def cells(table: list[Cell], short: dict, options: dict[str, dict]) -> list[Cell]:
    """SCAFFOLD's cells with each option, short enough for a CPU; then the plain loop."""
    made = [
        replace(
            base,
            name=f"{base.name}-{option}-controls",
            task="controls",
            settings={**base.asked, **short, **changed},
            columns={**base.columns, "setting": option},
            measure=measure_controls,
            value="rounds",
            paper=None,
        )
        for base in table
        if base.columns["setting"] == "scaffold"
        for option, changed in options.items()
    ]
    return [*made, alone(made)]


def alone(short: list[Cell]) -> Cell:
    """Option II with all labels, by a plain loop."""
    base = next(c for c in short if (c.columns["p"], c.columns["setting"]) == (10, "option-2"))
    return replace(
        base,
        name=base.name.replace("option-2", "plain"),
        columns={**base.columns, "setting": "plain"},
        measure=measure_plain,
    )


def measure_controls(job: Job) -> dict:
    """How many rounds a run lasts, and the norms of the controls that its visits return."""
    experiment = build(job.settings_of(job.cell.settings), job.compute)
    engine, found = Engine(experiment), []
    with experiment.computing():
        while engine.version < experiment.timetable.rounds:
            lanes = engine.wanted()
            if lanes is not None:
                computed = experiment.backend.compute(experiment.task, lanes)
                found.append(norms(computed.kept["own_control"]))
                engine.take(computed)
            try:
                engine.advance()
            except Diverged:
                break
    return {"rounds": engine.version, **summary(np.concatenate(found))}


def measure_plain(job: Job) -> dict:
    """The same for SCAFFOLD's Algorithm 1, option II, in plain torch; network and data are ours.

    Karimireddy et al., "SCAFFOLD", ICML 2020, arXiv:1910.06378. The server's rate is eta_g * K,
    which is AFA-CD's eta. A batch is cropped and mirrored as a whole.
    """
    import torch
    from torch.nn.functional import cross_entropy, pad
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    settings = job.settings_of(job.cell.settings)
    data, parts = partition(settings)
    rng, net = np.random.default_rng(job.seed), make(settings.model, data, seed=job.seed)
    M, m, K, lr = len(parts), settings.m, settings.local_steps, settings.local_lr

    def gradient(at, worker):
        chosen = rng.choice(parts[worker], settings.batch)
        images, size = torch.as_tensor(data.x_train[chosen]), data.x_train.shape[-1]
        if data.augment == "crop-flip":
            top, left = rng.integers(0, 9, 2)
            images = pad(images, (4, 4, 4, 4))[..., top : top + size, left : left + size]
            images = images.flip(-1) if rng.random() < 0.5 else images
        vector_to_parameters(at, net.parameters())
        loss = cross_entropy(net(images), torch.as_tensor(data.y_train[chosen]).long())
        return parameters_to_vector(torch.autograd.grad(loss, list(net.parameters())))

    x = parameters_to_vector(net.parameters()).detach()
    c, own, lengths, version = torch.zeros_like(x), x.new_zeros(M, len(x)), [], 0
    while version < settings.rounds:
        moved, learnt = torch.zeros_like(x), torch.zeros_like(x)
        for worker in rng.choice(M, m, replace=False):
            y = x.clone()
            for _ in range(K):
                y -= lr * (gradient(y, worker) - own[worker] + c)
            control = own[worker] - c + (x - y) / (K * lr)
            moved, learnt = moved + (y - x) / m, learnt + (control - own[worker]) / M
            own[worker] = control
            lengths.append(float(control.norm()))
        if not np.isfinite(lengths).all():
            break
        x, c, version = x + settings.server_lr / K * moved, c + learnt, version + 1
    return {"rounds": version, **summary(np.array(lengths))}


def summary(lengths: np.ndarray) -> dict:
    finite = lengths[np.isfinite(lengths)]
    return {"median": float(np.median(finite)), "most": float(finite.max())}
