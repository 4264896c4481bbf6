"""The example that opens the README."""

from dataclasses import replace

import anarchic

settings = anarchic.Settings(
    data="digits",  # inside the package, no download
    workers=10,
    labels_per_worker=2,  # every worker knows two of the ten digits
    m=5,  # the server steps at every fifth update, whoever sent it
    max_staleness=4,  # from one of the last five versions of the model
    dynamic_steps=True,  # after 1 to 10 local steps
    batch=16,
)
for rule in ("afa-cd", "afa-cs", "fedbuff"):
    run = anarchic.simulate(replace(settings, rule=rule))
    print(f"{rule:8} {run.accuracy:.3f}")
