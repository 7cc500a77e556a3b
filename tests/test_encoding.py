"""Contexts as applications have them, and the columns that are made for them."""

import contextlib
import copy
import enum
import json
import math
import pickle
import sqlite3
from collections import OrderedDict, namedtuple
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from tsucb.checks import LARGEST
from tsucb.contexts.encoding import Encoder

same = np.testing.assert_array_equal


def shown(encoder, context):
    return dict(encoder.describe(context))


# Rules


def test_numbers_and_booleans_have_one_column():
    encoder = Encoder()
    same(encoder.encode({"age": 30, "member": True, "score": 0.5}), [30, 1, 0.5])
    assert encoder.names == ("age", "member", "score")
    assert encoder.width == 3  # nothing else is expected


@pytest.mark.parametrize(
    "value",
    [3, 3.0, np.float32(3), np.int8(3), np.array(3.0), Decimal(3), Fraction(3), np.longdouble(3)],
)
def test_every_kind_of_number_is_one(value):
    encoder = Encoder()
    assert shown(encoder, {"a": value}) == {}
    encoder.encode({"a": value})
    assert shown(encoder, {"a": value}) == {"a": 3.0}


def test_strings_have_a_column_per_category():
    encoder = Encoder()
    for city in ["Paris", "Rome", "Paris"]:
        encoder.encode({"city": city})
    assert encoder.names == ("city=Paris", "city=Rome")
    assert shown(encoder, {"city": np.str_("Rome")}) == {"city=Rome": 1.0}


def test_codes_are_categories_however_they_are_written():
    encoder = Encoder(categories=["zip", "flag"])
    for zip in [75001, 75001.0, "75001", np.int32(75001), Decimal(75001)]:
        encoder.encode({"zip": zip, "flag": True})
    encoder.encode({"zip": -7, "flag": False})
    encoder.encode({"zip": 1.5, "flag": np.True_})
    assert encoder.names == ("zip=75001", "flag=True", "zip=-7", "flag=False", "zip=1.5")
    assert shown(encoder, {"zip": -7, "flag": False}) == {"zip=-7": 1, "flag=False": 1}


def test_one_and_true_are_different_codes():
    encoder = Encoder(categories=["a"])
    for value in [1, True, 1, True, "--5", "9" * 5000, "٣"]:
        encoder.encode({"a": value})
    assert encoder.names[:3] == ("a=1", "a=True", "a=--5")
    assert shown(encoder, {"a": True}) == {"a=True": 1}


def test_enumerations_are_categories():
    color = enum.Enum("color", ["RED", "BLUE"])
    size = enum.IntEnum("size", ["SMALL", "LARGE"])
    kind = enum.StrEnum("kind", {"A": "a"})
    encoder = Encoder()
    encoder.encode({"color": color.RED, "size": size.LARGE, "kind": kind.A})
    assert encoder.names == ("color=RED", "size=LARGE", "kind=a")


@pytest.mark.parametrize(
    "nothing", [None, math.nan, np.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("nan"), ...]
)
def test_missing_values_have_a_column_and_the_mean_so_far(nothing):
    encoder = Encoder()
    encoder.encode({"age": 10, "city": "Rome"})
    encoder.encode({"age": 40, "city": "Rome"})
    gap = {} if nothing is ... else {"age": nothing, "city": nothing}
    for _ in range(2):  # new columns, and known ones
        vector = encoder.encode(gap)
        assert shown(encoder, gap) == {"age": 25, "age missing": 1, "city missing": 1}
        same(vector, encoder.peek(gap))
    encoder.encode({"age": 10, "city": "Rome"})
    assert shown(encoder, {"city": "Rome"}) == {"age": 20, "age missing": 1, "city=Rome": 1}


def test_what_was_always_missing_has_no_number():
    encoder = Encoder()
    encoder.encode({"age": None})
    assert encoder.names == ("age missing",)
    encoder.encode({"age": 5.0})
    assert encoder.names == ("age missing", "age")
    assert shown(encoder, {"age": None}) == {"age missing": 1, "age": 5}


def test_numbers_and_strings_of_a_feature_coexist():
    encoder = Encoder()
    encoder.encode({"floor": 4})
    encoder.encode({"floor": "ground"})
    assert shown(encoder, {"floor": "ground"}) == {"floor": 4, "floor=ground": 1}
    assert shown(encoder, {"floor": 2}) == {"floor": 2}
    reverse = Encoder()
    reverse.encode({"floor": "ground"})
    reverse.encode({"floor": 4})
    assert reverse.names == ("floor=ground", "floor")


