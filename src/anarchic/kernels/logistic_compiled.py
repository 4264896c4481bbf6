"""Softmax regression on sparse inputs: whole visits of plain SGD in one compiled loop.

With inputs x = b + s the outputs are W s + b (the sum of W over inputs), and the gradient of the
weights is (P - Y)' s / batch, to which every input adds b times the gradient of the bias. The
classes of an input are a row of ``WIDTH`` numbers, which is one or a few registers: W is held
transposed while a visit lasts.
"""

# Numba is untyped, and what it compiles is Python only in form.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np

from anarchic.errors import ConfigError
from anarchic.kernels.compiled import compiled
from anarchic.kernels.logistic_sparse import TOGETHER, WIDTH

try:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.extending import intrinsic, models, register_jitable, register_model
except ImportError as missing:
    raise ConfigError(
        "The compiled loop of softmax regression needs Numba, which was not found: install "
        "anarchic[fast]."
    ) from missing

_AHEAD = 4  # samples; their entries are fetched from memory this long before they are needed
_LINE = 64  # bytes of a cache line


@compiled
def visits(data, start, rates, local_steps, sample, mean, first, every):
    """``Sparse.visits``, into ``mean``: of the lanes ``first``, ``first + every`` and so on."""
    lanes, most, batch = sample.shape
    rows = data.inputs + 1  # the bias is the last of them
    classes = start.shape[1] // rows
    weight, gradient, total = _rows(rows, start), _rows(rows, start), _rows(rows, start)
    off = _rows(batch, start)
    for lane in range(first, lanes, every):
        _to_rows(start[lane], weight, classes)
        total[:] = 0
        for step in range(local_steps[lane]):
            coming = sample.reshape(-1)[(lane * most + step) * batch + _AHEAD :]
            _differences(data, sample[lane, step], coming, weight, classes, off)
            _add_gradient(data, sample[lane, step], off, gradient)
            _descend(data.background, weight, gradient, total, rates[lane])
        total /= start.dtype.type(local_steps[lane])
        _from_rows(total, mean[lane], classes)


