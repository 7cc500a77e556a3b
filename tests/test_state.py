"""States: starting, adding, selecting, widening, merging, fading and checking, as declared."""

from typing import Any

import numpy as np
import pytest

from tsucb.compiler import compiled
from tsucb.models.state import State, array, counts, fade_arm, nested, sums
from tsucb.numeric.arrays import Floats


class Inner(State):
    gram: Floats = sums("arm", "feature", "feature")
    last: Floats = array("feature", "arm", start=2.0)


class Whole(State):
    pulls: Floats = counts("arm")
    inner: Inner = nested(Inner)
    seen: Floats = sums()
    level: Floats = array(start=1.0, least=0.5, most=9.0)
    table: Floats = array(3, "arm")


SIZES = {"arm": 3, "feature": 2}


@compiled
def fade_one(state, arm, weight):
    fade_arm(state, arm, weight)


def filled() -> Any:
    state, rng = Whole.blank(SIZES), np.random.default_rng(0)
    half = rng.random(state.inner.gram.shape)
    state.inner.gram[:] = half + half.swapaxes(1, 2)
    state.inner.last[:] = rng.random(state.inner.last.shape)
    state.pulls[:], state.seen[:], state.table[:] = (4, 5, 6), 15.0, rng.random((3, 3))
    return state


def test_a_blank_state_is_as_declared() -> None:
    state = Whole.blank(SIZES)
    assert state.pulls.dtype == np.float64
    shapes = [x.shape for x in (state.pulls, *state.inner, *state[2:])]
    assert shapes == [(3,), (3, 2, 2), (2, 3), (1,), (1,), (3, 3)]
    assert (state.inner.last == 2.0).all()
    assert state.level[0] == 1.0
    assert not state.inner.gram.any()


def test_arms_are_selected_and_joined_along_their_own_axis() -> None:
    state = filled()
    some = state.select(np.array([2, 0]))
    assert some.pulls.tolist() == [6, 4]
    assert np.array_equal(some.inner.gram, state.inner.gram[[2, 0]])
    assert np.array_equal(some.inner.last, state.inner.last[:, [2, 0]])
    assert np.array_equal(some.table, state.table[:, [2, 0]])
    both = some.joined(Whole.blank(SIZES))
    assert both.pulls.tolist() == [6, 4, 0, 0, 0]
    assert both.inner.last.shape == (2, 5)
    assert both.seen[0] == 15.0
    again = both.select(np.arange(2))
    assert again == some
    some.pulls[:] = 0  # arrays of its own
    assert state.pulls.tolist() == [4, 5, 6]


def test_widening_puts_what_was_known_in_its_place() -> None:
    state = filled()
    old, new = np.array([0, 1]), np.array([3, 1])
    wide = state.widened({"feature": 4}, {"feature": (old, new)})
    assert wide.inner.gram.shape == (3, 4, 4)
    assert np.array_equal(wide.inner.gram[np.ix_(range(3), new, new)], state.inner.gram)
    assert wide.inner.gram.sum() == pytest.approx(state.inner.gram.sum())
    assert np.array_equal(wide.inner.last[new], state.inner.last)
    assert (wide.inner.last[[0, 2]] == 2.0).all()
    assert wide.pulls.tolist() == state.pulls.tolist()


def test_what_adds_is_added_and_what_fades_is_faded() -> None:
    base = filled()
    one, two = base.copy(), base.copy()
    one.pulls[0] += 7
    two.pulls[0] += 2
    two.inner.gram[1] += 1.0
    one.level[0], two.level[0] = 3.0, 4.0
    both = one.merged(two, base)
    assert both.pulls.tolist() == [13, 5, 6]
    assert np.allclose(both.inner.gram[1], base.inner.gram[1] + 1.0)
    assert both.level[0] == 3.0
    faded = base.inner.copy()
    fade_one(faded, 1, 0.5)
    assert np.allclose(faded.gram[1], base.inner.gram[1] / 2)
    assert np.array_equal(faded.gram[::2], base.inner.gram[::2])
    assert np.array_equal(faded.last, base.inner.last)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: s.pulls.__setitem__(0, -1), "pulls must be from 0 to 100"),
        (lambda s: s.pulls.__setitem__(0, 101), "pulls must be from 0 to 100"),
        (lambda s: s.level.__setitem__(0, 10.0), "level must be from 0.5 to 9"),
        (lambda s: s.seen.__setitem__(0, np.nan), "seen must be from"),
        (lambda s: s.seen.__setitem__(0, np.inf), "seen must be from"),
    ],
)
def test_numbers_out_of_bounds_are_named(spoil: Any, sentence: str) -> None:
    state = filled()
    state.check(100)
    spoil(state)
    with pytest.raises(ValueError, match=sentence):
        state.check(100)


def test_a_state_that_is_all_sums_by_arm_knows_it() -> None:
    class Totals(State):
        pulls: Floats = counts("arm")
        rewards: Floats = sums("arm", 2)

    assert Totals.is_all_sums()
    assert not Whole.is_all_sums()
    assert not Inner.is_all_sums()