def test_late_features_and_categories_get_new_columns_and_old_ones_stay():
    encoder = Encoder()
    encoder.encode({"a": 1.0})
    encoder.encode({"a": 2.0, "b": 3.0})
    encoder.encode({"a": 2.0, "b": "x"})
    assert encoder.names == ("a", "b", "b=x")
    assert shown(encoder, {"a": 2.0}) == {"a": 2.0, "b": 3.0}  # never missing since it came
    encoder.encode({"a": 2.0})
    assert encoder.names == ("a", "b", "b=x", "b missing")


def test_rare_categories_share_a_column():
    encoder = Encoder(most_columns=5)
    for i in range(20):
        encoder.encode({"user": f"u{i}", "age": 1.0})
    assert encoder.names == ("user=u0", "age", "user=u1", "user=u2", "user=u3", "user other")
    assert shown(encoder, {"user": "u19", "age": 1}) == {"user other": 1, "age": 1}
    assert shown(encoder, {"user": "u3", "age": 1}) == {"user=u3": 1, "age": 1}
    encoder.encode({"user": 7, "age": "old", "new": "a"})
    assert encoder.names[6:] == ("user", "age other", "new other")


def test_features_without_end_are_left_out_with_one_warning():
    encoder = Encoder(most_columns=3)
    encoder.encode({f"f{i}": 1.0 for i in range(5)})  # the first context has all
    with pytest.warns(RuntimeWarning, match="5 features already, so the new ones 'g' are left out"):
        encoder.encode({"g": 1.0})
    encoder.encode({"h": 1.0})
    assert encoder.names[:5] == ("f0", "f1", "f2", "f3", "f4")
    assert all(name.endswith("missing") for name in encoder.names[5:])


def test_names_are_unique():
    encoder = Encoder()
    encoder.encode({"a": None, "a missing": 1.0, "b": "c", "b=c": 2.0, "b=c (2)": 1})
    assert encoder.names == ("a missing", "a missing (2)", "b=c", "b=c (2)", "b=c (2) (2)")


def test_width_grows_in_blocks_and_spare_columns_are_zero():
    encoder, widths = Encoder(), []
    for i in range(300):
        vector = encoder.encode({"a": f"{i}"})
        assert vector.size == encoder.width
        same(np.flatnonzero(vector), [i])
        widths.append(encoder.width)
    assert sorted(set(widths)) == [16, 24, 36, 54, 81, 121, 181, 271, 406]


def test_width_stops_short_of_columns_that_will_not_come():
    encoder = Encoder(most_columns=100)
    for i in range(300):
        encoder.encode({"a": f"{i}"})
    assert (len(encoder.names), encoder.width) == (101, 116)


def test_peeking_learns_nothing():
    encoder = Encoder()
    assert encoder.peek({"a": 1.0}).size == encoder.peek([1.0]).size == 0
    encoder.encode({"a": 1.0, "b": "x"})
    before = encoder.state()
    for context in [{"a": 9.0, "b": "x"}, {"a": None, "b": "new"}, {"c": 1}, {}]:
        encoder.peek(context)
        encoder.describe(context)
    assert encoder.state() == before


def test_vectors_are_the_callers_own():
    encoder, x = Encoder(), np.array([1.0, 2.0])
    for context in [x, x]:
        encoder.encode(context)[:] = 7.0
    same(x, [1, 2])
    same(encoder.encode([np.nan, 2.0])[:2], [1, 2])


# Forms


def test_one_context_in_many_forms():
    context = {"age": 30.0, "city": "Rome", "member": True}
    row = namedtuple("row", context)(**context)
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    selected = database.execute("select 30.0 as age, 'Rome' as city, 1 as member").fetchone()
    database.close()
    forms = [
        OrderedDict(context),
        pd.Series(context),
        pd.Series(context)[["member", "age", "city"]],  # by name, not by position
        pd.DataFrame([context]),
        pd.DataFrame([context], index=[17])[["city", "member", "age"]],
        pl.DataFrame([context]),
        pl.DataFrame([context]).row(0, named=True),
        [context],
        row,
        selected,
    ]
    encoder = Encoder()
    expected = encoder.encode(context)
    for form in forms:
        same(encoder.encode(form), expected)
    assert encoder.names == ("age", "city=Rome", "member")


