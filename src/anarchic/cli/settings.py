"""The options of ``Settings`` and ``Compute``: one per field, shared by all commands that take it.

Where an option was not given, the defaults hold, or the settings of a run that is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anarchic.cli import options
from anarchic.cli.options import Given, chosen, table
from anarchic.core import registry
from anarchic.errors import ConfigError
from anarchic.participation.work import TIME_DISTRIBUTIONS
from anarchic.sim.settings import WORKERS, Settings
from anarchic.train.compute import BACKENDS, PRECISIONS, Compute
from anarchic.train.task import BUFFER_POLICIES


def _known(kind: str) -> str:
    return ", ".join((*registry.names(kind), "or MODULE:NAME"))


OPTIONS = table(f"""
Data and model
  data NAME: The data set: {_known("datasets")}.
  data_dir DIR: Directory to search first for data files. (default: ANARCHIC_DATA, then the cache)
  data_options: A setting of the data set, such as roles=50 of shakespeare; may be repeated.
    (default: the data set's own)
  val_share: Share of the training samples that is set aside for validation (val_accuracy,
    val_loss), always the same samples. (default: only validation data of the data set's own)
  model NAME: The model: {_known("models")}.
  workers: Number of workers (M). (default: {WORKERS}, or one per role)
  labels_per_worker: Each worker holds samples of N classes (p). (default: all classes, at random)
  dirichlet ALPHA: Split each class in Dirichlet(alpha) proportions; small alpha is uneven.
    (default: all classes, at random)
  augment: Crop and mirror training images. (default: as is usual for the data set)
  buffers NAME: What becomes of running statistics, as BatchNorm's: the server averages them, each
    worker keeps its own, or the model is refused: {", ".join(BUFFER_POLICIES)}.
Server
  rule NAME: How updates become steps: {_known("rules")}.
  m: Updates per server step (m). (default: 5, or the rule's own)
  server_lr: Server learning rate (eta). AFA steps along the mean of eta_L * G, FedAvg K times as
    far. (default: 1.0, for rules that have it)
  server_opt NAME: How a mean becomes a step: {_known("server_steps")}. (default: sgd)
  server_options: A setting of the server step, such as epsilon=1e-5 of adam; may be repeated.
    (default: the step's own)
  rule_options: Another setting of the rule, such as power=0.5 of fedbuff; may be repeated.
    (default: the rule's own)
  staleness_power P: Weigh each update by (1 + tau) ** -P, where tau is its staleness.
    (default: equal weights)
  clip C: Bound eta_L * ||G|| of each update (times K where the rule counts it).
    (default: no bound)
  guard F: Updates longer than F times the median length of the workers' updates hardly count.
    (default: no guard)
Workers
  local_rule NAME: What a local step does: {_known("local_rules")}; clipnorm and decay wrap
    another, as in clipnorm+decay+adam.
  mu: Pull of prox towards the pulled model (mu). (default: 0.1, for prox)
  local_options: Another setting of the local rule, such as beta=0.9 of momentum; may be repeated.
    (default: the rule's own)
  local_steps: Local steps per visit (K).
  epochs: Passes through a worker's samples per visit, instead of --local-steps.
    (default: local steps)
  dynamic_steps: Draw K for each visit uniformly from 1 .. 2*local-steps.
  local_lr: Local learning rate (eta_L).
  batch: Samples per local step.
Participation
  participation NAME: Who reports when: the paper's sampler, which has no clock, or continuous
    time, where fedavg runs in synchronous rounds that wait for the slowest worker:
    {_known("participation")}.
  max_staleness: Sampler: updates start at most N versions back (tau); 0 is never late.
  replace: Sampler: a worker may report more than once per round.
  arrival_probs P1,P2,...: Sampler: probability of each worker to report. (default: equal)
Participation in continuous time
  idle_s: Mean idle time before a visit, in virtual seconds; of diurnal workers while they are
    awake, 8 hours per day.
  step_s: Mean time of one local step; slow workers take longer.
  time_distribution NAME: Distribution of the time that a visit takes:
    {", ".join(TIME_DISTRIBUTIONS)}.
  slow_share: Probability that a worker is slow.
  slow_factor: Slow workers take this many times longer.
  lost_share: Probability that a worker drops out during a visit.
  timeout_s: Seconds after which synchronous fedavg replaces a silent worker.
    (default: never; needed with --lost-share)
  availability FILE: When workers are available: a CSV file worker,from_s,until_s, or
    FedScale's trace of devices as JSON. (default: always)
  speeds FILE: How much longer the work of each worker takes: a CSV file worker,factor, or
    FedScale's capacities of devices as JSON. (default: by --slow-share)
  join SHARE@S: This share of the workers joins only after S seconds, as in 0.3@600.
    (default: all are there)
  leave SHARE@S: This share of the workers leaves for good after S seconds. (default: nobody leaves)
Participation that depends on the server
  max_concurrent N: At most N workers work at once; others wait for their turn. For a server that
    picks, the jobs that it keeps under way. (default: no limit; m for a server that picks)
  refuse_staleness N: The server refuses updates that are more than N versions late.
    (default: it takes all)
  retries N: After a refusal a worker pulls the newest version and works again at once, at most N
    times in a row; 0 drops its work, a large N is Ringmaster.
  step_every_s S: The server steps every S seconds with the updates that have come, and does nothing
    if none has; the m-th update makes a step too. (default: no timer)
  server_picks NAME: The server picks who works next: random (anyone, also one at work), free
    (one that does not work), cohort (all begin together and wait for the m fastest).
    (default: workers come by themselves)
  skip_unchanged: Workers skip a visit if they have sent an update from the newest version before.
Run
  rounds: Number of server steps (T). With --until-s, the run may end earlier.
  until_s: Continuous time: end the run at this virtual time, in seconds; then 150 rounds are no
    bound, another number is. (default: after --rounds)
  seed: Random seed.
  dtype NAME: Type of parameters: float32, float64.
  eval_every: Rounds between evaluations. (default: about 50 in all)
  eval_samples N: Evaluate on N test samples drawn by the seed; at the end on all of them.
    (default: always on all)
  last10: Evaluate each of the last ten rounds; the mean of their accuracies is the paper's measure.
  metrics: A function of predictions and targets, as f1=my_module:f1; may be repeated.
    (default: accuracy and loss only)
  per_worker: Every worker sets a fifth of its samples aside, and the model is evaluated on them for
    each worker.
  target_accuracy: End the run when this share of test samples is classified correctly, or of
    validation samples if there are any. (default: run all rounds)
Compute
  device NAME: Where training is computed: cpu, cuda.
  precision NAME: How cuda multiplies matrices: {", ".join(PRECISIONS)}.
  threads: Threads that train and fold updates.
    (default: torch's choice; 1 for logistic, but up to 4 in compiled loops and folds of large
    models)
  backend NAME: Compute one visit at a time, many together, or many on a Ray cluster:
    {", ".join(BACKENDS)}.
  graphs: Let cuda replay local steps from a recording. (default: on, with cuda)
  compiled: Use loops compiled by Numba, if there are any. (default: in a long run)
  lookahead N: Compute up to N updates ahead of the next step.
""")


def takes(names: str, own: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings, and of its own parameters as in ``own``."""
    listed = {name: OPTIONS[name] for name in names.split()}
    return options.takes({**listed, **table(own)}, Settings, Compute)


def settings_from(given: Given, base: Settings | None = None) -> Settings:
    """The settings that were given; ``base``, or else the defaults, for the rest."""
    values = chosen(Settings, given, base)
    if "arrival_probs" in given:
        values["arrival_probs"] = parse_probabilities(given["arrival_probs"])
    if "metrics" in given:
        values["metrics"] = parse_metrics(given["metrics"])
    return replace(base or Settings(), **values)


def compute_from(given: Given, base: Compute | None = None) -> Compute:
    """How to compute, as it was given; ``base``, or else the defaults, for the rest."""
    return replace(base or Compute(), **chosen(Compute, given))


def parse_metrics(pairs: Sequence[str]) -> dict[str, str]:
    """``["f1=my_module:f1"]`` as a mapping."""
    found = dict(pair.partition("=")[::2] for pair in pairs)
    for name, spec in found.items():
        if not name or not spec:
            raise ConfigError(
                f"--metric takes NAME=MODULE:FUNCTION, such as f1=my_module:f1; got {name!r}."
            )
    return found


def parse_probabilities(text: str) -> tuple[float, ...]:
    """``"0.2,0.8"`` as numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--arrival-probs takes numbers separated by commas, such as 0.2,0.3,0.5; got {text!r}."
        ) from error
