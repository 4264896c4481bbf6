"""A PyTorch module in several processes: DDP is one worker, a model that is split is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import anarchic
from anarchic import wire
from anarchic.errors import ConfigError
from anarchic.worker import Worker
from tests.bridges.small_net import net
from tests.bridges.still import StillWorker
from tests.chaos.servers import ServerProcess
from tests.waiting import until

ROOT = Path(__file__).parents[2]
visit = anarchic.torch.visit

PROCESSES = """
import sys, torch, numpy as np
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
import anarchic
rank, file, url = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
torch.manual_seed(rank)
inner = nn.Linear(2, 1)
model = DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
worker = anarchic.Worker(url, name="ann") if rank == 0 else None
for _ in range(2):
    with anarchic.torch.visit(worker, model) as visit:
        assert inner.weight.tolist() == [[1.0, 1.0]] or visit.version > 0
        optimizer.zero_grad()
        (model(torch.ones(1, 2)) * (rank + 1)).sum().backward()
        optimizer.step()
    assert (visit.answer is not None) == (rank == 0), visit.answer
print(visit.steps, inner.weight.tolist(), flush=True)
distributed.barrier()  # rank 1 must not end while rank 0 waits for the server
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_of_ddp_are_one_worker(tmp_path: Path):
    layout = anarchic.Layout.of({"weight": ((1, 2), "F32"), "bias": ((1,), "F32")})
    init = tmp_path / "model.safetensors"
    wire.save_model(init, layout, np.ones(3, np.float32))
    options = ("--open-enrolment", "--m", "2")
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *options) as server:
        url = f"http://127.0.0.1:{server.port}"
        words = [str(tmp_path / "meeting"), url]
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESSES, str(rank), *words],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        ended = [each.communicate(timeout=120) for each in running]
        assert all(each.returncode == 0 for each in running), ended
        with Worker(url) as watcher:
            until(lambda: watcher.pull().version == 1)
            moved = watcher.pull().params
    assert ended[0][0] == ended[1][0]  # both processes have the same model
    np.testing.assert_allclose(moved, 1 - 0.15, rtol=1e-5)  # the mean gradient is 1.5, once each


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of torch.distributed
def test_a_model_that_is_split_over_processes_is_refused():
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    worker = StillWorker.of(net())
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ConfigError, match=r"0.weight is split over processes \(FSDP\)"):
            visit(worker, fully_shard(net())).__enter__()
    finally:
        distributed.destroy_process_group()
