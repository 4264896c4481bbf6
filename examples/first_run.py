"""The example that opens the README."""

from dataclasses import replace

import anarchic

settings = anarchic.Settings(
    data="digits",  # inside the package, no download
    workers=10,
    labels_per_worker=2,  # every worker holds two of the ten digits
    m=5,  # updates per server step, from any workers
    max_staleness=4,  # an update starts from one of the last five versions
    dynamic_steps=True,  # 1 to 10 local steps per visit
    batch=16,
)
for rule in ("afa-cd", "afa-cs", "fedbuff"):
    run = anarchic.simulate(replace(settings, rule=rule))
    print(f"{rule:8} {run.accuracy:.3f}")
