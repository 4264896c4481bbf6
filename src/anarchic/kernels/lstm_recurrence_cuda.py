"""The recurrence of an LSTM layer through all time steps, forward and back, in Triton.

A program holds one lane and ROWS rows of its batch; ``lstm_cuda`` says what lies where.
"""

# Triton is untyped, and kernels are Python only in form.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from anarchic.errors import ConfigError

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    raise ConfigError(
        "The GPU kernels of the LSTM need Triton, which comes with torch for CUDA: "
        "use anarchic.kernels.lstm_lanes."
    ) from missing


@triton.jit
def _tanh(x, APPROXIMATE: tl.constexpr):
    if APPROXIMATE:
        y = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 2 * tl.sigmoid(2 * x) - 1
    return y


@triton.jit
def _sigmoid(x, APPROXIMATE: tl.constexpr):
    return 0.5 * _tanh(0.5 * x, APPROXIMATE) + 0.5 if APPROXIMATE else tl.sigmoid(x)


@triton.jit
def forward_kernel(
    inputs,
    tokens,
    recurrent,
    gates,
    cells,
    states,
    last,
    batch,
    classes,
    LENGTH: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDE: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    LOOKUP: tl.constexpr,
    HOIST: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):
    """Padding stays harmless: without input and weights a new gate is 0, so that c and h are."""
    lane = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, PADDED)
    held = row < batch
    inside = held[:, None] & (col < HIDDEN)[None, :]
    steps = lane * LENGTH * batch
    gates += steps * (4 * HIDDEN)
    cells += steps * HIDDEN
    states += (steps + lane * batch) * WIDE
    if LOOKUP:
        inputs += lane * classes * (4 * HIDDEN)
        tokens += steps
    else:
        inputs += steps * (4 * HIDDEN)

    SQUARE: tl.constexpr = PADDED * PADDED
    w = recurrent + lane * (4 * SQUARE) + col[None, :] * PADDED + col[:, None]  # transposed
    if HOIST:
        w_i, w_f = tl.load(w), tl.load(w + SQUARE)
        w_n, w_o = tl.load(w + 2 * SQUARE), tl.load(w + 3 * SQUARE)
    c = tl.zeros((ROWS, PADDED), tl.float32)
    h = tl.zeros((ROWS, PADDED), tl.float32)
    for t in range(LENGTH):
        at = t * batch + row
        if LOOKUP:
            source = tl.load(tokens + row * LENGTH + t, mask=held, other=0).to(tl.int32)
        else:
            source = at
        x = inputs + source[:, None] * (4 * HIDDEN) + col[None, :]
        x_i = tl.load(x, mask=inside, other=0.0)
        x_f = tl.load(x + HIDDEN, mask=inside, other=0.0)
        x_n = tl.load(x + 2 * HIDDEN, mask=inside, other=0.0)
        x_o = tl.load(x + 3 * HIDDEN, mask=inside, other=0.0)
        if not HOIST:
            w_i, w_f = tl.load(w), tl.load(w + SQUARE)
            w_n, w_o = tl.load(w + 2 * SQUARE), tl.load(w + 3 * SQUARE)
        before = h.to(tl.float16)
        i = _sigmoid(tl.dot(before, w_i) + x_i, APPROXIMATE)
        f = _sigmoid(tl.dot(before, w_f) + x_f, APPROXIMATE)
        n = _tanh(tl.dot(before, w_n) + x_n, APPROXIMATE)
        o = _sigmoid(tl.dot(before, w_o) + x_o, APPROXIMATE)
        c = f * c + i * n
        h = o * _tanh(c, APPROXIMATE)
        g = gates + at[:, None] * (4 * HIDDEN) + col[None, :]
        tl.store(g, i.to(tl.float16), mask=inside)
        tl.store(g + HIDDEN, f.to(tl.float16), mask=inside)
        tl.store(g + 2 * HIDDEN, n.to(tl.float16), mask=inside)
        tl.store(g + 3 * HIDDEN, o.to(tl.float16), mask=inside)
        tl.store(cells + at[:, None] * HIDDEN + col[None, :], c.to(tl.float16), mask=inside)
        after = states + (at + batch)[:, None] * WIDE + col[None, :]
        tl.store(after, h.to(tl.bfloat16), mask=inside)
    last += lane * batch * HIDDEN
    tl.store(last + row[:, None] * HIDDEN + col[None, :], h, mask=inside)