def test_numbered_columns_are_named_by_their_numbers():
    encoder = Encoder()
    encoder.encode(pd.DataFrame([[1.0, 2.0]]))
    same(encoder.encode(pd.Series({1: 5.0, 0: 4.0})), [4, 5])
    assert encoder.names == ("0", "1")


def test_arrays_pass_unchanged():
    encoder, x = Encoder(), np.array([1.5, -2.0, 0.0])
    masked = np.ma.masked_array(x, [False, False, False])
    for form in [
        x, x[None], x.tolist(), tuple(x.tolist()), x.astype(np.float32), [x], [x.tolist()],
        x.astype(object), pl.Series(x), scipy.sparse.csr_matrix(x), masked, [1.5, -2, False],
    ]:  # fmt: skip
        same(encoder.encode(form), x)
        same(Encoder().encode(form), x)
    assert encoder.width == 3
    assert encoder.names == ("x0", "x1", "x2")


def test_arrays_may_have_missing_values():
    encoder = Encoder()
    encoder.encode([1.0, 2.0])
    encoder.encode([3.0, 4.0])
    for _ in range(2):
        same(encoder.encode(np.array([np.nan, 6.0]))[:4], [2, 6, 1, 0])
    same(encoder.encode([None, 6.0])[:4], [2, 6, 1, 0])
    same(encoder.encode(np.ma.masked_array([9.0, 6.0], [True, False]))[:4], [2, 6, 1, 0])
    same(encoder.encode([5.0, 6.0])[:4], [5, 6, 0, 0])
    assert encoder.names == ("x0", "x1", "x0 missing")
    first = Encoder()
    same(first.encode([np.nan, 1.0])[:3], [0, 1, 1])
    assert first.names == ("x0", "x1", "x0 missing")


def test_entries_of_arrays_may_be_codes():
    encoder = Encoder(categories=["x0"])
    encoder.encode([75001, 2.0])
    encoder.encode(np.array([75002.0, 3.0]))
    assert encoder.names == ("x1", "x0=75001", "x0=75002")


# Refusals


class Nothing:
    pass


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (math.inf, ValueError, "the feature 'b' is inf, but numbers must lie within ±1e+30; give"),
        (-np.inf, ValueError, "is -inf"),
        (1.1e30, ValueError, "is 1.1e+30"),
        pytest.param(10**5000, ValueError, "is inf", id="huge"),
        (Decimal("sNaN"), ValueError, "is inf"),
        ([1, 2], TypeError, "is a list, but it must be a number, a boolean, a string or None; give "
         "each of its entries a name of its own"),
        ({"c": 1}, TypeError, "is a dict, "),
        ({1}, TypeError, "is a set, "),
        (np.zeros(2), TypeError, "is a ndarray, "),
        (np.zeros(1), TypeError, "is a ndarray, "),
        (1j, TypeError, "is a complex, but it must be a number, a boolean, a string or None; give "
         "its real and its imaginary part as two features"),
        (b"x", TypeError, "decode it to a string"),
        (datetime(2024, 1, 1), TypeError, "as numbers, such as the hour"),
        (pd.Timestamp("2024-01-01"), TypeError, "as numbers, such as the hour"),
        (np.timedelta64(1, "s"), TypeError, "as numbers, such as the hour"),
        (Nothing(), TypeError, "is a Nothing, but it must be a number"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("declared", [[], ["b"]])
def test_wrong_values_are_refused_in_a_sentence_and_nothing_is_learned(
    value, error, message, declared
):
    encoder = Encoder(categories=declared)
    encoder.encode({"a": 1.0, "b": 2.0})
    before = encoder.state()
    bad = {"new": "x", "a": 5.0, "b": value}
    calls = [encoder.encode, encoder.peek, encoder.describe]
    for call, context in [(call, bad) for call in calls] + [
        (encoder.encode_table, [{"a": 3.0}, {"c": "d"}, bad]),
        (encoder.encode_table, {name: [1.0, cell] for name, cell in bad.items()}),
    ]:
        with pytest.raises(error) as caught:
            call(context)
        assert message in str(caught.value)
        assert "'b'" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert encoder.state() == before


@pytest.mark.parametrize(
    ("context", "error", "message"),
    [
        ("age", TypeError, "features are given as a dictionary, a row of a table or a list of "
         "numbers, not as a str"),
        (None, TypeError, "not as None"),
        (3.0, TypeError, "not as a float"),
        ({1.0}, TypeError, "not as a set"),
        ({(1, 2): 1.0}, TypeError, r"named by strings, not by \(1, 2\)"),
        ({None: 1.0}, TypeError, "named by strings, not by None"),
        ({1: 1.0, "1": 2.0}, ValueError, "has the features '1' twice"),
        (pd.Series([1.0, 2.0], index=["a", "a"]), ValueError, "has the features 'a' twice"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), ValueError, "the features 'a' twice"),
        (pd.DataFrame({"a": [1, 2]}), ValueError, "one row, but the table has 2 rows"),
        (np.zeros((2, 3)), ValueError, r"one row, but the array has the shape \(2, 3\)"),
        ([], ValueError, "at least one number"),
        ([1.0, [2.0]], TypeError, "the feature 'x1' is a list"),
        (np.array(["2024-01-01"], dtype="M8[ns]"), TypeError, "the feature 'x0' is a datetime64"),
    ],
)  # fmt: skip
def test_what_is_no_context_is_refused(context, error, message):
    encoder = Encoder()
    with pytest.raises(error, match=message):
        encoder.encode(context)
    assert encoder.state() == Encoder().state()


