"""Table 2: FedProx and SCAFFOLD at the workers, alone and under anarchy."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from anarchic.core.arrays import norms
from anarchic.errors import Diverged
from anarchic.models import make
from anarchic.sim.engine import Engine
from anarchic.sim.settings import build, partition
from anarchic.study import Cell, Claim, Findings, Job, Line, Study, main, sibling
from anarchic.study.results import read_cell
from anarchic.study.tables import fixed

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, table
# "Test Accuracy of FedProx and SCAFFOLD". p labels a worker, m of M workers a round, K local steps;
# then the four accuracies in the order of SETTINGS.
PAPER = {
    "lr": [
        (1, 5, 10, 5, 0.8893, 0.8928, 0.8775, 0.8946),
        (2, 5, 10, 5, 0.8868, 0.8970, 0.8832, 0.8954),
        (5, 5, 10, 5, 0.9036, 0.9032, 0.9004, 0.9019),
        (10, 5, 10, 5, 0.9075, 0.9057, 0.9054, 0.9022),
        (1, 5, 10, 10, 0.8752, 0.8789, 0.8669, 0.8838),
        (2, 5, 10, 10, 0.8685, 0.8967, 0.8789, 0.8978),
        (5, 5, 10, 10, 0.9019, 0.9047, 0.8998, 0.9029),
        (10, 5, 10, 10, 0.9072, 0.9071, 0.9052, 0.9038),
    ],
    "cnn": [
        (1, 5, 10, 5, 0.7488, 0.1641, 0.7415, 0.3935),
        (2, 5, 10, 5, 0.7728, 0.6315, 0.7890, 0.6971),
        (5, 5, 10, 5, 0.7931, 0.7828, 0.8031, 0.7884),
        (10, 5, 10, 5, 0.8150, 0.8083, 0.8143, 0.8051),
    ],
    "rnn": [
        (None, 72, 143, 50, 0.4690, 0.4794, 0.4550, 0.4515),
    ],
}
# The cells of table 1, by their place in it: its tasks, rates and rounds are those of this table.
TABLE = sibling(__file__, "table-1")
BASE = {(cell.task, *cell.columns.values()): cell for cell in TABLE.cells}
PROX, SCAFFOLD = {"local_rule": "prox", "mu": 0.1}, {"local_rule": "scaffold"}
SETTINGS = {  # a setting of table 1, and the local rule under it
    "fedprox": ("sync-constant", PROX),
    "scaffold": ("sync-constant", SCAFFOLD),
    "afl-fedprox": ("async-dynamic", PROX),
    "afl-scaffold": ("async-dynamic", SCAFFOLD),
}
OPTION_1 = {"local_options": {"option": 1}}
CONTROLS = {"rounds": 150, "batch": 100}  # the short runs whose controls are measured, on a CPU
SEEDS = {"lr": 5, "cnn": 1, "rnn": 3, "lr-by-c": 5, "lr-option-1": 5}
# Runs trained as lanes of one batch.
AT_ONCE = {"lr": 32, "cnn": 8, "rnn": 12, "lr-by-c": 16, "lr-option-1": 16, "cnn-option-1": 8}
FIRST = (1, None, 10)  # p of the cells that are run before the others
FAILED = 0.3  # an accuracy on CIFAR-10 that is no success, at chance 0.1
FAILS = f"fail (diverge or end below {FAILED})"
CLOSE = 0.015  # an accuracy that is lost, and not to speak of
DEVICES = {"cnn": "cuda", "rnn": "cuda", "cnn-option-1": "cuda"}  # what a laptop would be days at
PRECISIONS = dict.fromkeys(DEVICES, "bf16")
NAMES = {
    "lr": "LR/MNIST",
    "cnn": "CNN/CIFAR-10",
    "rnn": "RNN/Shakespeare",
    "lr-by-c": "LR/MNIST, under AFL, divided by c",
    "lr-option-1": "LR/MNIST, SCAFFOLD by option I",
    "cnn-option-1": "CNN/CIFAR-10, SCAFFOLD by option I",
    "controls": f"CNN/CIFAR-10, rounds lived, of {CONTROLS['rounds']}, and the norms of controls",
}

ABOUT = """
The local rules of FedProx (mu = 0.1) and SCAFFOLD under AFA-CD, with the tasks, rates and rounds
of [table 1](../table-1/README.md). *fedprox* and *scaffold* are synchronous with constant local
steps, as the paper says. For AFL with either it says that the effects of asynchrony and dynamic
local steps are studied; *afl-fedprox* and *afl-scaffold* here have both at once.

