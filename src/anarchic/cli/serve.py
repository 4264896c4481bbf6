"""``anarchic serve``: the live server."""

from __future__ import annotations

from anarchic.cli.options import Given, chosen, examples, table, takes
from anarchic.core import registry
from anarchic.core.guard import FACTOR
from anarchic.server.settings import (
    Address,
    Limits,
    RuleSettings,
    RunSettings,
    ServerSettings,
    served_names,
)

EPILOG = examples(
    "anarchic init --model logistic --out model.safetensors",
    "anarchic token add ann --store run.db --out ann.token",
    "anarchic serve --init model.safetensors --store run.db",
    "anarchic serve --store run.db  # continue the run",
)
OPTIONS = table(f"""
Run
  store PATH|URL: Where the run is kept: a file (SQLite), or postgresql://... for several servers.
  init FILE: First model, for a store without a run: `anarchic init` writes one. With a run in the
    store it must be the model that the run began with. (default: continue the run in the store)
  step_after_s SECONDS: Step with fewer than m updates once the oldest has waited this many seconds.
    (default: wait for m)
  history N: Number of versions that can be pulled.
  keep_payloads: Keep every update, for `anarchic replay`.
    (default: as the run has done so far; a new run does not)
  evaluate MODULE:NAME: Evaluate new versions with this function, in a separate process. It is given
    the snapshot, and a torch module if it has a parameter for one.
    (default: versions are not evaluated)
  model MODULE:NAME: The module, its class or a function that makes it, for --evaluate.
    (default: that of `anarchic init --from`)
  callback NAMES: Tell these callbacks of new versions and evaluations, in a separate process:
    {", ".join(registry.names("callbacks"))}, or MODULE:NAME; separated by commas. (default: none)
Fixed when the run begins
  rule NAME: How updates become steps: {", ".join(served_names())}, or MODULE:NAME.
  m N: Updates per server step (m).
  server_lr: Server learning rate (eta).
  server_opt NAME: How a mean becomes a step: {", ".join(registry.names("server_steps"))},
    or MODULE:NAME.
  server_options: A setting of the server step, such as epsilon=1e-5 of adam; may be repeated.
    (default: the step's own)
  rule_options: Another setting of the rule, such as power=1 of fedbuff; may be repeated.
    (default: the rule's own)
  staleness_power P: Weigh each update by (1 + tau) ** -P, where tau is its staleness.
    (default: equal weights)
  clip C: Shorten updates whose eta_L * ||G|| (fedbuff: K times that) is larger.
    (default: no bound)
  guard F: Updates longer than F times the median length of the workers' updates hardly count;
    0 is no guard. (default: {FACTOR:g})
  expire_after N: afa-cs: forget a worker that sent nothing for N versions.
    (default: none is forgotten)
  cap N: afa-cs: remember at most N workers; a new one replaces the one that sent nothing for the
    longest time. Needed with --open-enrolment. (default: no limit)
  local_rule NAME: Local rule that workers may run besides those that share nothing. scaffold shares
    its control, which then travels beside the model. Needs --workers.
  workers N: scaffold: number of workers (M). (default: not needed)
Network and security
  host HOST: Address to listen on; one that others can reach needs TLS, or --insecure.
  port PORT: Port to listen on.
  host_name NAMES: Names under which workers reach this server, such as a proxy's, separated by
    commas. Needed where anybody may pull, without TLS: requests under other names are refused,
    since web pages could send them. (default: any address, localhost, and names without a dot)
  open_enrolment: Accept updates without tokens; each worker chooses its name.
  public_model: Anybody may pull the model, without a token.
  tls_cert FILE: The server's certificate (PEM, with its chain); needs --tls-key.
    (default: plain HTTP)
  tls_key FILE: Private key of the certificate (PEM). (default: plain HTTP)
  client_ca FILE: Workers must show a certificate that this authority signed (PEM).
    (default: no certificate is asked for)
  insecure: Listen on a public address without TLS all the same.
Limits
  per_worker N: Updates of one worker that may wait for a step.
    (default: half of m rounded up, or m while no other worker reports)
  max_staleness N: Refuse updates whose base version is more than N versions old (tau).
  max_norm: Refuse updates with a larger eta_L * ||G|| (fedbuff: K times that). (default: no limit)
  updates_per_minute: Updates that one worker may send per minute.
  least_rate BYTES: Close connections that send or read fewer bytes per second.
""")


@takes(OPTIONS, RunSettings, RuleSettings, ServerSettings, Limits, Address)
def serve(given: Given) -> None:
    """Collect updates from workers who report when they like, and step after every m of them.

    Started again on the same store, it continues the run.
    What was fixed when the run began need not be given again.
    Log lines are JSON, on stderr.
    """
    from anarchic.server import run

    run(
        RunSettings(**chosen(RunSettings, given)),
        rules=chosen(RuleSettings, given),
        settings=ServerSettings(
            limits=Limits(**chosen(Limits, given)), **chosen(ServerSettings, given)
        ),
        address=Address(**chosen(Address, given)),
    )
