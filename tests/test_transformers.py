"""scikit-learn's transformers on dictionaries, and their compiled rows."""

import math
import pickle
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tsucb.contexts.transformers import CHECKED_ROWS, RowTransform, learned_from, table_of

sklearn = pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer, make_column_selector  # noqa: E402
from sklearn.feature_extraction import DictVectorizer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

NUMBERS, STRINGS = ["age", "income", "visits"], ["city", "plan"]


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 10, rows),
            "city": rng.choice(["Rome", "Oslo", "Bern"], rows),
            "income": rng.lognormal(10, 1, rows),
            "plan": rng.choice(["free", "paid"], rows),
            "visits": rng.integers(0, 9, rows),
            "member": rng.random(rows) < 0.5,
        }
    )
    table.loc[rng.random(rows) < 0.2, "age"] = math.nan
    table.loc[rng.random(rows) < 0.2, "city"] = None
    return table


def strings(*steps):
    return make_pipeline(SimpleImputer(strategy="most_frequent"), *steps)


def numbers(*steps):
    return make_pipeline(SimpleImputer(), *steps)


ignoring = {"handle_unknown": "ignore"}
COMPILED = {
    "usual": ColumnTransformer(
        [("n", numbers(StandardScaler()), NUMBERS), ("s", OneHotEncoder(**ignoring), STRINGS)]
    ),
    "nested": make_pipeline(
        ColumnTransformer(
            [
                ("s", make_pipeline(strings(), OneHotEncoder(**ignoring)), STRINGS),
                ("n", make_pipeline(numbers(), "passthrough", RobustScaler()), NUMBERS),
            ],
            remainder="passthrough",
        ),
        StandardScaler(),
        ColumnTransformer([("a", MaxAbsScaler(), [2, 0]), ("b", "drop", [1])], remainder="drop"),
    ),
    "indicator": ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler()), NUMBERS)]
    ),
    "missing stays": ColumnTransformer([("n", StandardScaler(with_mean=False), ["age", "income"])]),
    "ordinal": ColumnTransformer(
        [
            ("n", SimpleImputer(strategy="constant", fill_value=-1), NUMBERS),
            (
                "s",
                OrdinalEncoder(
                    handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
                ),
                STRINGS,
            ),
        ],
        transformer_weights={"s": 2.5},
    ),
    "drop": ColumnTransformer([("s", OneHotEncoder(drop="first"), STRINGS)]),
    "drop binary": ColumnTransformer([("s", OneHotEncoder(drop="if_binary"), STRINGS)]),
    "codes": ColumnTransformer([("c", OneHotEncoder(**ignoring), ["visits", "member"])]),
    "missing code": ColumnTransformer([("c", OneHotEncoder(**ignoring), ["age"])]),
    "slice": ColumnTransformer([("n", StandardScaler(), slice(4, 6)), ("e", "passthrough", [])]),
    "mask": ColumnTransformer([("n", StandardScaler(), [True, False, True, False, False, False])]),
    "selector": ColumnTransformer(
        [("n", numbers(StandardScaler()), make_column_selector(dtype_include=float))],
        remainder=make_pipeline(OneHotEncoder(**ignoring)),
    ),
}
LEFT = {
    "polynomial": ColumnTransformer(
        [("n", numbers(PolynomialFeatures(2)), NUMBERS), ("s", OneHotEncoder(**ignoring), STRINGS)]
    ),
    "function": ColumnTransformer([("n", FunctionTransformer(np.log1p), ["income"])]),
    "infrequent": ColumnTransformer(
        [("s", OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist"), ["plan"])]
    ),
    "clipped": ColumnTransformer([("n", MinMaxScaler(clip=True), NUMBERS)]),
}


def dense(rows):
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=float)


@pytest.mark.parametrize("name", [*COMPILED, *LEFT])
def test_rows_agree_with_transform(name):
    transformer = sklearn.clone((COMPILED | LEFT)[name]).fit(frame(200))
    row = RowTransform(transformer)
    assert row.compiled == (name in COMPILED)
    table = frame(60, seed=1)
    expected = dense(transformer.transform(table))
    for context, vector in zip(table.to_dict("records"), expected, strict=True):
        np.testing.assert_allclose(row(context), vector, rtol=1e-12, atol=1e-12)
    assert row.compiled == (name in COMPILED)  # the first rows agreed


@pytest.mark.parametrize("name", ["usual", "nested", "ordinal", "indicator", "codes"])
def test_unknown_and_missing_values_agree_with_transform(name):
    transformer = sklearn.clone(COMPILED[name]).fit(frame(200))
    row = RowTransform(transformer)
    assert row.compiled
    usual = frame(1).to_dict("records")[0]
    for change in [
        {"city": "Lima"}, {"city": None}, {"city": math.nan, "plan": "new"}, {"age": None},
        {"age": pd.NA, "income": None}, {"visits": 77, "member": None}, {"extra": 1},
        {"age": np.float32(40), "city": np.str_("Rome"), "visits": np.int8(3)},
    ] * 2:  # fmt: skip
        context = usual | change
        expected = dense(transformer.transform(table_of(context, transformer.feature_names_in_)))
        np.testing.assert_allclose(row(context), expected[0], rtol=1e-12, atol=1e-12)
    lacking = {key: value for key, value in usual.items() if key != "age"}
    np.testing.assert_array_equal(row(lacking), row(usual | {"age": None}))
    assert row.compiled


def test_what_the_transformer_refuses_is_refused():
    table = frame(200).dropna()
    strict = ColumnTransformer([("s", OneHotEncoder(), STRINGS), ("n", StandardScaler(), NUMBERS)])
    row, usual = RowTransform(strict.fit(table)), table.to_dict("records")[0]
    for _ in range(5):
        row(usual)
    with pytest.raises(ValueError, match="Found unknown categories"):
        row(usual | {"city": "Lima"})
    with pytest.raises(ValueError, match="could not convert string to float"):
        row(usual | {"age": "old"})
    with pytest.raises(ValueError, match="infinity"):
        row(usual | {"age": math.inf})
    with pytest.raises(ValueError, match="so a context must have names; give a dictionary with"):
        row([1.0, 2.0])
    with pytest.raises(TypeError, match="features are given as a dictionary"):
        row(None)


def test_contexts_come_in_many_forms():
    table = frame(200)
    row = RowTransform(sklearn.clone(COMPILED["usual"]).fit(table))
    for i in range(10):
        context = table.iloc[i].to_dict()
        expected = row(context)
        for form in [table.iloc[i], table.iloc[[i]], pl.from_pandas(table.iloc[[i]])]:
            np.testing.assert_array_equal(row(form), expected)


def test_transformers_of_arrays_take_arrays():
    matrix = np.random.default_rng(0).normal(3, 2, size=(50, 4))
    scaler = StandardScaler().fit(matrix)
    row = RowTransform(scaler)
    for context in matrix:
        for form in (context, context[None], context.tolist()):
            np.testing.assert_allclose(row(form), scaler.transform(context[None])[0], rtol=1e-12)
    assert row.compiled
    with pytest.raises(ValueError, match="3 features"):
        row([1.0, 2.0, 3.0])


def test_others_are_given_contexts_as_they_are():
    contexts = [{"age": 3.0, "city": "Rome"}, {"age": 4.0, "city": "Oslo"}]
    row = RowTransform(DictVectorizer().fit(contexts))
    assert not row.compiled
    np.testing.assert_array_equal(row(contexts[1]), [4, 1, 0])


class Doubled(StandardScaler):
    def transform(self, X):
        return 2 * super().transform(X)


def test_subclasses_are_not_taken_for_their_parents():
    table = frame(50)[["income"]]
    row = RowTransform(Doubled().fit(table))
    assert not row.compiled
    assert row({"income": 7.0}) == Doubled().fit(table).transform(table_of({"income": 7.0}))[0]


def test_what_was_compiled_wrongly_is_noticed():
    table = frame(50)[["income"]]
    scaler = StandardScaler().fit(table)
    row = RowTransform(scaler)
    scaler.mean_ = scaler.mean_ + 1  # stands for a version that computes something else
    for _ in range(CHECKED_ROWS + 2):
        assert row({"income": 7.0}) == scaler.transform(table_of({"income": 7.0}))[0]
    assert not row.compiled


def test_unfitted_transformers_say_so():
    row = RowTransform(StandardScaler())
    assert not row.compiled
    with pytest.raises(sklearn.exceptions.NotFittedError):
        row([1.0])


def test_rows_take_no_milliseconds():
    row, table = RowTransform(sklearn.clone(COMPILED["usual"]).fit(frame(200))), frame(100)
    contexts = table.to_dict("records")
    for context in contexts:
        row(context)
    started = time.perf_counter()
    for context in contexts:
        row(context)
    # Each takes some 10 µs; transform takes thousands.
    assert time.perf_counter() - started < 100 * 500e-6


def test_tables_have_stable_columns():
    contexts = [{"b": 1, "a": "x"}, {"a": None, "c": 2.5}, {}]
    assert list(table_of(contexts).columns) == ["b", "a", "c"]
    table = table_of(contexts, ["a", "b", "d"])
    assert list(table.columns) == ["a", "b", "d"]
    assert table["d"].dtype == object  # nothing is known of it
    assert table["b"].dtype == float
    assert table["a"].isna().tolist() == [False, True, True]
    assert table_of({"a": 1}).to_dict("records") == [{"a": 1}]
    assert table_of(pd.Series({"a": 1})).to_dict("records") == [{"a": 1}]
    assert table_of(pl.DataFrame({"a": [1, 2]})).to_dict("list") == {"a": [1, 2]}
    assert list(table_of(pd.DataFrame({"a": [1], "b": [2]}), ["b", "a"]).columns) == ["b", "a"]
    assert table_of([], ["a"]).shape == (0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, "old", 1e200])
@pytest.mark.parametrize("fitted", [True, False])
def test_transformers_learn_nothing_from_bad_contexts(bad, fitted):
    scaler = StandardScaler()
    if fitted:
        rows, scaler.__dict__ = learned_from(scaler, [[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_array_equal(rows, [[-1, -1], [1, 1]])
    before = pickle.dumps(scaler)
    with pytest.raises(ValueError, match=r"NaN|infinity|convert"), np.errstate(all="ignore"):
        learned_from(scaler, [[1.0, bad]])
    assert learned_from(scaler, [[5.0, 6.0]])[0].shape == (1, 2)
    assert pickle.dumps(scaler) == before  # what is read counts once it is accepted