SCAFFOLD is its option II, with the population M known to the server; a worker keeps its control
from its last visit, and the shared one is that of the version it pulled. Ours is the mean over the
last ten evaluations and the seeds. The paper does not say which option it has: *lr-option-1* and
*cnn-option-1* show the same cells under option I, where a worker's new control is its gradient at
the version that it pulled, here that of its first local step.

The step is that of AFA-CD, which divides the sum of a worker's gradients by its own K; *lr-by-c*
shows the dynamic cells of LR with every sum divided by the constant c, for which table 1 gives the
reason.

A run that diverges, to a loss or an update that is not finite, ends there; ours is then the mean
over the last ten evaluations before, and the entry says that it diverged. Where it had none but
that of the untrained model, its number says nothing else.
"""

SEE = "See *SCAFFOLD on CIFAR-10* on the page of table 2."
AT_P1 = "Table 1 says why: *Dynamic steps at p = 1* on its page."
CNN_P1 = (
    f"The reason is not known (seeds: {SEEDS['cnn']}). Table 1's cell at p = 1 loses under "
    "asynchrony without FedProx, too."
)
CNN_P2 = "See *What else diverged* on the page of table 2."
RNN_AFL = (
    "Table 1's cell loses under asynchrony and dynamic steps without FedProx, too, and does not "
    "when sums are divided by c: see *Divided by K or by c* on its page."
)
RNN_SCAFFOLD = f"The paper's own cell loses {PAPER['rnn'][0][5] - PAPER['rnn'][0][7]:.4f}."
RNN_PROX = (
    "A likely reason is the length of the step: at mu = 0.1, eta_L = 0.8, K = 50 the pull to the "
    "start leaves a visit a quarter of its way, were gradients constant, as a server rate of 12 "
    "instead of 50 would. What smaller rates cost is on the page of table 1."
)
WHY = """
Under option II a worker's new control is the mean gradient of its visit. A visit that strays meets
steep ground and brings home a long control; the next one sets out with a step against it and strays
further, while the shared control, a mean, pulls all the others along. *controls* shows it in short
synchronous runs, with a batch of {batch} in {precision} where the table has {full} in {of_table}:
the rounds that a run lived, and the norms of the controls that its visits brought home. Under
option I a control is a gradient at a version that the server has published, so that a visit that
strays does not lead the next astray by it. The paper's own guess at the reason for the failure is
that controls grow stale where only some of the workers come in a round.
"""
SEEN = """
Under option I the short run at p = 1 lived all its {rounds:.0f} rounds, while that of the table
diverged: its failure is seen, not explained. Controls are long there (their median is {one:.2f}, at
p = 10 {ten:.2f}), by conjecture because workers with one label pull in opposite directions.
"""
INDEPENDENT = """
*plain* is Algorithm 1 of SCAFFOLD, option II, as a loop of its own: nothing but the network and the
data is shared with the rest. At p = 10 it diverges, too, after {plain:.0f} rounds, ours after
{ours:.0f}: this is the algorithm's, not an error in our code.
"""


def cell(task: str, row: list, setting: str, paper: float) -> Cell:
    """A cell of table 1 with another local rule."""
    under, local_rule = SETTINGS[setting]
    base = BASE[task, *row, under]
    return replace(
        base,
        name=base.name.replace(under, setting),
        settings=replace(base.settings, **local_rule),
        columns={**base.columns, "setting": setting},
        paper=paper,
        turn=0 if base.columns["p"] in FIRST else 1,
    )


def cells() -> list[Cell]:
    table = [
        cell(task, row, setting, paper)
        for task, rows in PAPER.items()
        for *row, a, b, c, d in rows
        for setting, paper in zip(SETTINGS, (a, b, c, d), strict=True)
    ]
    by_c = [
        cell("lr-by-c", row, setting, paper)
        for *row, _, _, c, d in PAPER["lr"]
        for setting, paper in (("afl-fedprox", c), ("afl-scaffold", d))
    ]
    short = controls(table)
    return [*table, *by_c, *by_option_1(table), *short, alone(short)]


def by_option_1(table: list[Cell]) -> list[Cell]:
    """The cells of SCAFFOLD on images, with its other option."""
    return [
        replace(
            base,
            name=f"{base.name}-option1",
            task=f"{base.task}-option-1",
            settings=replace(base.settings, **OPTION_1),
        )
        for base in table
        if base.task in ("lr", "cnn") and base.columns["setting"].endswith("scaffold")
    ]


def controls(table: list[Cell]) -> list[Cell]:
    """Either option with the fewest and the most labels, short enough for a CPU."""
    return [
        replace(
            base,
            name=f"{base.name}-{option}-controls",
            task="controls",
            settings={**base.asked, **CONTROLS, **changed},
            columns={**base.columns, "setting": option},
            measure=measure_controls,
            value="rounds",
            paper=None,
        )
        for base in table
        if base.task == "cnn" and base.columns["p"] in FIRST
        if base.columns["setting"] == "scaffold"
        for option, changed in {"option-2": {}, "option-1": OPTION_1}.items()
    ]


def alone(short: list[Cell]) -> Cell:
    """Option II with all labels, by a loop that is not ours."""
    base = next(c for c in short if (c.columns["p"], c.columns["setting"]) == (10, "option-2"))
    return replace(
        base,
        name=base.name.replace("option-2", "plain"),
        columns={**base.columns, "setting": "plain"},
        measure=measure_plain,
    )


def measure_controls(job: Job) -> dict:
    """How many rounds a run lives, and how long the controls are that its visits bring home."""
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
    """The same of SCAFFOLD's Algorithm 1, option II, in plain torch; network and data are ours.

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