def test_contexts_with_and_without_names_do_not_mix():
    named, numbered = Encoder(), Encoder()
    named.encode({"x0": 1.0, "x1": 2.0})
    numbered.encode([1.0, 2.0])
    for call in (named.encode, named.peek, named.encode_table):
        with pytest.raises(ValueError, match="without names, but earlier ones had names; give a "):
            call(np.zeros((1, 2)))
    for call in (numbered.encode, numbered.peek):
        with pytest.raises(ValueError, match="has names, but earlier ones were 2 numbers without"):
            call({"x0": 1.0, "x1": 2.0})
    with pytest.raises(ValueError, match="has 3 numbers, but earlier ones had 2; give as many"):
        numbered.encode([1.0, 2.0, 3.0])


def test_numbers_up_to_the_largest_are_taken():
    for context in [{"a": LARGEST, "b": -LARGEST}, [LARGEST, -LARGEST]]:
        encoder = Encoder()
        for _ in range(3):
            same(encoder.encode(context), [LARGEST, -LARGEST])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"categories": "zip"}, TypeError, r"such as \['zip'\]"),
        ({"categories": [None]}, TypeError, "named by strings"),
        ({"most_columns": 0}, ValueError, "whole number of at least 1, but it is 0"),
        ({"most_columns": True}, ValueError, "whole number of at least 1, but it is True"),
        ({"most_columns": 1.5}, ValueError, "whole number of at least 1, but it is 1.5"),
    ],
)
def test_wrong_settings_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Encoder(**options)


# Tables


def by_row(rows, **options):
    """Return an encoder that was given contexts one by one, and what it made of them."""
    encoder = Encoder(**options)
    vectors = [encoder.encode(row) for row in rows]
    matrix = np.zeros((len(vectors), encoder.width))
    for row, vector in zip(matrix, vectors, strict=True):
        row[: vector.size] = vector
    return encoder, matrix


def agree(tables, rows, **options):
    """Check that every form of a table gives what its rows give, also after a row before it."""
    reference, matrix = by_row(rows, **options)
    for table in tables:
        encoder = Encoder(**options)
        same(encoder.encode_table(table), matrix)
        assert encoder.state() == reference.state()
        half = Encoder(**options)
        half.encode(rows[0])
        half.encode_table(table)
        assert half.state() == by_row([rows[0], *rows], **options)[0].state()


