"""What is claimed of times under stragglers, and the intervals that the claims rest on."""

from collections.abc import Mapping

import numpy as np

from anarchic.study import Claim, Findings, Outcome

RESAMPLED = 10_000  # times, for an interval of 95 %
ASLEEP = (
    "Many short rounds pass while a worker sleeps, in which its label is forgotten. How AFA-CS "
    "fares, which remembers everybody's last update, the next claim says."
)
ROUNDS_REASON = (
    "The paper gives one number, and not what it is a mean of. At p = 1 accuracy zig-zags, so the "
    "first round at 85 % depends on the draw: *Ratios* has the range of single seeds."
)
RATIO_REASON = "The paper does not say how long a round lasts, nor of how many runs its ratio is."


def ratio(found: Findings) -> float:
    """Mean time of the one algorithm selected beside sync, over that of sync."""
    other = found.where(lambda outcome: not outcome.get("algorithm").startswith("sync")).outcomes[0]
    base = found.where(lambda outcome: outcome.get("algorithm").startswith("sync")).outcomes[0]
    return other.ours / base.ours


def interval(of: Outcome, over: Outcome | None = None, name: str = "time_to_85") -> np.ndarray:
    """95 % for the mean of a number, or for the ratio of two means: bootstrap over the seeds."""
    ours = of.by_seed(name)
    theirs = dict.fromkeys(ours, 1.0) if over is None else over.by_seed(name)
    pairs = np.array([(ours[seed], theirs[seed]) for seed in ours if seed in theirs])
    chosen = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLED, len(pairs)))
    means = pairs[chosen].mean(axis=1)
    return np.quantile(means[:, 0] / means[:, 1], (0.025, 0.975))


def outside(number: float, bounds: np.ndarray) -> float:
    """How far a number lies from an interval, 0 where it lies in it."""
    low, high = bounds
    return float(max(low - number, number - high, 0.0))


def paper_s_rounds(name: str, algorithm: str, rounds: int) -> Claim:
    """That the paper's number of rounds could be the mean of ours."""
    return Claim(
        text=f"Exponential, {name}: how far the paper's {rounds} rounds to 85 % are outside the "
        "95 % interval of ours",
        of={"workers": "exponential", "algorithm": algorithm},
        value=lambda found: outside(rounds, interval(found.outcomes[0], name="rounds_to_85")),
        at_most=0,
        reason=ROUNDS_REASON,
    )


def paper_s_ratio(name: str, algorithm: str, share: float) -> Claim:
    """That the paper's ratio of times could be that of our means."""
    paper = f"1/{1 / share:.1f}"
    return Claim(
        text=f"Exponential, {name}: how far the paper's {paper} of FedAvg's time is outside the 95 "
        "% interval of ours",
        of={"workers": "exponential", "algorithm": ("sync", algorithm)},
        value=lambda found: outside(
            share, interval(found.one(algorithm=algorithm), found.one(algorithm="sync"))
        ),
        at_most=0,
        reason=RATIO_REASON,
    )


def costs_no_more(name: str, algorithm: str, number: str, of: str, paper: float) -> Claim:
    """That it takes at most the paper's share of FedAvg's rounds or time."""
    return Claim(
        text=f"Exponential, {name}: its {of} over FedAvg's, upper end of the 95 % interval "
        "(bound: the paper's ratio)",
        of={"workers": "exponential", "algorithm": ("sync", algorithm)},
        value=lambda found: float(
            interval(found.one(algorithm=algorithm), found.one(algorithm="sync"), number)[1]
        ),
        at_most=paper,
        reason=ROUNDS_REASON,
    )


def of_readings(rounds: Mapping[str, int], share: float) -> list[Claim]:
    """The paper's rounds and its share of FedAvg's time, against both readings."""
    claims = [paper_s_rounds("FedAvg", "sync", rounds["sync"])]
    for name, algorithm in (("reading 1", "race"), ("reading 2", "keep-on")):
        more = rounds["race"] / rounds["sync"]
        claims += [
            paper_s_rounds(name, algorithm, rounds["race"]),
            paper_s_ratio(name, algorithm, share),
            costs_no_more(name, algorithm, "rounds_to_85", "rounds", more),
            costs_no_more(name, algorithm, "time_to_85", "time", share),
        ]
    return claims


def of_workers_that_sleep() -> list[Claim]:
    """Against a FedAvg that is told who is awake."""
    return [
        claim(
            "Diurnal, reading 2 against a FedAvg that picks who is awake",
            "diurnal",
            "keep-on",
            base="sync-awake",
            at_most=1.0,
            reason=ASLEEP,
        ),
        claim(
            "Diurnal, AFA-CS against a FedAvg that picks who is awake",
            "diurnal",
            "keep-on-cs",
            base="sync-awake",
            at_most=0.5,
        ),
    ]


def claim(text: str, workers: str, algorithm: str, base: str = "sync", **bounds) -> Claim:
    return Claim(
        text=f"{text}: its time over that of FedAvg",
        of={"workers": workers, "algorithm": (base, algorithm)},
        value=ratio,
        **bounds,
    )
