"""What every rule must keep, whatever its formula."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anarchic import Update, Updates, wire
from anarchic.core.saving import pack, unpack
from anarchic.errors import ConfigError, StaleUpdate, UpdateRefused

from ..make import dump, fold
from .cases import DIM, RULES, WORKERS, stream, with_m


def is_variant(name):
    """Whether a case is an optimiser in, or a wrapper around, another rule than AFA-CD."""
    words = set(name.split())
    return "afa_cd" not in words and words & {
        "momentum",
        "adam",
        "yogi",
        "clip",
        "discount",
        "carry",
        "buffers",
    }


every_rule = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name.replace(" ", "_"),
            marks=[pytest.mark.slow] if is_variant(case.name) else [],
        )
        for case in RULES
    ],
)


def first_params(dtype=np.float32):
    return np.linspace(-1, 1, DIM).astype(dtype)


def begun(case, updates, seed=0):
    return fold(case.rule, case.rule.init(first_params()), stream(case, updates, seed))


# What a call may touch


@every_rule
def test_updates_are_only_read(case):
    updates = stream(case, 3 * case.rule.m)
    before = [each.direction.tobytes() for each in updates]
    for each in updates:
        for array in (each.direction, *each.extras.values()):
            array.flags.writeable = False
    block = Updates.of(updates)
    for array in (block.directions, block.local_lrs, block.base_versions, *block.extras.values()):
        array.flags.writeable = False
    fold(case.rule, case.rule.init(first_params()), updates)
    case.rule.receive_many(case.rule.init(first_params()), block)
    assert [each.direction.tobytes() for each in updates] == before


@every_rule
def test_published_vectors_are_never_written_to(case):
    given_params = first_params()
    state = case.rule.init(given_params)
    published = []
    for each in stream(case, 4 * case.rule.m):
        vectors = [state.params, *state.extras.values()]
        published += [(vector, vector.tobytes()) for vector in vectors]
        state = case.rule.receive(state, each)
    assert all(vector.tobytes() == before for vector, before in published)
    assert given_params.tobytes() == first_params().tobytes()
    assert not np.shares_memory(given_params, case.rule.init(given_params).params)


# What comes out


@every_rule
def test_the_same_updates_give_the_same_bytes(case):
    assert dump(begun(case, 11)) == dump(begun(case, 11))


@every_rule
def test_every_m_updates_make_a_version_and_due_counts_down_to_it(case):
    state, m = case.rule.init(first_params()), case.rule.m
    rounds = 3 if m > 1 else 16  # a rule may wait until all four were heard
    for index, each in enumerate(stream(case, rounds * m)):
        assert (state.version, case.rule.remaining(state)) == (index // m, m - index % m)
        assert state.params.dtype == np.float32
        state = case.rule.receive(state, each)
    assert (state.version, case.rule.remaining(state)) == (rounds, m)
    assert not np.array_equal(state.params, first_params())


@every_rule
@given(cuts=st.sets(st.integers(1, 12)), seed=st.integers(0, 5))
@settings(max_examples=15)
@pytest.mark.slow
def test_blocks_give_the_bytes_of_single_updates_wherever_they_are_cut(case, cuts, seed):
    updates = stream(case, 13, seed)
    state = case.rule.init(first_params())
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 13], strict=True):
        state = case.rule.receive_many(state, Updates.of(updates[start:end]))
    assert dump(state) == dump(begun(case, 13, seed))


@every_rule
def test_an_empty_block_changes_nothing(case):
    state = begun(case, 6)
    before = dump(state)
    nothing = Updates.of(stream(case, 1))[:0]
    assert dump(case.rule.receive_many(state, nothing)) == before


@every_rule
def test_numpy_scalars_count_like_python_numbers(case):
    plain = stream(case, 9)
    scalars = [
        replace(each, local_lr=np.float64(each.local_lr), local_steps=np.int64(each.local_steps))
        for each in plain
    ]
    state = fold(case.rule, case.rule.init(first_params()), scalars)
    assert dump(state) == dump(begun(case, 9))


@every_rule
def test_narrow_directions_are_computed_with_in_the_models_dtype(case):
    halves = [
        replace(each, direction=each.direction.astype(np.float16)) for each in stream(case, 9)
    ]
    wide = [replace(each, direction=each.direction.astype(np.float32)) for each in halves]
    as_halves = fold(case.rule, case.rule.init(first_params()), halves)
    as_floats = fold(case.rule, case.rule.init(first_params()), wide)
    assert dump(as_halves) == dump(as_floats)


@every_rule
def test_a_float64_model_stays_one(case):
    updates = stream(case, 9, dtype=np.float64)
    state = fold(case.rule, case.rule.init(first_params(np.float64)), updates)
    assert {state.params.dtype, *(v.dtype for v in state.extras.values())} == {np.dtype("f8")}


@every_rule
def test_the_largest_update_that_is_taken_does_no_lasting_harm(case):
    """Whatever passes the checks, the parameters and all moments stay finite."""
    largest = np.zeros(DIM, np.float32)
    largest[0] = 0.99 * np.sqrt(np.finfo(np.float32).max)
    state = case.rule.init(first_params())
    for each in stream(case, 6 * case.rule.m):
        rate = 1 / each.local_steps
        extras = dict.fromkeys(case.names, largest)
        huge = replace(each, direction=largest, local_lr=rate, samples=2**31 - 1, extras=extras)
        state = case.rule.receive(state, huge)
    assert all(np.isfinite(array).all() for array in pack(state)[0].values())


# A timer


@every_rule
def test_a_flush_of_nothing_changes_nothing(case):
    for updates in (0, 2 * case.rule.m):
        state = begun(case, updates)
        before = dump(state)
        assert dump(case.rule.flush(state)) == before


@every_rule
def test_a_flush_steps_along_the_mean_of_what_is_there(case):
    """Flushed after all but one of m updates, a rule has done what it does with m - 1."""
    m = case.rule.m
    if m == 1:
        pytest.skip("it never waits")
    updates = stream(case, m - 1)
    flushed = case.rule.flush(begun(case, m - 1))
    stepped = fold(with_m(case.rule, m - 1), case.rule.init(first_params()), updates)
    assert dump(flushed) == dump(stepped)
    assert (flushed.version, case.rule.remaining(flushed)) == (1, m)


# Saving


@every_rule
@pytest.mark.parametrize("before", [0, 1, 6, 8])
def test_a_saved_state_goes_on_as_if_nothing_had_happened(case, before, tmp_path):
    updates = stream(case, 14)
    state = fold(case.rule, case.rule.init(first_params()), updates[:before])
    wire.write(tmp_path / "state", *pack(state))
    loaded = unpack(case.rule.init(first_params()), *wire.read(tmp_path / "state"))
    assert dump(loaded) == dump(state)
    assert dump(fold(case.rule, loaded, updates[before:])) == dump(begun(case, 14))


@every_rule
def test_states_rules_and_updates_copy_and_pickle(case):
    """As they must to reach another process."""
    rule, state, *updates = pickle.loads(
        pickle.dumps((case.rule, begun(case, 5), *stream(case, 9)))
    )
    copied = copy.deepcopy(state)
    assert dump(fold(rule, state, updates[5:])) == dump(begun(case, 9))
    assert dump(fold(rule, copied, updates[5:])) == dump(begun(case, 9))
    assert rule == case.rule
    assert hash(rule) == hash(case.rule)


# Refusals


def bad_vector(**at):
    def spoil(each):
        direction = each.direction.copy()
        direction[1] = at["value"]
        return replace(each, direction=direction)

    return spoil


REFUSED = {
    "short": lambda u: replace(u, direction=u.direction[:-1]),
    "matrix": lambda u: replace(u, direction=u.direction[None]),
    "wider dtype": lambda u: replace(u, direction=u.direction.astype(np.float64)),
    "integers": lambda u: replace(u, direction=u.direction.astype(np.int32)),
    "complex": lambda u: replace(u, direction=u.direction.astype(np.complex64)),
    "text": lambda u: replace(u, direction=u.direction.astype(str)),
    "nan": bad_vector(value=np.nan),
    "inf": bad_vector(value=np.inf),
    "minus inf": bad_vector(value=-np.inf),
    "huge": bad_vector(value=1e30),
    "huge with its rate": lambda u: replace(u, direction=u.direction * 1e12, local_lr=1e12),
    "huge with its steps": lambda u: replace(u, direction=u.direction * 1e15, local_steps=10**9),
    "no steps": lambda u: replace(u, local_steps=0),
    "negative steps": lambda u: replace(u, local_steps=-3),
    "endless steps": lambda u: replace(u, local_steps=2**40, local_lr=1e-15),
    "no rate": lambda u: replace(u, local_lr=0.0),
    "negative rate": lambda u: replace(u, local_lr=-0.1),
    "infinite rate": lambda u: replace(u, local_lr=np.inf),
    "nan rate": lambda u: replace(u, local_lr=np.nan),
    "endless rate of nothing": lambda u: replace(u, local_lr=1e300, direction=u.direction * 0),
    "infinite rate of nothing": lambda u: replace(u, local_lr=np.inf, direction=u.direction * 0),
    "negative samples": lambda u: replace(u, samples=-1),
    "endless samples": lambda u: replace(u, samples=2**40),
    "future": lambda u: replace(u, base_version=u.base_version + 99),
    "negative version": lambda u: replace(u, base_version=-1),
    "unexpected extras": lambda u: replace(u, extras={**u.extras, "odd": u.direction}),
}
OF_A_BLOCK = {"short", "matrix", "wider dtype", "integers", "complex", "text", "unexpected extras"}


@every_rule
@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_a_refused_update_leaves_the_state_as_it_was(case):
    expected = dump(begun(case, 12))
    for fault in REFUSED:
        refuse(case, fault, expected)


def refuse(case, fault, expected):
    updates = stream(case, 12)
    state = fold(case.rule, case.rule.init(first_params()), updates[:5])
    before = dump(state)
    bad = REFUSED[fault](updates[5])
    with pytest.raises(UpdateRefused) as refusal:
        case.rule.receive(state, bad)
    assert isinstance(refusal.value, StaleUpdate) == (fault in {"future", "negative version"})
    assert dump(state) == before
    block = [*updates[5:11], REFUSED[fault](updates[11])]  # it comes in a later round
    if fault in OF_A_BLOCK:
        block = list(map(REFUSED[fault], updates[5:]))
    with pytest.raises(UpdateRefused):
        case.rule.receive_many(state, Updates.of(block))
    assert dump(state) == before
    assert dump(fold(case.rule, state, updates[5:])) == expected


@pytest.mark.parametrize("fault", ["unknown", "nan", "short"])
def test_a_refused_extra_leaves_the_state_as_it_was(fault):
    for case in (case for case in RULES if case.names):
        updates = stream(case, 6)
        state = fold(case.rule, case.rule.init(first_params()), updates[:5])
        before = dump(state)
        control = {
            "unknown": {"other": np.zeros(DIM, np.float32)},
            "nan": {"control": np.full(DIM, np.nan, np.float32)},
            "short": {"control": np.zeros(DIM - 1, np.float32)},
        }[fault]
        with pytest.raises(UpdateRefused):
            case.rule.receive(state, replace(updates[5], extras=control))
        with pytest.raises(UpdateRefused):
            case.rule.receive_many(state, Updates.of([replace(updates[5], extras=control)]))
        assert dump(state) == before


@every_rule
@pytest.mark.parametrize(
    "params",
    [np.arange(3), np.zeros((2, 2)), np.array([0.0, np.nan]), np.float64(1.0)],
    ids=["integers", "matrix", "nan", "scalar"],
)
def test_first_parameters_must_be_a_vector_of_finite_floats(case, params):
    with pytest.raises(ConfigError):
        case.rule.init(params)


# Convergence


@pytest.mark.slow
@every_rule
def test_it_reaches_the_optimum_of_a_quadratic(case):
    """Workers with losses sum_j a_ij (x_j - b_ij)^2 / 2 report in turn, each late by as many
    versions as it always is (unless the rule refuses late ones). Every worker's b_i is another
    unless the rule weighs workers unequally, for then its fixed point is a weighted optimum."""
    rng = np.random.default_rng(3)
    a = rng.uniform(0.5, 1.5, (len(WORKERS), DIM))
    b = rng.normal(size=(1 if case.shared_optimum else len(WORKERS), DIM)) + np.zeros_like(a)
    optimum = (a * b).sum(0) / a.sum(0)
    delays = [0, 0, 0, 0] if case.fresh else [0, 1, 2, 1]

    state = case.rule.init(10 + first_params(np.float64))
    snapshots = [(state.params, state.extras)]
    kept = [{name: np.zeros(DIM) for name in case.local.keeps} for _ in WORKERS]
    for visit in range(len(WORKERS) * case.visits):
        i = visit % len(WORKERS)
        base = max(0, state.version - delays[i])
        update, kept[i] = work(case, i, base, snapshots[base], kept[i], a[i], b[i])
        state = case.rule.receive(state, update)
        if state.version == len(snapshots):
            snapshots.append((state.params, state.extras))
    np.testing.assert_allclose(state.params, optimum, atol=case.within)


def work(case, i, base, pulled, kept, a, b, local_lr=0.2):
    """One visit of worker ``i``: local steps of its local rule from a pulled snapshot."""
    start, extras = pulled
    held = {**extras, **kept, **{name: np.zeros(DIM) for name in case.local.scratch}}
    x, total = start, np.zeros(DIM)
    for _ in range(case.local_steps):
        direction = case.local.step(a * (x - b), x, start, held)
        x, total = x - local_lr * direction, total + direction
    mean = total / case.local_steps
    keep, send = case.local.finish(mean, held)
    buffers = list(getattr(case.rule, "places", ()))
    mean[buffers] = x[buffers]  # as they are at the end
    update = Update(WORKERS[i], base, case.local_steps, local_lr, mean, samples=5, extras=send)
    return update, keep
