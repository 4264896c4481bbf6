"""Table 2: FedProx and SCAFFOLD at the workers, alone and under anarchy."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from anarchic.study import Cell, Claim, Findings, Outcome, Study, beside, main, sibling
from anarchic.study.findings import difference, differences
from anarchic.study.results import Result, Results, read_results
from anarchic.study.tables import fixed, markdown

# Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, arXiv:2108.09875, table
# "Test Accuracy of FedProx and SCAFFOLD". p labels per worker, m of M workers per round, K local
# steps; then the four accuracies in the order of SETTINGS.
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
# The cells of table 1 by their columns; this table has the same tasks, rates and rounds.
TABLE = sibling(__file__, "table-1")
BASE = {(cell.task, *cell.columns.values()): cell for cell in TABLE.cells}
PROX, SCAFFOLD = {"local_rule": "prox", "mu": 0.1}, {"local_rule": "scaffold"}
SETTINGS = {  # a setting of table 1, and the local rule under it
    "fedprox": ("sync-constant", PROX),
    "scaffold": ("sync-constant", SCAFFOLD),
    "afl-fedprox": ("async-dynamic", PROX),
    "afl-scaffold": ("async-dynamic", SCAFFOLD),
}
controls = beside(__file__, "controls")
OPTION_1 = {"local_options": {"option": 1}}
CONTROLS = {"rounds": 150, "batch": 100}  # the short runs whose controls are measured, on a CPU
SEEDS = {"lr": 5, "cnn": 2, "rnn": 3, "lr-by-c": 5, "lr-option-1": 5, "cnn-option-1": 2}
# Runs trained as lanes of one batch.
AT_ONCE = {"lr": 32, "cnn": 8, "rnn": 12, "lr-by-c": 16, "lr-option-1": 16, "cnn-option-1": 8}
FIRST = (1, None, 10)  # p of the cells that are run before the others
FAILED = 0.3  # on CIFAR-10 an accuracy below it is a failure; chance is 0.1
FAIL = f"fail (diverge or end below {FAILED})"
CLOSE = 0.015  # a loss of accuracy that counts as none
DEVICES = {"cnn": "cuda", "rnn": "cuda", "cnn-option-1": "cuda"}  # days of work for a laptop
PRECISIONS = dict.fromkeys(DEVICES, "bf16")
NAMES = {
    "lr": "LR/MNIST",
    "cnn": "CNN/CIFAR-10",
    "rnn": "RNN/Shakespeare",
    "lr-by-c": "LR/MNIST, under AFL, divided by c",
    "lr-option-1": "LR/MNIST, SCAFFOLD by option I",
    "cnn-option-1": "CNN/CIFAR-10, SCAFFOLD by option I",
    "controls": f"CNN/CIFAR-10, rounds that a run of {CONTROLS['rounds']} lasted, and the norms of "
    "controls",
}

SEE = "See *SCAFFOLD on CIFAR-10* on the page of table 2."
AT_P1 = "Table 1 says why: *Dynamic steps at p = 1* on its page."
CNN_P1 = (
    "The reason is not known. Table 1's cell at p = 1 loses under asynchrony without FedProx, too."
)
CNN_P2 = "A run under AFL diverged: see *FedProx on CIFAR-10* on the page of table 2."
RNN_AFL = (
    "Table 1's cell loses under asynchrony and dynamic steps without FedProx, too, and does not "
    "when sums are divided by c: see *Divided by K or by c* on its page."
)
RNN_SCAFFOLD = "The paper's own cell loses more."
RNN_PROX = (
    "A likely reason is the length of the step: at mu = 0.1, eta_L = 0.8, K = 50 the pull to the "
    "start leaves a visit a quarter of its way, were gradients constant, as a server rate of 12 "
    "instead of 50 would. What smaller rates cost is on the page of table 1."
)
RUNS = """
## Runs on CIFAR-10, one by one

Option I or II of SCAFFOLD, or FedProx. *rounds* are those until the last evaluation, *last* is the
accuracy there, *last ten* the mean over the last ten evaluations: of a run that diverged, those
before it did.
""".strip()
COSTS = """
## What AFL costs FedProx on CIFAR-10, by seed

Accuracy of *fedprox* less that of *afl-fedprox*; *diverged* where one of the two runs did.
""".strip()
OPTIONS = """
## SCAFFOLD's options on LR