def test_frames_are_read_as_their_rows():
    frame = pd.DataFrame(
        {
            "age": [30.0, math.nan, 41.0, 0.1, math.nan],
            "city": ["Rome", "Oslo", None, "Rome", "Bern"],
            "member": [True, False, True, True, False],
            "visits": [1, 2, 3, 4, 5],
            "zip": [75001, 75002, 75001, 75003, 75002],
            "kind": pd.Categorical(["a", "b", None, "a", "c"]),
            "count": pd.array([1, None, 3, 4, 5], dtype="Int64"),
        }
    )
    rows = frame.to_dict("records")
    mapping = {name: frame[name].tolist() for name in frame}
    agree([frame, mapping, rows, iter(rows)][:3], rows, categories=["zip"])
    polars = pl.DataFrame(
        {name: [None if pd.isna(x) else x for x in mapping[name]] for name in mapping}
    )
    agree([polars], rows, categories=["zip"])
    agree([frame, polars], rows, most_columns=4)


def test_mixed_columns_are_read_as_their_values():
    values = [1, "a", True, 2.5, None, "1", np.float32(2), "a"]
    rows = [{"a": value, "b": 1.0} for value in values]
    table = {"a": values, "b": np.ones(len(values))}
    agree([table, pd.DataFrame(table)], rows)
    agree([table], rows, categories=["a"])


def test_matrices_are_read_as_their_rows():
    matrix = np.random.default_rng(0).normal(size=(50, 4))
    agree([matrix, matrix.tolist(), scipy.sparse.csr_matrix(matrix)], list(matrix))
    matrix[[3, 7, 8], [1, 1, 2]] = np.nan
    agree([matrix, np.ma.masked_invalid(matrix)], list(matrix))


def test_rows_of_a_list_may_differ():
    rows = [{"a": 1.0}, {"b": "x"}, {}, {"a": "y", "b": 2}]
    agree([rows], rows)


def test_empty_tables_teach_nothing():
    for table in [[], pd.DataFrame({"a": []}), np.zeros((0, 3)), {}]:
        encoder = Encoder()
        assert encoder.encode_table(table).shape == (0, 0)
        assert encoder.state() == Encoder().state()


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"a": [1.0], "b": [1.0, 2.0]}, ValueError, r"equally long, not \[1, 2\]"),
        ({"a": 1.0}, TypeError, "the column 'a' of a table must be a list, not a float"),
        ({"a": "xyz"}, TypeError, "the column 'a' of a table must be a list, not a str"),
        ({"a": np.zeros((2, 2))}, TypeError, "the feature 'a' is a ndarray"),
        (np.zeros(3), ValueError, r"rows and columns, but its shape is \(3,\)"),
        ("abc", TypeError, "a list, not a str"),
        (7, TypeError, "a list, not an int"),
        (np.array([[1.0, np.inf]]), ValueError, "the feature 'x1' is inf"),
        (pd.DataFrame({"a": pd.to_datetime(["2024-01-01"])}), TypeError, "such as the hour"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "the features 'a' twice"),
    ],
)
def test_wrong_tables_are_refused(table, error, message):
    encoder = Encoder()
    with pytest.raises(error, match=message):
        encoder.encode_table(table)
    assert encoder.state() == Encoder().state()


names = st.sampled_from(["a", "b", "a missing", "b=x", "c"])
cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(-LARGEST, LARGEST),
    st.just(math.nan),
    st.sampled_from(["x", "y", "z", "1", ""]),
)
options = st.fixed_dictionaries(
    {"categories": st.sets(names, max_size=2), "most_columns": st.integers(1, 12)}
)
quick = settings(max_examples=200, deadline=None, derandomize=True)


@quick
@given(st.lists(names, min_size=1, unique=True), st.data(), options)
def test_tables_of_anything_are_read_as_their_rows(columns, data, options):
    rows = data.draw(st.lists(st.tuples(*[cells] * len(columns)), min_size=1, max_size=12))
    table = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    contexts = [dict(zip(columns, row, strict=True)) for row in rows]
    agree([table, contexts], contexts, **options)


@pytest.mark.filterwarnings("ignore:there are:RuntimeWarning")
@quick
@given(st.lists(st.dictionaries(names, cells), min_size=1, max_size=12), options)
def test_columns_keep_their_meaning(contexts, options):
    encoder, before, width = Encoder(**options), (), 0
    for context in contexts:
        vector = encoder.encode(context)
        assert vector.size == encoder.width >= max(width, len(encoder.names))
        assert encoder.names[: len(before)] == before
        assert len(set(encoder.names)) == len(encoder.names)
        assert np.isfinite(vector).all()
        assert not vector[len(encoder.names) :].any()
        # The quick way and the thorough one.
        same(encoder.peek(context), encoder.peek(OrderedDict(context)))
        before, width = encoder.names, encoder.width
    state = json.loads(json.dumps(encoder.state()))
    copy = Encoder.from_state(state)
    assert copy.state() == encoder.state()
    for context in contexts:
        same(copy.encode(context), encoder.encode(context))
    assert copy.state() == encoder.state()