def cost(found: Findings) -> float:
    """The most that a row loses under AFL against the same local rule alone."""
    return max(
        line.ours - found.one(**{**line.cell.columns, "setting": f"afl-{line.get('setting')}"}).ours
        for line in found.where(setting=("fedprox", "scaffold"))
    )


def behind(found: Findings) -> float | None:
    """The most that a row loses against plain steps, which are those of table 1."""
    pairs = [(plain(line).ours, line.ours) for line in found]
    return None if any(ours is None for ours, _ in pairs) else max(a - b for a, b in pairs)


def plain(line: Line) -> Line:
    """The cell of table 1 that differs in nothing but the local rule."""
    under, _ = SETTINGS[line.get("setting")]
    base = BASE[line.cell.task, *{**line.cell.columns, "setting": under}.values()]
    return Line(base, read_cell(TABLE.results, base))


def notes(found: Findings) -> str:
    return "\n\n".join(filter(None, (failures(found), besides(found))))


def besides(found: Findings) -> str:
    """Whatever diverged that is not SCAFFOLD, beside the same cell with plain steps."""
    lines = found.where(
        lambda line: bool(line.lost), task=(*PAPER,), setting=("fedprox", "afl-fedprox")
    )
    told = "\n".join(
        f"- {NAMES[line.cell.task]}, {place(line)}: {len(line.lost)} of {len(line.results)} "
        f"{course(replace(line, results=line.lost))} The table has {line.ours:.4f}. The reason is "
        f"not known ({about(line)}){beside(plain(line))}."
        for line in lines
    )
    return f"## What else diverged\n\n{told}" if told else ""


def beside(other: Line) -> str:
    end = "diverged, too" if other.lost else "went through"
    return f"; with plain steps the cell (table 1) {end}, {other.ours:.4f}" if other.results else ""


