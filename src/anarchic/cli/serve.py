"""``anarchic serve``: the live server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anarchic.cli.help import examples
from anarchic.cli.records import Given, Option, chosen, takes
from anarchic.cli.values import parse_options
from anarchic.core import registry
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
    "anarchic token add ann --store run.db > ann.token",
    "anarchic serve --init model.safetensors --store run.db",
    "anarchic serve --store run.db  # continue the run",
)
_RUN, _NET, _LIMITS = "Run", "Network and security", "Limits"
_FIXED = "Fixed when the run begins"

OPTIONS: Mapping[str, Option] = {
    "store": Option(
        _RUN, "Where the run is kept: a file (SQLite), or postgresql://... for several servers.",
        "PATH|URL",
    ),
    "init": Option(
        _RUN, "First model, for a store without a run: `anarchic init` writes one.",
        "FILE", "continue the run in the store",
    ),
    "step_after_s": Option(
        _RUN, "Step with fewer than m updates once the oldest has waited this many seconds.",
        "SECONDS", "wait for m",
    ),
    "history": Option(_RUN, "Number of versions that can be pulled.", "N"),
    "keep_payloads": Option(
        _RUN, "Keep every update, for `anarchic replay`.",
        None, "as the run has done so far; a new run does not",
    ),
    "evaluate": Option(
        _RUN, "Evaluate new versions with this function of a snapshot, in a separate process.",
        "MODULE:NAME", "versions are not evaluated",
    ),
    "rule": Option(
        _FIXED, f"How updates become steps: {', '.join(served_names())}, or MODULE:NAME.", "NAME"
    ),
    "m": Option(_FIXED, "Updates per server step (m).", "N"),
    "server_lr": Option(_FIXED, "Server learning rate (eta)."),
    "server_opt": Option(
        _FIXED, f"How a mean becomes a step: {', '.join(registry.names('server_steps'))}.", "NAME"
    ),
    "server_options": Option(
        _FIXED, "A setting of the server step, such as epsilon=1e-5 of adam; may be repeated.",
        "NAME=VALUE", "the step's own", "--server-option",
    ),
    "rule_options": Option(
        _FIXED, "Another setting of the rule, such as power=1 of fedbuff; may be repeated.",
        "NAME=VALUE", "the rule's own", "--rule-option",
    ),
    "staleness_power": Option(
        _FIXED, "Weigh each update by (1 + tau) ** -P, where tau is its staleness.",
        "P", "equal weights",
    ),
    "clip": Option(
        _FIXED, "Shorten updates whose eta_L * ||G|| (fedbuff: K times that) is larger.",
        "C", "no bound",
    ),
    "expire_after": Option(
        _FIXED, "afa-cs: forget a worker that sent nothing for N versions.",
        "N", "none is forgotten",
    ),
    "cap": Option(
        _FIXED, "afa-cs: remember at most N workers; a new one replaces the one that sent nothing "
        "for the longest time. Needed with --open-enrolment.",
        "N", "no limit",
    ),
    "local_rule": Option(
        _FIXED, "Local rule that workers may run besides those that share nothing. scaffold shares "
        "its control, which then travels beside the model. Needs --workers.",
        "NAME",
    ),
    "workers": Option(_FIXED, "scaffold: number of workers (M).", "N", "not needed"),
    "host": Option(
        _NET, "Address to listen on; one that others can reach needs TLS, or --insecure.", "HOST"
    ),
    "port": Option(_NET, "Port to listen on.", "PORT"),
    "open_enrolment": Option(
        _NET, "Accept updates without tokens; each worker chooses its name."
    ),
    "public_model": Option(_NET, "Anybody may pull the model, without a token."),
    "tls_cert": Option(
        _NET, "The server's certificate (PEM, with its chain); needs --tls-key.",
        "FILE", "plain HTTP",
    ),
    "tls_key": Option(_NET, "Private key of the certificate (PEM).", "FILE", "plain HTTP"),
    "client_ca": Option(
        _NET, "Workers must show a certificate that this authority signed (PEM).",
        "FILE", "no certificate is asked for",
    ),
    "insecure": Option(_NET, "Listen on a public address without TLS all the same."),
    "per_worker": Option(
        _LIMITS, "Updates of one worker that may wait for a step.",
        "N", "half of m rounded up, or m while no other worker reports",
    ),
    "max_staleness": Option(
        _LIMITS, "Refuse updates whose base version is more than N versions old (tau).", "N"
    ),
    "max_norm": Option(
        _LIMITS, "Refuse updates with a larger eta_L * ||G|| (fedbuff: K times that).",
        None, "no limit",
    ),
    "updates_per_minute": Option(_LIMITS, "Updates that one worker may send per minute."),
    "least_rate": Option(
        _LIMITS, "Close connections that send or read fewer bytes per second.", "BYTES"
    ),
}  # fmt: skip


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
        rules=_rules(given),
        settings=ServerSettings(
            limits=Limits(**chosen(Limits, given)), **chosen(ServerSettings, given)
        ),
        address=Address(**chosen(Address, given)),
    )


def _rules(given: Given) -> dict[str, Any]:
    """The settings of the rule that were given, of the types that rule and step declare."""
    rules = chosen(RuleSettings, given)
    choices = (
        ("server_options", "--server-option", "server_steps", "server_opt"),
        ("rule_options", "--rule-option", "rules", "rule"),
    )
    for name, flag, kind, chooser in choices:
        if name in rules:
            part = registry.find(kind, given.get(chooser, getattr(RuleSettings, chooser)))
            rules[name] = parse_options(flag, rules[name], part)
    return rules
