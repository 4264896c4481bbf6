"""Table 1: accuracy under synchrony and asynchrony, constant and dynamic local steps."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from anarchic.data.shakespeare import FEDPROX_SEED
from anarchic.sim.settings import Settings
from anarchic.study import Cell, Findings, Outcome, Study, beside, main
from anarchic.study.tables import fixed, markdown

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, table
# "Test Accuracy" of AFA-CD. p labels per worker, m of M workers per round, K local steps; then the
# accuracies in the order of SETTINGS.
#       p    m    M   K  sync-const sync-dyn async-const async-dyn
PAPER = {
    "lr": [
        (1, 5, 10, 5, 0.8916, 0.8915, 0.8888, 0.8868),
        (2, 5, 10, 5, 0.8906, 0.8981, 0.8901, 0.8931),
        (5, 5, 10, 5, 0.9072, 0.9075, 0.9059, 0.9048),
        (10, 5, 10, 5, 0.9114, 0.9111, 0.9129, 0.9143),
        (1, 5, 10, 10, 0.8743, 0.8786, 0.8701, 0.8734),
        (2, 5, 10, 10, 0.8687, 0.8813, 0.8661, 0.8819),
        (5, 5, 10, 10, 0.9016, 0.9050, 0.9034, 0.9065),
        (10, 5, 10, 10, 0.9124, 0.9135, 0.9112, 0.9111),
        (1, 20, 100, 5, 0.8898, 0.8973, 0.8909, 0.8938),
        (2, 20, 100, 5, 0.8968, 0.9007, 0.8955, 0.9000),
        (5, 20, 100, 5, 0.9088, 0.9088, 0.9097, 0.9078),
        (10, 20, 100, 5, 0.9111, 0.9106, 0.9126, 0.9125),
    ],
    "cnn": [
        (1, 5, 10, 5, 0.7474, 0.7606, 0.7319, 0.7350),
        (2, 5, 10, 5, 0.7677, 0.7944, 0.7662, 0.7770),
        (5, 5, 10, 5, 0.7981, 0.8020, 0.8065, 0.7990),
        (10, 5, 10, 5, 0.8081, 0.8072, 0.8065, 0.8119),
    ],
    "rnn": [
        (None, 72, 143, 50, 0.4683, 0.4831, 0.4606, 0.4687),
    ],
}
SETTINGS = {
    "sync-constant": {},
    "sync-dynamic": {"dynamic_steps": True},  # K uniform on 1..2c
    "async-constant": {"max_staleness": 4},  # each worker starts from one of the last five versions
    "async-dynamic": {"max_staleness": 4, "dynamic_steps": True},
}
SYNC, ASYNC = ("sync-constant", "sync-dynamic"), ("async-constant", "async-dynamic")
DYNAMIC = ("sync-dynamic", "async-dynamic")
TASKS = {
    "lr": {"data": "mnist", "model": "logistic", "batch": 64, "rounds": 150},
    "cnn": {"data": "cifar10", "model": "cnn", "batch": 500, "rounds": 10_000},
    "rnn": {"data": "shakespeare", "model": "lstm", "batch": 10, "rounds": 300, "eval_every": 5},
}
RATES = {"lr": (1.0, 0.1), "cnn": (1.0, 0.1), "rnn": (50.0, 0.8)}  # eta, eta_L
SEEDS = {"lr": 5, "cnn": 2, "rnn": 3, "lr-by-c": 5, "rnn-by-c": 3, "rnn-roles": 3, "lr-start": 5}
# Runs trained as lanes of one batch.
AT_ONCE = {"lr": 48, "cnn": 16, "rnn": 12, "lr-by-c": 24, "cnn-by-c": 2, "rnn-by-c": 6}
AT_ONCE |= {"lr-start": 48, "rnn-roles": 12}
ON_GPU = ("cnn", "rnn", "rnn-apart", "rnn-roles", "cnn-by-c", "rnn-by-c")  # days for a laptop
DEVICES = dict.fromkeys(ON_GPU, "cuda")
BY_C = {
    "lr": (1, 2, 5, 10),
    "cnn": (1,),
    "rnn": (None,),
}  # p of the cells that are also divided by c
PRECISIONS = dict.fromkeys(DEVICES, "bf16")
CHANGES = {  # further runs of the asynchronous cells of the RNN
    "clip 0.1": {"clip": 0.1},  # a bound on eta_L * ||G||: see rnn-norms
    "eta 25": {"server_lr": 25.0},
    "eta 10": {"server_lr": 10.0},
}
NORMS = {"m": 8, "rounds": 20}  # the short run whose updates are measured
ROLES = {"seed": FEDPROX_SEED}  # the draw of roles that is nearest to FedProx's statistics
measured = beside(__file__, "measured")
variants = beside(__file__, "variants")
short = beside(__file__, "headline")
claims = beside(__file__, "claims")
NAMES = {
    "lr": "LR/MNIST",
    "cnn": "CNN/CIFAR-10",
    "rnn": "RNN/Shakespeare",
    "rnn-apart": "RNN/Shakespeare, clipped or with a smaller server rate",
    "rnn-norms": "RNN/Shakespeare, the norm of eta_L * G",
    "rnn-roles": "RNN/Shakespeare, roles by FedProx's mean and deviation",
    "lr-start": "LR/MNIST, started as nn.Linear starts",
    "lr-by-c": "LR/MNIST, dynamic, divided by c",
    "cnn-by-c": "CNN/CIFAR-10, dynamic, divided by c",
    "rnn-by-c": "RNN/Shakespeare, dynamic, divided by c",
    "data": "The data, as they are dealt",
}
LATE = ("last10", "best", "last50", "last50_spread")  # what is shown of the RNN
MEASURES = {"last10": "last ten", "final": "last", "best": "best"}  # as results name them
EXPLAIN = """
Mean absolute difference to the paper over the rows, and in brackets the largest, if the paper's
number were another than the mean over the last ten evaluations.
""".strip()

DIVISOR = """
## Divided by K or by c