Mean absolute difference of SCAFFOLD's cells to the paper.
""".strip()


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
    few_and_many = [c for c in table if c.task == "cnn" and c.columns["p"] in FIRST]
    short = controls.cells(few_and_many, CONTROLS, {"option-2": {}, "option-1": OPTION_1})
    return [*table, *by_c, *by_option_1(table), *short]


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


def cost(found: Findings) -> float:
    """The most that a row loses under AFL against the same local rule alone."""
    return max(
        difference(outcome, under)
        for outcome in found.where(setting=("fedprox", "scaffold"))
        for under in found.where(
            **{**outcome.cell.columns, "setting": f"afl-{outcome.get('setting')}"}
        )
    )


def behind(found: Findings) -> float | None:
    """The most that a row loses against plain steps, which are those of table 1."""
    lost = [difference(plain(outcome), outcome) for outcome in found]
    return None if None in lost else max(lost)


def plain(outcome: Outcome) -> Outcome:
    """The cell of table 1 that differs in nothing but the local rule."""
    under, _ = SETTINGS[outcome.get("setting")]
    base = BASE[outcome.cell.task, *{**outcome.cell.columns, "setting": under}.values()]
    return Outcome(base, plain_results().of(base))


@cache
def plain_results() -> Results:
    return read_results(TABLE.results)


def more_tables(found: Findings) -> str:
    return "\n\n".join(filter(None, (runs(found), costs(found), by_option(found))))


def runs(found: Findings) -> str:
    """How each run on CIFAR-10 ended."""
    rows = [
        [
            *(rule(outcome), str(outcome.get("p")), outcome.get("setting"), str(result.seed)),
            *(f"{result.numbers['rounds']:,}", "diverged" if result.diverged else "finished"),
            *(fixed(result.numbers[name], 4) for name in ("final", "last10", "best")),
            fixed(outcome.cell.paper, 4),
        ]
        for outcome in found.where(task=("cnn", "cnn-option-1"))
        for result in outcome.results
    ]
    header = ("rule", "p", "setting", "seed", "rounds", "end", "last", "last ten", "best", "paper")
    return f"{RUNS}\n\n{markdown(header, rows)}" if rows else ""


def rule(outcome: Outcome) -> str:
    if outcome.get("setting").endswith("fedprox"):
        return "FedProx"
    return "option I" if outcome.cell.task.endswith("-option-1") else "option II"


def costs(found: Findings) -> str:
    """What AFL costs FedProx on CIFAR-10, seed by seed."""
    outcomes = found.where(task="cnn", setting=("fedprox", "afl-fedprox"))
    if not outcomes.complete:
        return ""
    pairs = {p: cost_by_seed(outcomes.where(p=p)) for p, *_ in PAPER["cnn"]}
    seeds = sorted({seed for pair in pairs.values() for seed in pair})
    rows = [[str(p), *(pair.get(seed, "") for seed in seeds)] for p, pair in pairs.items()]
    return f"{COSTS}\n\n{markdown(('p', *(f'seed {seed}' for seed in seeds)), rows)}"


def cost_by_seed(outcomes: Findings) -> dict[int, str]:
    found = differences(*(outcomes.one(setting=setting) for setting in ("fedprox", "afl-fedprox")))
    seeds = sorted({result.seed for result in outcomes.results})
    return {seed: fixed(found[seed], 4) if seed in found else "diverged" for seed in seeds}


def by_option(found: Findings) -> str:
    """How far either option is from the paper on LR."""
    scaffold = found.where(setting=("scaffold", "afl-scaffold"))
    two, one = (scaffold.where(task=task) for task in ("lr", "lr-option-1"))
    if not (two.complete and one.complete):
        return ""
    rows = [[str(len(two)), *(fixed(x.mean_difference, 4) for x in (two, one))]]
    return f"{OPTIONS}\n\n{markdown(('cells', 'option II', 'option I'), rows)}"


def worst_difference(found: Findings) -> float:
    return max(abs(outcome.difference) for outcome in found)


def failed(run: Result) -> bool:
    return run.diverged or run.numbers["last10"] < FAILED


def share_failed(found: Findings) -> float:
    """Of the runs."""
    return float(np.mean([failed(run) for run in found.results]))


def fails_at_1_alone(found: Findings) -> float:
    """The share that fails at p = 1 without AFL, less that at p = 10."""
    return share_failed(found.where(p=1, setting="scaffold")) - share_failed(found.where(p=10))


def in_between(outcome: Outcome) -> bool:
    """Whether it is of p = 2 or 5, or of p = 1 under AFL."""
    return outcome.get("p") in (2, 5) or (outcome.get("p"), outcome.get("setting")) == (
        1,
        "afl-scaffold",
    )


def under_afl(of: dict, rules: tuple, reason: str = "") -> Claim:
    """That AFL costs local rules at most CLOSE, where the paper sees no degradation."""
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
    """That SCAFFOLD fails where the paper's does, at p = 1 without AFL, and nowhere else."""
    of = {"task": task, "setting": ("scaffold", "afl-scaffold")}
    claim = partial(Claim, reason=SEE, counts_diverged=True)
    return [
        claim(
            text=f"CNN, option {option}: share of SCAFFOLD's synchronous runs that {FAIL} at "
            "p = 1, less that of its runs at p = 10 (in the paper 1, less 0)",
            of={**of, "p": (1, 10)},
            value=fails_at_1_alone,
            at_least=1,
        ),
        claim(
            text=f"CNN, option {option}, p = 10: share of SCAFFOLD's runs that {FAIL}, as the "
            "paper's do not",
            of={**of, "p": 10},
            value=share_failed,
            at_most=0,
        ),
        claim(
            text=f"CNN, option {option}, p = 2 and 5, and p = 1 under AFL: share of SCAFFOLD's "
            f"runs that {FAIL}, as the paper's do not",
            of={**of, "keep": in_between},
            value=share_failed,
            at_most=0,
        ),
    ]


def diverged(found: Findings, **of) -> str:
    """How many of SCAFFOLD's runs."""
    runs = found.where(setting=("scaffold", "afl-scaffold"), **of).results
    return f"{sum(run.diverged for run in runs)} of {len(runs)}"


STUDY = Study(
    folder=Path(__file__).parent,
    title="Table 2: FedProx and SCAFFOLD, alone and under anarchy",
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
    more_tables=more_tables,
    facts={
        "option II, diverged": partial(diverged, task="cnn"),
        **{
            f"option I, p = {p}, diverged": partial(diverged, task="cnn-option-1", p=p)
            for p in (1, 2, 5, 10)
        },
        "rounds of the plain loop": lambda found: fixed(
            found.one(task="controls", setting="plain").ours, 2
        ),
    },
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
