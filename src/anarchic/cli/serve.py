"""``anarchic serve``: the live server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anarchic.cli.checked import report
from anarchic.cli.options import Given, chosen, examples, table, takes
from anarchic.cli.sources import Keys, settled
from anarchic.core import registry
from anarchic.core.findings import Finding
from anarchic.core.guard import FACTOR
from anarchic.errors import ConfigError
from anarchic.server.settings import (
    Address,
    Limits,
    RuleSettings,
    RunSettings,
    ServerSettings,
    given_rules,
    served_names,
)

EPILOG = examples(
    "anarchic init --model logistic --out model.safetensors",
    "anarchic token add ann --store run.db --out ann.token",
    "anarchic serve --init model.safetensors --store run.db",
    "anarchic serve --store run.db  # continue the run",
    "anarchic serve --store run.db --check  # before you leave it alone",
    "anarchic serve --config server.toml  # `anarchic config example serve` writes one",
)
OPTIONS = table(f"""
Settings and check
  config FILE: Read settings from this TOML file. Flags count before ANARCHIC_ variables (such as
    ANARCHIC_PORT), these before the file. (default: ANARCHIC_CONFIG, otherwise none)
  check: Do not serve. Look whether a server would start with these settings and could go on, print
    one line per check, and exit with 0 or 1. Nothing is written.
  json: As --check, but print JSON.
Run
  store PATH|URL: Where the run is kept: a file (SQLite), or postgresql://... for several servers.
    A directory holds several runs, each in a file of its own: `anarchic run create` begins one.
  runs: Serve every run in the database, one in each schema, at /v1/runs/NAME/. A directory is
    always served like that.
  init FILE: First model, for a store without a run: `anarchic init` writes one. With a run in the
    store it must be the model that the run began with. (default: continue the run in the store)
  step_after_s SECONDS: Step with fewer than m updates once the oldest has waited this many seconds.
    (default: wait for m)
  history N: Newest versions that are all kept; of older ones every 2nd, 4th, 8th and so on.
  history_bytes BYTES: Bytes that these versions may take; the newest are kept whatever they take.
  keep_every N: Keep every Nth version for ever. (default: none)
  keep_best METRIC: Keep the version with the best evaluation for ever: accuracy and the like up,
    loss and the like down; score:min or score:max says which. Needs --evaluate. (default: none)
  target METRIC=VALUE: End the run once an evaluation has reached this, such as accuracy=0.95. By
    then there may be newer versions.
    (default: it goes on)
  max_versions N: End the run exactly with this version. (default: it goes on)
  compact_after TIME: Delete rows of the trace that are older, such as 90d or 12h, and thin old
    evaluations, so that months fit. Not with kept payloads. (default: all are kept)
  keep_payloads: Keep every update, for `anarchic replay`.
    (default: as the run has done so far; a new run does not)
  evaluate MODULE:NAME: Evaluate new versions with this function, in a separate process. It is given
    the snapshot, and a torch module if it has a parameter for one.
    (default: versions are not evaluated)
  model MODULE:NAME: The module, its class or a function that makes it, for --evaluate.
    (default: that of `anarchic init --from`)
  callback NAMES: Tell these callbacks of new versions and evaluations, in a separate process:
    {", ".join(registry.names("callbacks"))}, or MODULE:NAME; separated by commas. (default: none)
Log
  log_level NAME: The least important events to log: debug (one line per update), info (one line per
    version), warning or error.
  log_format NAME: json, one object per line, or text.
Fixed when the run begins
  rule NAME: How updates become steps: {", ".join(served_names())}, or MODULE:NAME.
  m N: Updates per server step (m). (default: 5, or the rule's own)
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
  expire_after N: Rules with something of each worker, as afa-cs: forget a worker that sent nothing
    for N versions. malenia and ringleader wait for no worker for longer. (default: none is
    forgotten)
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
  join: Serve the page /join, on which anybody with a browser trains digits and takes part; of one
    of several runs at /v1/runs/NAME/join. They need a token, unless there is --open-enrolment.
  tls_cert FILE: The server's certificate (PEM, with its chain); needs --tls-key.
    (default: plain HTTP)
  tls_key FILE: Private key of the certificate (PEM). (default: plain HTTP)
  client_ca FILE: Workers must show a certificate that this authority signed (PEM).
    (default: no certificate is asked for)
  bind_names: With --client-ca: the certificate must be for the worker whose token comes with it.
    With --trusted-proxy: the certificate that the proxy verified, named in X-Client-Subject.
  insecure: Listen on a public address without TLS all the same.
  trusted_proxy ADDRESSES: Proxies, such as 127.0.0.1 or 10.1.0.0/16, separated by commas. Their
    X-Forwarded-For says whose request it is, in the log and for limits per address.
    (default: none; the header is ignored)
Operators
  admin_port PORT: Port for operators: /metrics, /readyz, /healthz, /v1/status and /v1/workers,
    without client certificates. (default: they are on --port)
  admin_host HOST: Address for --admin-port; one that others can reach needs TLS, or --insecure,
    and operators need tokens there.
  admin_tls: Use the server's certificate on --admin-port.
    (default: if others can reach --admin-host)
  admin_tokens: Operators need tokens on --admin-port even if others cannot reach it.
  public_metrics: Show /metrics and the whole /v1/status on --port, to anybody.
    (default: unless there is --admin-port; then operators' tokens are needed there)
Limits
  per_worker N: Updates of one worker that may wait for a step.
    (default: half of m rounded up, or m while no other worker reports)
  max_staleness N: Refuse updates whose base version is more than N versions old (tau).
  max_norm: Refuse updates with a larger eta_L * ||G|| (fedbuff: K times that). (default: no limit)
  updates_per_minute: Updates that one worker may send per minute.
  least_rate BYTES: Close connections that send or read fewer bytes per second.
""")


RECORDS = (RunSettings, RuleSettings, ServerSettings, Limits, Address)
KEYS = Keys("serve", OPTIONS, RECORDS)


@takes(OPTIONS, *RECORDS, elsewhere=True)
def serve(
    given: Given, config: Path | None = None, check: bool = False, json: bool = False
) -> None:
    """Collect updates from workers who report when they like, and step after every m of them.

    Started again on the same store, it continues the run.
    What was fixed when the run began need not be given again.
    Log lines go to stderr: one per version, and one for whatever goes wrong.
    """
    given = settled(KEYS, given, config)
    if check or json:
        report(_findings(given), as_json=json)
    from anarchic.server import run

    run(**_settings(given), theory=_theory)


def _theory(*given: Any) -> Mapping[str, Any]:
    """The theorems for the live page, loaded when somebody looks at it."""
    from anarchic.theory.panel import panel

    return panel(*given)


def _settings(given: Given) -> dict[str, Any]:
    """The arguments of ``anarchic.server.run``."""
    return {
        "run": RunSettings(**chosen(RunSettings, given)),
        "rules": given_rules(chosen(RuleSettings, given)),
        "settings": ServerSettings(
            limits=Limits(**chosen(Limits, given)), **chosen(ServerSettings, given)
        ),
        "address": Address(**chosen(Address, given)),
    }


def _findings(given: Given) -> Iterator[Finding]:
    from anarchic.server.check import check

    try:
        settings = _settings(given)
    except ConfigError as error:
        yield Finding("settings", "failed", str(error))
        return
    yield Finding("settings", "ok", f"Given: {', '.join(given)}.")
    yield from check(**settings)
