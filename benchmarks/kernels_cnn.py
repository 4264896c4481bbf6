"""The CNN's Triton kernels on a GPU: are they right, how long does each take, with which tiles.

    python -m benchmarks.kernels_cnn    # with PYTHONPATH=src on a GPU host
    python -m benchmarks.kernels_cnn --precision tf32 --lanes 5

Gradients are checked against autograd in float32. Then every kernel is timed with some tiles at
80 lanes x batch 500 x 32x32, and the whole step with the best of them at 5, 20 and 80 lanes. The
lines that end each precision belong into ``TILES`` of ``anarchic.kernels.tiles_cuda``. Times are
medians between CUDA events. The same convolutions of one lane by cuDNN, and ``vmap(grad)`` of the
module, stand beside them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import conv2d, cross_entropy

from anarchic.kernels import crops_cuda, length_of
from anarchic.kernels.cnn_cuda import Passes, Sizes, lane_gradients
from anarchic.kernels.conv_cuda import input_gradients
from anarchic.kernels.conv_pack_cuda import Conv, pack_images
from anarchic.kernels.dense_cuda import loss_gradients
from anarchic.kernels.tiles_cuda import TILES, Tile
from anarchic.models.cnn import Cnn
from anarchic.train.torch_data import PAD

LANES, BATCH, SIZES = (5, 20, 80), 500, Sizes(3, 32, 10)
# Autograd on a CPU is off by 2e-2 to 6e-2 if the factors of its products are cut to TF32's bits, by
# 6e-2 to 1e-1 with bfloat16's: some values fall on the other side of a ReLU or a maximum.
LIMITS = {"ieee": 1e-5, "tf32": 6e-2, "bf16": 1e-1}
COMPILERS = 12  # processes that fill Triton's cache before anything is timed

TRIED: dict[str, dict[str, list[Tile]]] = {
    "bf16": {
        "conv1": [Tile(128, 64, 4, 2), Tile(128, 64, 8, 3), Tile(128, 16, 4, 4), Tile(64, 64, 4)],
        "conv2": [
            Tile(128, 64, 8, 3),
            Tile(128, 64, 8, 4),
            Tile(64, 64, 4, 4),
            Tile(128, 32, 8, 4),
        ],
        "inputs2": [
            Tile(128, 64, 8, 2),
            Tile(64, 64, 4, 2),
            Tile(128, 64, 8, 1),
            Tile(64, 64, 4, 1),
        ],
        "weights1": [
            Tile(rows, depth, warps, stages, splits=splits)
            for rows, depth, warps, stages in ((64, 256, 8, 2), (64, 64, 4, 3), (32, 256, 8, 3))
            for splits in (8, 16, 32)
        ],
        "weights2": [
            Tile(rows, depth, warps, stages, splits=splits)
            for rows, depth, warps, stages in ((64, 128, 8, 2), (32, 128, 8, 4), (32, 64, 4, 3))
            for splits in (1, 2, 4)
        ],
        "dense": [Tile(128, 64, 8, 3, 128), Tile(128, 64, 4, 4, 64), Tile(64, 64, 4, 4, 128)],
    },
    "tf32": {
        "conv1": [
            *(Tile(rows, 16, 4, stages) for rows in (64, 128) for stages in (2, 3, 4)),
            *(Tile(64, 32, 4, stages) for stages in (1, 2, 3)),
            *(Tile(128, depth, 8, stages) for depth in (16, 32) for stages in (2, 3)),
            *(Tile(256, depth, 8, 2) for depth in (16, 32)),
        ],
        "conv2": [
            *(Tile(64, depth, 4, stages) for depth in (16, 32) for stages in (2, 3, 4)),
            *(Tile(128, depth, 8, stages) for depth in (16, 32) for stages in (2, 3, 4)),
            *(Tile(64, depth, 8, 2) for depth in (32, 64)),
        ],
        "inputs2": [
            *(Tile(rows, 64, 4, stages) for rows in (32, 64) for stages in (1, 2)),
            *(Tile(rows, 64, 8, stages) for rows in (64, 128) for stages in (1, 2)),
        ],
        "weights1": [
            Tile(rows, depth, warps, stages, splits=splits)
            for rows, depth, warps, stages in (
                (32, 64, 4, 3),
                (32, 64, 4, 2),
                (64, 64, 4, 2),
                (32, 256, 8, 2),
                (16, 64, 4, 3),
            )
            for splits in (16, 32, 64)
        ],
        "weights2": [
            Tile(rows, depth, warps, stages, splits=splits)
            for rows, depth, warps, stages in (
                (32, 128, 8, 2),
                (32, 128, 8, 1),
                (16, 128, 8, 3),
                (32, 64, 4, 2),
                (32, 64, 8, 2),
            )
            for splits in (2, 4, 7)
        ],
        "dense": [
            *(Tile(128, 32, 8, stages, 128) for stages in (3, 4)),
            *(Tile(64, 32, 4, stages, 64) for stages in (3, 4, 5)),
            *(Tile(64, 64, 4, stages, 64) for stages in (2, 3)),
            *(Tile(64, 32, 4, stages, 128) for stages in (3, 4)),
            *(Tile(128, 32, 4, stages, 64) for stages in (3, 4)),
            *(Tile(128, 32, 8, stages, 64) for stages in (3, 4)),
            Tile(32, 64, 4, 3, 64),
            Tile(64, 64, 4, 3, 32),
        ],
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description="The CNN's GPU kernels.")
    parser.add_argument("--precision", nargs="+", choices=list(TRIED), default=list(TRIED))
    parser.add_argument("--lanes", type=int, default=max(LANES), help="at which tiles are chosen")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    compile_ahead(asked.precision)
    agreeing = [agrees(precision) for precision in LIMITS]
    for precision in asked.precision:
        choose(precision, asked.lanes)
        step_times(precision)
        pieces(precision, asked.lanes)
    libraries()
    return 0 if all(agreeing) else 1


def compile_ahead(precisions: list[str]) -> None:
    """Compile all that will be timed, side by side: Triton keeps it on disk."""
    start = time.perf_counter()
    jobs = [(p, name, tile) for p in precisions for name in TRIED[p] for tile in TRIED[p][name]]
    jobs += [("ieee", name, tile) for name, tile in TILES["ieee"].items()]
    with ProcessPoolExecutor(COMPILERS, mp_context=get_context("spawn")) as pool:
        for failure in pool.map(compile_one, jobs):
            if failure:
                print(failure, flush=True)
    print(f"compiled {len(jobs)} in {time.perf_counter() - start:.0f} s", flush=True)


def compile_one(job: tuple[str, str, Tile]) -> str:
    precision, name, tile = job
    try:
        Bench(precision, 1).run(name, tile)
        torch.cuda.synchronize()
    except Exception as problem:  # whatever a tile that does not fit may raise
        return f"{precision} {name} {short(tile)}: {first_line(problem)}"
    return ""


class Bench:
    """Inputs of every kernel for a number of lanes, made by the kernels before it."""

    def __init__(self, precision: str, lanes: int, batch: int = BATCH) -> None:
        torch.manual_seed(0)
        self.precision: Any = precision
        one, two = SIZES.conv1, SIZES.conv2
        self.params = 0.05 * torch.randn(lanes, length_of(SIZES.shapes), device="cuda")
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.x = torch.randn(lanes, batch, 3, 32, 32, device="cuda").to(self.dtype)
        self.y = torch.randint(10, (lanes, batch), device="cuda")

        def noise(conv: Conv) -> tuple[Tensor, Tensor]:
            shape = (lanes, batch, conv.pooled, conv.pooled, conv.outputs)
            code = torch.randint(5, shape, device="cuda", dtype=torch.uint8)
            return torch.randn(shape, device="cuda", dtype=self.dtype), code

        self.images = pack_images(self.x, one, self.dtype)
        (self.seen1, self.code1), (self.seen2, self.code2) = noise(one), noise(two)
        self.passes = Passes(SIZES, self.precision, self.params)
        self.spread1, self.spread2 = (
            self.passes.spread("conv1", one),
            self.passes.spread("conv2", two),
        )

    def run(self, name: str, tile: Tile) -> None:
        self.passes.tiles = self.passes.tiles | {name: tile}
        one, two = SIZES.conv1, SIZES.conv2
        if name == "conv1":
            self.passes.convolve(self.images, self.spread1, name, one)
        elif name == "conv2":
            self.passes.convolve(self.seen1, self.spread2, name, two)
        elif name == "inputs2":
            input_gradients(self.seen2, self.code2, self.spread2, two, tile, self.precision)
        elif name == "weights1":
            self.passes.weights(self.images, self.seen1, self.code1, "conv1", one)
        elif name == "weights2":
            self.passes.weights(self.seen1, self.seen2, self.code2, "conv2", two)
        else:
            self.passes.dense_layers(self.seen2.flatten(2), self.y)

    def whole(self) -> None:
        lane_gradients(self.params, self.x, self.y, shapes=SIZES.shapes, precision=self.precision)


def agrees(precision: Any) -> bool:
    """Relative distance from autograd in float32, for two lanes of 64 images."""
    bench = Bench(precision, 2, 64)
    names = list(SIZES.shapes)
    module = Cnn(3, 32, 10).cuda()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    params = torch.stack([flat_params() for _ in range(2)]).cuda()
    want = []
    for row, x, y in zip(params, bench.x.float(), bench.y, strict=True):
        tensors = {
            name: row[SIZES.slices[name]].view(shape).clone().requires_grad_()
            for name, shape in SIZES.shapes.items()
        }
        loss = cross_entropy(functional_call(module, tensors, (x,)), y)
        parts = torch.autograd.grad(loss, [tensors[name] for name in names])
        want.append(torch.cat([part.flatten() for part in parts]))
    try:
        how = {"shapes": SIZES.shapes, "precision": precision}
        got, again = (lane_gradients(params, bench.x, bench.y, **how) for _ in range(2))
    except Exception as problem:  # report it and go on timing what does compile
        print(f"{precision}: {first_line(problem)}", flush=True)
        return False
    target = torch.stack(want)
    worst = {
        name: float((got - target)[:, where].norm() / target[:, where].norm())
        for name, where in SIZES.slices.items()
    }
    away = float((got - target).norm() / target.norm())
    print(
        f"{precision}: gradient off by {away:.1e} (limit {LIMITS[precision]:.0e}), worst "
        f"{max(worst, key=worst.__getitem__)} {max(worst.values()):.1e}, repeats: "
        f"{torch.equal(got, again)}",
        flush=True,
    )
    return away < LIMITS[precision] and torch.equal(got, again)


def flat_params() -> Tensor:
    tensors = dict(Cnn(3, 32, 10).named_parameters())
    return torch.cat([tensors[name].detach().flatten() for name in SIZES.shapes])


def choose(precision: str, lanes: int) -> None:
    """Time every kernel with every tile, and keep the best."""
    bench = Bench(precision, lanes)
    print(f"\n{precision}, {lanes} lanes: us a lane, by rows/depth/warps/stages/columns/splits")
    for name in TRIED[precision]:
        times: dict[Tile, float] = {}
        shown = []
        for tile in TRIED[precision][name]:
            try:
                times[tile] = milliseconds(bench.run, name, tile)
                shown.append(f"{short(tile)} {1e3 * times[tile] / lanes:.1f}")
            except Exception as problem:  # whatever a tile that does not fit may raise
                shown.append(f"{short(tile)} {first_line(problem, 40)}")
        print(f"  {name:<9}" + "   ".join(shown), flush=True)
        if times:
            TILES[precision][name] = min(times, key=times.__getitem__)
    for name, tile in TILES[precision].items():
        print(f'        "{name}": {tile},')


def step_times(precision: str) -> None:
    for lanes in LANES:
        bench = Bench(precision, lanes)
        try:
            whole = milliseconds(bench.whole)
            parts = {n: milliseconds(bench.run, n, tile) for n, tile in TILES[precision].items()}
        except Exception as problem:  # no tile of some kernel fits
            print(f"{precision}, {lanes} lanes: {first_line(problem)}", flush=True)
            continue
        shown = ", ".join(f"{name} {1e3 * ms / lanes:.1f}" for name, ms in parts.items())
        print(
            f"{precision}, {lanes} lanes x {BATCH}: step {whole:.2f} ms, us a lane: "
            f"{1e3 * whole / lanes:.1f}: {shown}",
            flush=True,
        )


def pieces(precision: str, lanes: int) -> None:
    """The small kernels."""
    bench = Bench(precision, lanes)
    data = torch.randn(10_000, 3, 32 + 2 * PAD, 32 + 2 * PAD, device="cuda")
    index = torch.randint(len(data), (lanes * BATCH,), device="cuda")
    crops = torch.randint(2, (lanes * BATCH, 3), device="cuda")
    outputs = torch.randn(lanes, BATCH, 10, device="cuda")
    weights = SIZES.part(bench.params, "dense1.weight").unflatten(1, (512, 64, SIZES.left))
    two = SIZES.conv2
    small: dict[str, Callable[[], object]] = {
        "crops": lambda: crops_cuda.crop_and_flip(data, index, crops, bench.dtype, PAD),
        "pack": lambda: pack_images(bench.x, SIZES.conv1, bench.dtype),
        "spread2": lambda: bench.passes.spread("conv2", two),
        "dense1 weights": lambda: weights.transpose(2, 3).to(
            bench.dtype, memory_format=torch.contiguous_format
        ),
        "loss": lambda: loss_gradients(outputs, bench.y, bench.dtype),
    }
    shown = [f"{name} {1e3 * milliseconds(run) / lanes:.2f}" for name, run in small.items()]
    print(f"\n{precision}, {lanes} lanes, us a lane: {', '.join(shown)}")


def libraries() -> None:
    """What one lane costs where nothing is batched, and what many cost under vmap."""
    torch.backends.cudnn.benchmark = True
    print("\ncuDNN, one lane, bf16, channels last: us")
    for label, channels, size, outputs in (
        ("conv1, 3 channels", 3, 32, 32),
        ("conv1, 8 channels", 8, 32, 32),
        ("conv2", 32, 14, 64),
    ):
        x = torch.randn(BATCH, channels, size, size, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(outputs, channels, 5, 5, device="cuda", dtype=torch.bfloat16)
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
        out = torch.randn_like(conv2d(x, w))
        shown = [f"forward {1e3 * milliseconds(conv2d, x, w):.0f}"]
        for what, mask in (("inputs", [True, False, False]), ("weights", [False, True, False])):
            ms = milliseconds(convolution_backward, out, x, w, mask)
            shown.append(f"{what} {1e3 * ms:.0f}")
        print(f"  {label}: {', '.join(shown)}", flush=True)
    under_vmap()


def under_vmap() -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    module = Cnn(3, 32, 10).cuda()

    def loss(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(module, tensors, (x,)), y)

    for lanes in LANES[:2]:
        bench = Bench("tf32", lanes)
        tensors = {n: p.detach().repeat(lanes, *[1] * p.ndim) for n, p in module.named_parameters()}
        ms = milliseconds(vmap(grad(loss)), tensors, bench.x, bench.y)
        print(f"vmap(grad), tf32, {lanes} lanes: {ms:.1f} ms, {1e3 * ms / lanes:.0f} us a lane")


def convolution_backward(out: Tensor, x: Tensor, w: Tensor, mask: list[bool]) -> object:
    return torch.ops.aten.convolution_backward(
        out, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask
    )


def milliseconds(run: Callable[..., object], *given: Any, repeats: int = 7) -> float:
    """Median time between two events, after warming up."""
    for _ in range(2):
        run(*given)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for before, after in marks:
        before.record()
        run(*given)
        after.record()
    torch.cuda.synchronize()
    return median(before.elapsed_time(after) for before, after in marks)


def short(tile: Tile) -> str:
    return f"{tile.rows}/{tile.depth}/{tile.warps}/{tile.stages}/{tile.columns}/{tile.splits}"


def first_line(problem: Exception, most: int = 120) -> str:
    return f"{type(problem).__name__}: {problem}".splitlines()[0][:most]


if __name__ == "__main__":
    sys.exit(main())