@triton.jit
def backward_kernel(
    gates,
    cells,
    recurrent,
    d_states,
    d_gates,
    batch,
    LENGTH: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDE: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    LAST_ONLY: tl.constexpr,
    HOIST: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):
    lane = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, PADDED)
    inside = (row < batch)[:, None] & (col < HIDDEN)[None, :]
    steps = lane * LENGTH * batch
    gates += steps * (4 * HIDDEN)
    d_gates += steps * (4 * HIDDEN)
    cells += steps * HIDDEN

    SQUARE: tl.constexpr = PADDED * PADDED
    w = recurrent + lane * (4 * SQUARE) + col[:, None] * PADDED + col[None, :]
    if HOIST:
        w_i, w_f = tl.load(w), tl.load(w + SQUARE)
        w_n, w_o = tl.load(w + 2 * SQUARE), tl.load(w + 3 * SQUARE)
    if LAST_ONLY:
        d_states += lane * batch * WIDE
        dh = tl.load(d_states + row[:, None] * WIDE + col[None, :], mask=inside, other=0.0)
    else:
        d_states += steps * WIDE
        dh = tl.zeros((ROWS, PADDED), tl.float32)
    dc = tl.zeros((ROWS, PADDED), tl.float32)
    at = (LENGTH - 1) * batch + row
    c = tl.load(cells + at[:, None] * HIDDEN + col[None, :], mask=inside, other=0.0)
    c = c.to(tl.float32)
    for back in range(LENGTH):
        at = (LENGTH - 1 - back) * batch + row
        if not LAST_ONLY:
            fed = d_states + at[:, None] * WIDE + col[None, :]
            dh += tl.load(fed, mask=inside, other=0.0)
        g = gates + at[:, None] * (4 * HIDDEN) + col[None, :]
        i = tl.load(g, mask=inside, other=0.0).to(tl.float32)
        f = tl.load(g + HIDDEN, mask=inside, other=0.0).to(tl.float32)
        n = tl.load(g + 2 * HIDDEN, mask=inside, other=0.0).to(tl.float32)
        o = tl.load(g + 3 * HIDDEN, mask=inside, other=0.0).to(tl.float32)
        earlier = inside & (back + 1 < LENGTH)
        before = cells + (at - batch)[:, None] * HIDDEN + col[None, :]
        c_before = tl.load(before, mask=earlier, other=0.0).to(tl.float32)
        squashed = _tanh(c, APPROXIMATE)
        dc += dh * o * (1 - squashed * squashed)
        d_i = (dc * n * i * (1 - i)).to(tl.bfloat16)
        d_f = (dc * c_before * f * (1 - f)).to(tl.bfloat16)
        d_n = (dc * i * (1 - n * n)).to(tl.bfloat16)
        d_o = (dh * squashed * o * (1 - o)).to(tl.bfloat16)
        d = d_gates + at[:, None] * (4 * HIDDEN) + col[None, :]
        tl.store(d, d_i, mask=inside)
        tl.store(d + HIDDEN, d_f, mask=inside)
        tl.store(d + 2 * HIDDEN, d_n, mask=inside)
        tl.store(d + 3 * HIDDEN, d_o, mask=inside)
        if not HOIST:
            w_i, w_f = tl.load(w), tl.load(w + SQUARE)
            w_n, w_o = tl.load(w + 2 * SQUARE), tl.load(w + 3 * SQUARE)
        kind: tl.constexpr = recurrent.dtype.element_ty
        dh = tl.dot(d_i.to(kind), w_i)
        dh = tl.dot(d_f.to(kind), w_f, acc=dh)
        dh = tl.dot(d_n.to(kind), w_n, acc=dh)
        dh = tl.dot(d_o.to(kind), w_o, acc=dh)
        dc *= f
        c = c_before
