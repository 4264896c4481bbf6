"""``simulate`` with the settings of W1 for so long that it takes seconds, evaluations included.

    python -m benchmarks.long_run [ROUNDS]

Prints local steps per second of wall time and of CPU time. As for the contestants of
``benchmarks.training``, importing, loading and getting ready are not timed; evaluations are, which
those do without.
"""

from __future__ import annotations

import sys
import time

from anarchic.sim.settings import Settings, build
from anarchic.sim.simulate import simulate

ROUNDS = 2_500  # about 2.5 s on two cores of an AMD EPYC


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    settings = Settings(data="mnist", labels_per_worker=2, server_lr=5.0, rounds=rounds)
    experiment = build(settings)
    simulate(build(Settings(data="mnist", labels_per_worker=2, rounds=3)))  # what is loaded late
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run = simulate(experiment)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    steps = run.summary["local_steps"]
    print(f"{steps / wall_s:.0f} {steps / cpu_s:.0f} {wall_s:.2f} {len(run.metrics)}")


if __name__ == "__main__":
    main()