@register_jitable
def _rows(count, like):
    """Zeros; each row begins with a cache line, so that it is read and written as one."""
    room = np.zeros(count * WIDTH + _LINE // like.itemsize, like.dtype)
    skipped = -room.ctypes.data % _LINE // like.itemsize
    return room[skipped : skipped + count * WIDTH].reshape(count, WIDTH)


@register_jitable
def _differences(data, sample, coming, weight, classes, off):
    """(P - Y) / batch, into ``off``."""
    share = weight.dtype.type(1) / weight.dtype.type(len(sample))
    everywhere = _at_background(data, weight)
    for i in range(len(sample)):
        if i < len(coming):
            _prefetch(data, coming[i])
        store(off, i, _outputs(data, sample[i], weight, everywhere))
        _softmax(off[i, :classes], share)
        off[i, classes:] = 0
        off[i, data.label[sample[i]]] -= share


@register_jitable
def _at_background(data, weight):
    """The outputs of a sample that is all background."""
    found = load(weight, data.inputs)
    for j in range(data.inputs):
        found = added(found, data.background, load(weight, j))
    return found


@register_jitable
def _outputs(data, sample, weight, a):
    """Of one sample; four sums, because each addition waits for the one before."""
    b = c = d = zeros_like(a)
    for k in range(data.first[sample], data.first[sample + 1], TOGETHER):
        a = added(a, data.value[k], load(weight, data.column[k]))
        b = added(b, data.value[k + 1], load(weight, data.column[k + 1]))
        c = added(c, data.value[k + 2], load(weight, data.column[k + 2]))
        d = added(d, data.value[k + 3], load(weight, data.column[k + 3]))
    return added(added(a, 1, b), 1, added(c, 1, d))


@register_jitable
def _softmax(outputs, share):
    """In their place, and times ``share``."""
    most = outputs[0]
    for c in range(1, len(outputs)):
        most = max(most, outputs[c])
    whole = share - share
    for c in range(len(outputs)):
        outputs[c] = np.exp(outputs[c] - most)
        whole += outputs[c]
    outputs *= share / whole


@register_jitable
def _add_gradient(data, sample, off, gradient):
    """That of the weights, without what the background adds, and that of the bias."""
    for i in range(len(sample)):
        row = load(off, i)
        store(gradient, data.inputs, added(load(gradient, data.inputs), 1, row))
        for k in range(data.first[sample[i]], data.first[sample[i] + 1]):
            j = data.column[k]
            store(gradient, j, added(load(gradient, j), data.value[k], row))


@register_jitable
def _descend(background, weight, gradient, total, rate):
    """A step along the gradient, which is zero afterwards."""
    last = len(weight) - 1
    of_bias = load(gradient, last)
    for j in range(len(weight)):
        row = load(gradient, j)
        if j < last:
            row = added(row, background, of_bias)
        store(weight, j, added(load(weight, j), -rate, row))
        store(total, j, added(load(total, j), 1, row))
        store(gradient, j, zeros_like(row))


@register_jitable
def _to_rows(vector, weight, classes):
    """The vector holds the bias before the weights, and these by class."""
    inputs = len(weight) - 1
    weight[inputs, :classes] = vector[:classes]
    by_class = vector[classes:].reshape(classes, inputs)
    for j in range(inputs):
        for c in range(classes):
            weight[j, c] = by_class[c, j]


@register_jitable
def _from_rows(total, vector, classes):
    inputs = len(total) - 1
    vector[:classes] = total[inputs, :classes]
    by_class = vector[classes:].reshape(classes, inputs)
    for j in range(inputs):
        for c in range(classes):
            by_class[c, j] = total[j, c]


@register_jitable
def _prefetch(data, sample):
    """Fetch the entries of a sample into the cache, so that the core need not wait for them."""
    for k in range(data.first[sample], data.first[sample + 1], _LINE // data.value.itemsize):
        prefetch(data.value, k)
    for k in range(data.first[sample], data.first[sample + 1], _LINE // data.column.itemsize):
        prefetch(data.column, k)


class _Row(types.Type):
    """``WIDTH`` numbers in registers. Numba would not vectorise loops this short."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Row({dtype})")


@register_model(_Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager, row):
        number = manager.lookup(row.dtype).get_value_type()
        super().__init__(manager, row, ir.VectorType(number, WIDTH))


def _pointer(context, builder, array_type, array, offset, kind):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())


def _row_of(context, builder, array_type, array, index):
    """Where a row of a matrix lies."""
    kind = context.get_value_type(_Row(array_type.dtype))
    offset = builder.mul(index, index.type(WIDTH))
    return _pointer(context, builder, array_type, array, offset, kind)


@intrinsic
def load(typing, matrix, index):
    def code(context, builder, signature, values):
        where = _row_of(context, builder, matrix, *values)
        return builder.load(where, align=matrix.dtype.bitwidth // 8)

    return _Row(matrix.dtype)(matrix, types.intp), code


@intrinsic
def store(typing, matrix, index, row):
    def code(context, builder, signature, values):
        where = _row_of(context, builder, matrix, *values[:2])
        builder.store(values[2], where, align=matrix.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(matrix, types.intp, row), code


@intrinsic
def added(typing, row, times, other):
    """``row + times * other``."""

    def code(context, builder, signature, values):
        left, factor, right = values
        alone = builder.insert_element(left.type(ir.Undefined), factor, ir.IntType(32)(0))
        everywhere = ir.VectorType(ir.IntType(32), WIDTH)([0] * WIDTH)
        factors = builder.shuffle_vector(alone, alone, everywhere)
        fuse = ("contract",)
        return builder.fadd(left, builder.fmul(factors, right, flags=fuse), flags=fuse)

    return row(row, row.dtype, row), code


@intrinsic
def zeros_like(typing, row):
    """A row of zeros."""
    return row(row), lambda context, builder, signature, values: values[0].type(None)


@intrinsic
def prefetch(typing, array, index):
    def code(context, builder, signature, values):
        number, byte = ir.IntType(32), ir.IntType(8)
        where = _pointer(context, builder, array, *values, byte)
        shape = ir.FunctionType(ir.VoidType(), [where.type, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [where.type], shape)
        builder.call(call, [where, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), code