Mean absolute difference to the paper of the dynamic cells, with each sum of gradients divided by
its own K or by c; then the standard deviation of accuracy over the last fifty rounds of
*async-dynamic*.
""".strip()


def step(task: str, c: int) -> dict:
    """The rule: AFA-CD, or what divides every sum of gradients by c.

    The latter is FedBuff without a discount: it steps by server_lr * mean(x_start - x_end), where
    x_start - x_end is K * eta_L * G.
    """
    eta, eta_l = RATES[task.removesuffix("-by-c")]
    if not task.endswith("-by-c"):
        return {"rule": "afa-cd", "server_lr": eta, "local_lr": eta_l}
    by_c = {"rule": "fedbuff", "rule_options": {"power": 0.0}}
    return {**by_c, "server_lr": eta / c, "local_lr": eta_l}


def cell(task: str, row: tuple, setting: str, paper: float) -> Cell:
    p, m, M, K = row
    return Cell(
        name=f"{'' if p is None else f'p{p}-'}m{m}-M{M}-K{K}-{setting}",
        task=task,
        settings=Settings(
            workers=M,
            labels_per_worker=p,
            m=m,
            local_steps=K,
            **TASKS[task.removesuffix("-by-c")],
            **step(task, K),
            **SETTINGS[setting],
        ),
        columns={"p": p, "m": m, "M": M, "local_steps": K, "setting": setting},
        paper=paper,
    )


def cells() -> list[Cell]:
    table = [
        cell(task, tuple(row), setting, paper)
        for task, rows in PAPER.items()
        for *row, a, b, c, d in rows
        for setting, paper in zip(SETTINGS, (a, b, c, d), strict=True)
    ]
    by_c = [
        cell(f"{task}-by-c", tuple(row), setting, paper)
        for task, rows in PAPER.items()
        for *row, _, b, _, d in rows
        if row[0] in BY_C[task]
        for setting, paper in zip(DYNAMIC, (b, d), strict=True)
    ]
    _, _, M, K, *_ = PAPER["rnn"][0]
    few = {**TASKS["rnn"], **step("rnn", K), "workers": M, "local_steps": K, **NORMS}
    ways = ((TASKS[task]["data"], p, M) for task, rows in PAPER.items() for p, _, M, *_ in rows)
    others = [
        *variants.other_roles(table, "rnn-roles", ROLES),
        *variants.other_start(table, "lr-start"),
    ]
    data = measured.data_cells(ways, {"shakespeare": ROLES})
    return [
        *table,
        *variants.apart(table, CHANGES, ASYNC),
        measured.norms(few),
        *others,
        *by_c,
        *data,
    ]


def by_measure(found: Findings) -> str:
    """How far we are from the paper if the paper's number is another than the last ten's mean."""
    rows = []
    for setting in SETTINGS:
        for task in (*PAPER, "lr-by-c"):
            outcomes = found.where(task=task, setting=setting)
            if outcomes.complete:
                by = [claims.far(outcomes, measure) for measure in MEASURES]
                means = [f"{fmean(every):.4f} ({max(every):.4f})" for every in by]
                divisor = "c" if task == "lr-by-c" else "K"
                rows.append([NAMES[task.removesuffix("-by-c")], setting, divisor, *means])
    header = ("", "setting", "divided by", *MEASURES.values())
    return f"## By other measures\n\n{EXPLAIN}\n\n{markdown(header, sorted(rows))}" if rows else ""


def by_divisor(found: Findings) -> str:
    """How near the dynamic cells come by K and by c, and how much they oscillate."""
    rows = []
    for task, p in ((task, p) for task, every in BY_C.items() for p in every):
        by_c = found.where(task=f"{task}-by-c", p=p)
        by_K = found.where(task=task, p=p, setting=DYNAMIC)
        if by_c.complete and by_K.complete:
            near = (f"{x.mean_difference:.4f}" for x in (by_K, by_c))
            rows.append([NAMES[task], str(p or ""), str(len(by_c)), *near, *swings(by_K, by_c)])
    header = ("", "p", "cells", "by K", "by c", "deviation by K", "by c")
    return f"{DIVISOR}\n\n{markdown(header, rows)}" if rows else ""


def swings(*every: Findings) -> list[str]:
    """The spread of accuracy over the last fifty rounds of async-dynamic, mean over the cells."""
    free = ([x.mean("last50_spread") for x in f.where(setting="async-dynamic")] for f in every)
    return [f"{fmean(found):.4f}" for found in free]


def apart_table(found: Findings) -> str:
    """The asynchronous cells of the RNN with one thing changed, each under the unchanged one."""
    changed = found.where(task="rnn-apart").run
    if not changed.outcomes:
        return ""
    outcomes = Findings([*unchanged(found, changed), *changed])
    rows = [
        [setting, x.get("change") or "none", *(fixed(x.mean(n), 4) for n in LATE)]
        for setting in ASYNC
        for x in outcomes.where(setting=setting)
    ]
    return markdown(("setting", "change", "ours", *LATE[1:]), rows)


def unchanged(found: Findings, changed: Findings) -> list[Outcome]:
    """The cells of the table, with the seeds that the changed ones were run with."""
    seeds = {result.seed for result in changed.results}
    return [
        replace(outcome, results=[result for result in outcome.results if result.seed in seeds])
        for outcome in found.where(task="rnn", setting=ASYNC)
    ]


def more_tables(found: Findings) -> str:
    return "\n\n".join(filter(None, (by_measure(found), by_divisor(found))))


def in_short(found: Findings) -> str:
    settings = "sync-constant", "async-dynamic"
    text, few = found.where(task="rnn", setting=settings), {"m": 5, "M": 10, "local_steps": 5}
    digits = found.where(task="lr", p=2, setting=settings, **few)
    if not (text.complete and digits.complete):
        return ""
    sync, free = (digits.one(setting=setting) for setting in settings)
    lstm = claims.cost(text)
    return (
        f"**Nearly as accurate as waiting.** Softmax regression on MNIST, two labels per worker: "
        f"{free.ours:.3f} with workers that come when they like, {sync.ours:.3f} in synchronous "
        f"rounds (the paper: {free.cell.paper:.3f} and {sync.cell.paper:.3f}). The worst "
        f"case, the LSTM on Shakespeare, loses {100 * lstm:.1f} points."
    )


STUDY = Study(
    folder=Path(__file__).parent,
    title="Table 1: synchrony and asynchrony, constant and dynamic local steps",
    cells=cells(),
    seeds=SEEDS,
    at_once=AT_ONCE,
    devices=DEVICES,
    precisions=PRECISIONS,
    across="setting",
    tables={"rnn-apart": apart_table, "data": measured.data_table},
    more_tables=more_tables,
    headline=partial(short.headline, names=NAMES),
    in_short=in_short,
    show={
        **dict.fromkeys(("rnn", "rnn-apart", "rnn-roles", "rnn-by-c"), LATE[1:]),
        "rnn-norms": ("least", "quartile", "upper_quartile", "most"),
    },
    task_names=NAMES,
    claims=claims.claims(PAPER, SYNC, ASYNC),
)

if __name__ == "__main__":
    main(STUDY)
