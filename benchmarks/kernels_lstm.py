"""The LSTM's gradients over lanes on a GPU: agreement first, then the time of each part.

    python -m benchmarks.kernels_lstm    # with PYTHONPATH=src on a GPU host

Prints the best plan of each kernel: ``FORWARD`` and ``BACKWARD`` of anarchic.kernels.lstm_cuda.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from anarchic.kernels import lstm_lanes
from anarchic.kernels.lstm_lanes import Sizes
from anarchic.models.lstm import Lstm

BATCH, LENGTH = 10, 80
LANES = (72, 288, 864)
PAPER = Sizes(classes=80, embedding=8, hidden=100, layers=2)
HOW = {"shapes": PAPER.shapes, "precision": "bf16"}
LIMIT = 0.02  # of the relative error of a gradient in half precision
TARGETS_MS = {72: 2.0, 864: 8.0}

Given = tuple[Tensor, Tensor, Tensor]


def main() -> int:
    if not torch.cuda.is_available():
        print("no GPU here")
        return 0
    from anarchic.kernels import lstm_cuda

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    plans = lstm_cuda.FORWARD, lstm_cuda.BACKWARD
    lstm_cuda.FORWARD, lstm_cuda.BACKWARD = (replace(plan, approximate=False) for plan in plans)
    good = agreement(lstm_cuda)
    lstm_cuda.FORWARD, lstm_cuda.BACKWARD = plans
    good &= agreement(lstm_cuda)
    choose_plans(lstm_cuda, lanes_of(288))
    good &= agreement(lstm_cuda)
    for lanes in LANES:
        good &= parts(lstm_cuda, lanes)
    others(lanes_of(72))
    return 0 if good else 1


def lanes_of(lanes: int, *, spread: float = 1.0) -> Given:
    """Fresh models with different noise, random text: params, tokens, labels."""
    generator = torch.Generator().manual_seed(lanes)
    model = Lstm(PAPER.classes)
    held = dict(model.named_parameters())
    start = torch.cat([held[name].detach().flatten() for name in PAPER.shapes])
    params = spread * start + 0.02 * torch.randn(lanes, len(start), generator=generator)
    tokens = torch.randint(0, PAPER.classes, (lanes, BATCH, LENGTH), generator=generator)
    y = torch.randint(0, PAPER.classes, (lanes, BATCH), generator=generator)
    return params.cuda(), tokens.to(torch.uint8).cuda(), y.cuda()


def agreement(lstm_cuda) -> bool:  # type: ignore[no-untyped-def]
    """Against autograd in float32, whole and for the worst tensor; repeats must be equal."""
    torch.backends.cuda.matmul.allow_tf32 = False
    good = True
    for spread in (1.0, 3.0):  # at the start, and as after training
        given = lanes_of(6, spread=spread)
        expected = by_autograd(given)
        exact = lstm_lanes.lane_gradients(*given, shapes=PAPER.shapes)
        found = lstm_cuda.lane_gradients(*given, **HOW)
        again = lstm_cuda.lane_gradients(*given, **HOW)
        errors = {
            name: away(part, PAPER.split(expected)[name])
            for name, part in PAPER.split(found).items()
        }
        worst = max(errors, key=lambda name: errors[name])
        same = torch.equal(found, again)
        good &= same and away(found, expected) < LIMIT and away(exact, expected) < 1e-4
        print(
            f"{'approximate' if lstm_cuda.FORWARD.approximate else 'exact'} tanh, "
            f"weights x {spread:g}: lanes {away(exact, expected):.1e}, kernels "
            f"{away(found, expected):.1e}, worst {worst} {errors[worst]:.1e}, "
            f"repeats {'equal' if same else 'DIFFER'}"
        )
    torch.backends.cuda.matmul.allow_tf32 = True
    return good


def away(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def by_autograd(given: Given) -> Tensor:
    params, tokens, y = given
    model, rows = Lstm(PAPER.classes).cuda(), []
    held = dict(model.named_parameters())
    for lane in range(len(params)):
        for name, tensor in PAPER.split(params).items():
            held[name].data.copy_(tensor[lane])
        loss = nn.functional.cross_entropy(model(tokens[lane].long()), y[lane])
        found = torch.autograd.grad(loss, [held[name] for name in PAPER.shapes])
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    return torch.stack(rows)


def choose_plans(lstm_cuda, given: Given) -> None:  # type: ignore[no-untyped-def]
    """Times every plan of each kernel, prints them, and sets the best."""
    kernels = layer_kernels(lstm_cuda, given)
    for kind in ("FORWARD", "BACKWARD"):
        kernel, times = kernels[kind.lower()], {}
        stages = (2,) if kind == "FORWARD" else (1, 2, 3)
        for hoist, warps, stage in itertools.product((True, False), (4, 8, 16), stages):
            if hoist or stage < 3:  # more than one copy of the weights does not fit
                plan = lstm_cuda.Plan(hoist=hoist, warps=warps, stages=stage)
                times[plan] = attempt(kernel, plan)
        best = min(times, key=times.__getitem__)
        exact = replace(best, approximate=False)
        times[exact] = attempt(kernel, exact)
        for plan, ms in sorted(times.items(), key=lambda pair: pair[1]):
            print(f"{kind:<9}{ms:8.3f} ms  {plan}")
        setattr(lstm_cuda, kind, best)
        print(f"{kind} = {best}")


def attempt(kernel: Callable[[object], object], plan: object) -> float:
    try:
        return milliseconds(lambda: kernel(plan), repeats=5)
    except Exception as error:
        print(f"{plan} does not run: {type(error).__name__} {str(error).splitlines()[:1]}")
        return float("inf")


def layer_kernels(lstm_cuda, given: Given):  # type: ignore[no-untyped-def]
    """Forward and backward of an upper layer for a given plan, padding of weights included."""
    params = given[0]
    lanes, hidden = len(params), PAPER.hidden
    recurrent = PAPER.split(params)["lstm.weight_hh_l1"]
    inputs = torch.randn(lanes, LENGTH, BATCH, 4 * hidden, device="cuda", dtype=torch.bfloat16)
    tape = lstm_cuda.forward(recurrent, inputs, None)
    d_last = 0.01 * torch.randn(lanes, BATCH, hidden, device="cuda")
    d_states = 0.01 * torch.randn_like(tape.states[:, 1:].contiguous())
    return {
        "forward": lambda plan: lstm_cuda.forward(recurrent, inputs, None, plan),
        "backward": lambda plan: lstm_cuda.backward(recurrent, tape, d_last, d_states, plan),
    }


def parts(lstm_cuda, lanes: int) -> bool:  # type: ignore[no-untyped-def]
    """The whole gradient and what it is made of; whether it is as fast as it should be."""
    given = lanes_of(lanes)
    params, tokens, y = given
    weights = PAPER.split(params)
    first = lstm_cuda.first_forward(weights, tokens)
    upper = lstm_cuda.upper_forward(weights, 1, first.states[:, 1:])
    _, d_last = lstm_lanes.dense_gradients(weights, upper.last, y)
    recurrent = weights["lstm.weight_hh_l1"]
    d_gates = lstm_cuda.backward(recurrent, upper, d_last, None)
    flat, before = lstm_lanes.per_lane(d_gates), lstm_lanes.per_lane(upper.states[:, :-1])
    d_states = lstm_cuda.upper_gradients({}, weights, 1, flat, first.states)
    gradients = PAPER.split(torch.zeros_like(params))
    whole = lambda: lstm_cuda.lane_gradients(params, tokens, y, **HOW)  # noqa: E731
    rows: dict[str, Callable[[], object]] = {
        "forward, layer 1": lambda: lstm_cuda.first_forward(weights, tokens),
        "forward, layer 2, with its input": lambda: lstm_cuda.upper_forward(
            weights, 1, first.states[:, 1:]
        ),
        "dense layer": lambda: lstm_lanes.dense_gradients(weights, upper.last, y),
        "backward, layer 2": lambda: lstm_cuda.backward(recurrent, upper, d_last, None),
        "backward, layer 1": lambda: lstm_cuda.backward(recurrent, first, d_last, d_states),
        "recurrent weights, one layer": lambda: lstm_cuda.product(flat.mT, before),
        "input of layer 2": lambda: lstm_cuda.upper_gradients({}, weights, 1, flat, first.states),
        "input of layer 1": lambda: lstm_cuda.first_gradients({}, weights, flat, tokens),
        "padded weights, one kernel": lambda: lstm_cuda._padded(recurrent, torch.bfloat16),
        "joining": lambda: PAPER.join(gradients),
        "whole": whole,
    }
    times = {name: milliseconds(run) for name, run in rows.items()}
    times["whole, as a CUDA graph"] = milliseconds(captured(whole))
    print(f"\n{lanes} lanes x {BATCH} x {LENGTH}")
    for name, ms in times.items():
        print(f"  {name:<36}{ms:8.3f} ms")
    print(f"  peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    return times["whole, as a CUDA graph"] < TARGETS_MS.get(lanes, float("inf"))


def others(given: Given) -> None:
    """What the kernels replace, for 72 lanes."""
    run = lambda: lstm_lanes.lane_gradients(*given, shapes=PAPER.shapes)  # noqa: E731
    print(f"\nplain operators over lanes: {milliseconds(run, repeats=3):.2f} ms", end="")
    print(f", as a CUDA graph {milliseconds(captured(run), repeats=3):.2f} ms")
    eight = milliseconds(cudnn_loop(given, 8), repeats=3)
    print(f"a loop over workers with nn.LSTM: {9 * eight:.2f} ms (nine times that of 8)")


def cudnn_loop(given: Given, workers: int) -> Callable[[], None]:
    _, tokens, y = given
    embedding = nn.Embedding(PAPER.classes, PAPER.embedding).cuda()
    cells = nn.LSTM(PAPER.embedding, PAPER.hidden, PAPER.layers, batch_first=True).cuda()
    dense = nn.Linear(PAPER.hidden, PAPER.classes).cuda()
    leaves = [*embedding.parameters(), *cells.parameters(), *dense.parameters()]
    words = tokens.long()

    def run() -> None:
        for worker in range(workers):
            states, _ = cells(embedding(words[worker]))
            loss = nn.functional.cross_entropy(dense(states[:, -1]), y[worker])
            torch.autograd.grad(loss, leaves)

    return run


def captured(run: Callable[[], object]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def milliseconds(run: Callable[[], object], *, repeats: int = 10) -> float:
    """Median of single runs, after two to warm up."""
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