@quick
@given(st.lists(st.lists(st.one_of(st.none(), st.floats(-9, 9)), min_size=3, max_size=3)))
def test_arrays_and_lists_are_read_alike(rows):
    arrays, lists = Encoder(), Encoder()
    for row in rows:
        same(arrays.encode(np.array(row, dtype=float)), lists.encode(row))
    assert arrays.state() == lists.state()
    assert Encoder.from_state(arrays.state()).state() == arrays.state()


# State


def learned():
    encoder = Encoder(categories=["zip"], most_columns=6)
    encoder.encode({"age": 30.1, "city": "Rome", "zip": 7})
    encoder.encode({"age": None, "city": "Oslo", "zip": 8})
    encoder.encode({"age": 0.2, "city": "Bern", "zip": 9})
    return encoder


def test_states_are_plain_and_restore_everything():
    def plain(value):
        if isinstance(value, dict | list):
            values = value.values() if isinstance(value, dict) else value
            return all(map(plain, values))
        return type(value) in (str, int, float, bool)

    encoder = learned()
    assert plain(encoder.state())
    context = {"age": None, "city": "new", "zip": 8}
    for other in [
        Encoder.from_state(json.loads(json.dumps(encoder.state()))),
        pickle.loads(pickle.dumps(encoder)),
        copy.deepcopy(encoder),
    ]:
        assert other.names == encoder.names
        assert other.width == encoder.width
        same(other.peek(context), encoder.peek(context))
    assert dict(encoder.describe(context))["age"] == (30.1 + 0.2) / 2


def changed(**changes):
    return learned().state() | changes


WRONG = [
    None, [], {}, "state", {"features": []},
    changed(more=1),
    changed(categories="zip"), changed(categories=[1]), changed(categories=["zip", "zip"]),
    changed(categories=["age"]),
    changed(most_columns=0), changed(most_columns=True), changed(most_columns=1e3),
    changed(form="other"), changed(form=[]), changed(form="new"), changed(form="numbered"),
    changed(width=1), changed(width=17), changed(width=10**30), changed(width=-1),
    changed(learned=0), changed(learned=-1), changed(learned="3"), changed(learned=1),
    changed(features=["age", "city"]), changed(features=["age", "city", "city"]),
    changed(features=["age", "city", "zip", "more"], absent=[1, 0, 0, 0]),
    changed(features=["age", "city", 1]), changed(features=["age", "city", ["zip"]]),
    changed(absent=[1, 0]), changed(absent=[1, 1, 0]), changed(absent=[9, 0, 0]),
    changed(absent=[True, 0, 0]), changed(absent=None),
    changed(columns=[]), changed(columns=[["age", "number"]] * 8),
    changed(totals=[math.nan] * 8), changed(totals=[math.inf] * 8), changed(totals=[-1.0] * 8),
    changed(totals=[1] * 8), changed(totals=[0.5] * 8), changed(totals=[]),
]  # fmt: skip


@pytest.mark.parametrize("state", WRONG)
def test_wrong_states_are_refused(state):
    with pytest.raises(ValueError, match="not the state of an encoder"):
        Encoder.from_state(state)


@pytest.mark.parametrize(
    "column",
    [
        ["age", "number", ""], ["nobody", "number", ""], ["city", "number", 1], ["city"], "abc",
        ["city", "wrong", ""], ["city", "missing", "x"], ["zip", "number", ""], [["a"], "b", "c"],
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(column):
    state = learned().state()
    with pytest.raises(ValueError, match="not the state of an encoder"):
        Encoder.from_state(
            state | {"columns": [*state["columns"], column], "totals": [*state["totals"], 0.0]}
        )


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@quick
@given(st.sampled_from(sorted(learned().state())), junk)
def test_junk_is_refused_or_harmless(key, value):
    state = changed(**{key: value})
    with contextlib.suppress(ValueError):
        encoder = Encoder.from_state(state)
        assert encoder.state() == state
        assert encoder.encode({"age": None}).size == encoder.width