def failures(found: Findings) -> str:
    """What became of SCAFFOLD on CIFAR-10, where the paper reports failure at p = 1."""
    scaffold = found.where(setting=("scaffold", "afl-scaffold"))
    lines = scaffold.where(task=("cnn", "cnn-option-1")).run
    if not lines.lines:
        return ""
    at_once = [line for line in lines if line.lost and not line.mean("rounds")]
    rest = [f"- {which(line)} {course(line)}" for line in lines if line not in at_once]
    courses = "\n".join([*rest, *ended(at_once)])
    reasons = (mechanism, independent, seen) if any(line.lost for line in lines) else ()
    why = [reason(found) for reason in reasons]
    told = ["## SCAFFOLD on CIFAR-10", courses, *why, pattern(scaffold), by_option(scaffold)]
    return "\n\n".join(filter(None, told))


def mechanism(found: Findings) -> str:
    """Why option II diverges, and under what the short runs that show it were made."""
    short, full = (found.where(task=task).run for task in ("controls", "cnn"))
    if not (short.lines and full.lines):
        return ""
    return WHY.strip().format(
        batch=CONTROLS["batch"],
        full=full.lines[0].cell.asked["batch"],
        precision=short.results[0].precision,
        of_table=full.results[0].precision,
    )


def independent(found: Findings) -> str:
    """Whether SCAFFOLD diverges without our code, too."""
    lines = found.where(task="controls", p=10, setting=("option-2", "plain"))
    if not lines.complete or any(line.ours == CONTROLS["rounds"] for line in lines):
        return ""
    ours, alone = (lines.one(setting=setting).ours for setting in ("option-2", "plain"))
    return INDEPENDENT.strip().format(plain=alone, ours=ours)


def seen(found: Findings) -> str:
    """What the short runs do not explain of option I."""
    one, ten = (found.where(task="controls", setting="option-1", p=p) for p in (1, 10))
    table = found.where(task="cnn-option-1", setting="scaffold", p=1)
    if not (one.complete and ten.complete and table.complete and table.lines[0].lost):
        return ""
    short = one.lines[0]
    if short.ours < CONTROLS["rounds"]:
        return ""
    median = short.mean("median")
    return SEEN.strip().format(rounds=short.ours, one=median, ten=ten.lines[0].mean("median"))


def pattern(scaffold: Findings) -> str:
    """Whether option I fails and succeeds where the paper does."""
    every = scaffold.where(task="cnn-option-1")
    one, ten = (every.where(p=p) for p in FIRST if p)
    if not (one.complete and ten.complete and all(map(failed, one))) or any(map(failed, ten)):
        return ""
    rest = every.where(lambda line: line.get("p") not in FIRST).run
    far = [f"{fixed(line.difference, 4)} at {place(line)}" for line in rest]
    between = f" Between them it differs by {', '.join(far)}." if far else ""
    return (
        "So option I fails at p = 1 and succeeds at p = 10, as SCAFFOLD does in the paper, there "
        f"within {worst_difference(ten):.4f} of its numbers ({about(ten.lines[0])}).{between}"
    )


def by_option(scaffold: Findings) -> str:
    """How far either option is from the paper on LR."""
    two, one = (scaffold.where(task=task) for task in ("lr", "lr-option-1"))
    if not (two.complete and one.complete):
        return ""
    return (
        f"On LR the {len(two.lines)} cells of SCAFFOLD differ from the paper's by "
        f"{two.mean_difference:.4f} on average under option II, and by {one.mean_difference:.4f} "
        "under option I."
    )


def course(line) -> str:
    """How a cell went, in a sentence."""
    best, last, rounds = (line.mean(name) for name in ("best", "final", "rounds"))
    end = "diverged after the evaluation at" if line.lost else "went on to"
    return (
        f"{end} round {rounds:,.0f}, with accuracy {last:.4f} there, {line.ours:.4f} over the last "
        f"ten evaluations and {best:.4f} at its best. The paper has {line.cell.paper:.4f}."
    )


def ended(lines: list) -> list[str]:
    """Those that diverged before the evaluation after the first, in one sentence."""
    told = "; ".join(f"{which(line)} ({line.cell.paper:.4f})" for line in lines)
    return [f"- Diverged before they were evaluated again (the paper's): {told}."] if lines else []


def which(line) -> str:
    option = "I" if line.cell.task.endswith("-option-1") else "II"
    return f"option {option}, {place(line)}"


