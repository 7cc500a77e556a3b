"""Records: classes of settings that are declared once, by their annotated fields."""

import copy
import inspect
import pickle
from dataclasses import KW_ONLY
from typing import Annotated, Any

import numba
import numpy as np
import pytest
from everything import ENVIRONMENTS, MODELS, POLICIES

import tsucb
from tsucb.checks import Count, Positive
from tsucb.record import Record, derived


class Plain(Record):
    size: Count
    scale: Positive = 1.0


class Twin(Record):
    size: Count
    scale: Positive = 1.0


class Longer(Plain):
    _: KW_ONLY
    label: str = "none"
    area: float = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        values["area"] = values["size"] * values["scale"]


class Vector(Record):
    entries: Annotated[Any, lambda name, value: np.array(value, dtype=float)] = 0.0


def test_two_classes_with_equal_numbers_stay_apart() -> None:
    assert Plain(2) == Plain(2.0)  # type: ignore[arg-type]
    assert Plain(2) != Twin(2)
    assert Plain(2) != (2, 1.0)
    assert len({Plain(2), Twin(2), Plain(2)}) == 2
    assert tsucb.TSUCB(10) != tsucb.IDS(10)
    assert tsucb.Thompson() != tsucb.Random()


@pytest.mark.parametrize("thing", POLICIES + MODELS + ENVIRONMENTS, ids=lambda x: type(x).__name__)
def test_every_record_is_true_and_equals_its_copies(thing: Any) -> None:
    assert thing
    for other in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
        assert type(other) is type(thing)
        if not isinstance(thing, tsucb.Ensemble):  # its estimator has no equality
            assert other == thing
            assert hash(other) == hash(thing)


@pytest.mark.parametrize("thing", POLICIES + MODELS, ids=lambda x: type(x).__name__)
def test_the_constructor_makes_the_same_of_the_settings(thing: Any) -> None:
    again = type(thing)(**thing.settings())
    assert type(again) is type(thing)
    assert repr(again) == repr(thing)


def test_fields_are_checked_derived_and_shown_as_passed() -> None:
    made = Longer(3, scale=2, label="a")
    assert (made.size, made.scale, made.label, made.area) == (3, 2.0, "a", 6.0)
    assert repr(made) == "Longer(size=3, scale=2.0, label='a')"
    assert repr(Plain(3)) == "Plain(size=3)"
    assert repr(tsucb.ContextualLinear(2, prior_covariance=4.0)) == (
        "ContextualLinear(features=2, prior_covariance=4.0)"
    )
    assert str(inspect.signature(Longer)).startswith("(size:")
    assert "area" not in inspect.signature(Longer).parameters


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Plain(0), ValueError, "size must be a whole number of at least 1"),
        (lambda: Plain(2, -1.0), ValueError, "scale must be positive"),
        (lambda: Plain(), TypeError, "Plain: missing a required argument: 'size'"),
        (lambda: Plain(1, 2.0, 3), TypeError, "Plain: too many positional arguments"),
        (lambda: Longer(1, 1.0, "x"), TypeError, "Longer: too many positional"),
        (lambda: Longer(1, area=2.0), TypeError, "Longer: got an unexpected keyword"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(
    make: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        make()


def test_arrays_are_compared_by_their_numbers() -> None:
    assert Vector([1.0, 2.0]) == Vector([1, 2])
    assert Vector([1.0, 2.0]) != Vector([1.0, 3.0])
    assert Vector([0.0]) != Vector([0.0, 0.0])
    assert hash(Vector([1.0, 2.0])) == hash(Vector([1.0, 2.0]))


def test_fields_cannot_be_assigned() -> None:
    with pytest.raises(AttributeError):
        Plain(1).size = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Plain(1).other = 2  # type: ignore[attr-defined]


@numba.njit
def area(record):  # type: ignore[no-untyped-def]
    return record.size * record.scale


def test_compiled_code_reads_and_makes_records() -> None:
    assert area(Plain(3, 0.5)) == 1.5
    assert area(Longer(3, 2.0)) == 6.0
    assert numba.typeof(Plain(1)) != numba.typeof(Twin(1))