def place(line) -> str:
    return f"p = {line.get('p')}, *{line.get('setting')}*"


def about(line) -> str:
    """With how many seeds a cell was run, and in what precision."""
    seeds = len(line.results)
    return f"{seeds} seed{'s' if seeds > 1 else ''}, {line.results[0].precision}"


def worst_difference(found: Findings) -> float:
    return max(abs(line.difference) for line in found)


def failed(line) -> bool:
    return bool(line.lost) or line.ours < FAILED


def share_failed(found: Findings) -> float:
    return float(np.mean([failed(line) for line in found]))


def under_afl(of: dict, rules: tuple, reason: str = "") -> Claim:
    """That AFL costs local rules nothing to speak of, where the paper sees no degradation."""
    p = "" if of["p"] is None else ", p = 1" if of["p"] == 1 else ", p >= 2"
    names = " and ".join({"fedprox": "FedProx", "scaffold": "SCAFFOLD"}[rule] for rule in rules)
    return Claim(
        text=f"{of['task'].upper()}{p}: what AFL costs {names} at most",
        of={**of, "setting": (*rules, *(f"afl-{rule}" for rule in rules))},
        value=cost,
        at_most=CLOSE,
        reason=reason,
    )


def as_good(task: str, reason: str = "") -> Claim:
    return Claim(
        text=f"{task.upper()}: what FedProx costs at most against plain steps (table 1)",
        of={"task": task, "setting": "fedprox"},
        value=behind,
        at_most=CLOSE,
        reason=reason,
    )


def scaffold_fails(task: str, option: str) -> list[Claim]:
    """That SCAFFOLD fails at p = 1, as in the paper, and that it does not at p = 10."""
    sync, both = ("scaffold",), ("scaffold", "afl-scaffold")
    claim = partial(Claim, value=share_failed, reason=SEE)
    return [
        claim(
            text=f"CNN, option {option}, p = 1: share of SCAFFOLD's synchronous cells that "
            f"{FAILS}, as the paper's does",
            of={"task": task, "p": 1, "setting": sync},
            at_least=1,
        ),
        claim(
            text=f"CNN, option {option}, p = 10: share of SCAFFOLD's cells that {FAILS}, as the "
            "paper's do not",
            of={"task": task, "p": 10, "setting": both},
            at_most=0,
        ),
    ]


STUDY = Study(
    home=Path(__file__).parent,
    title="Table 2: FedProx and SCAFFOLD, alone and under anarchy",
    about=ABOUT,
    cells=cells(),
    seeds=SEEDS,
    at_once=AT_ONCE,
    devices=DEVICES,
    precisions=PRECISIONS,
    across="setting",
    show={
        "rnn": ("best", "last50", "last50_spread"),
        "controls": ("median", "most"),
    },
    notes=notes,
    task_names=NAMES,
    claims=[
        Claim(
            text="LR: mean absolute difference to the paper over the 32 cells",
            of={"task": "lr"},
            value=lambda found: found.mean_difference,
            at_most=0.01,
        ),
        under_afl({"task": "lr", "p": 1}, ("fedprox", "scaffold"), AT_P1),
        under_afl({"task": "lr", "p": (2, 5, 10)}, ("fedprox", "scaffold")),
        under_afl({"task": "cnn", "p": 1}, ("fedprox",), CNN_P1),
        under_afl({"task": "cnn", "p": (2, 5, 10)}, ("fedprox",), CNN_P2),
        under_afl({"task": "rnn", "p": None}, ("fedprox",), RNN_AFL),
        under_afl({"task": "rnn", "p": None}, ("scaffold",), RNN_SCAFFOLD),
        as_good("lr"),
        as_good("cnn"),
        as_good("rnn", RNN_PROX),
        *scaffold_fails("cnn", "II"),
        *scaffold_fails("cnn-option-1", "I"),
        Claim(
            text="CNN, option I: largest difference of SCAFFOLD to the paper at p = 10",
            of={"task": "cnn-option-1", "p": 10},
            value=worst_difference,
            at_most=0.02,
            reason=SEE,
        ),
    ],
)

if __name__ == "__main__":
    main(STUDY)
