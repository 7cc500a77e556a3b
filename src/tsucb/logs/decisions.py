"""Logged decisions, read from a decision log or from a table of your own."""

import contextlib
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import shown
from tsucb.extras import require
from tsucb.logs.decision_log import context_of, is_decision_log
from tsucb.logs.decision_log import read as read_log
from tsucb.logs.logged_data import LoggedData, check_events
from tsucb.logs.parquet import (
    EXPANSION,
    MOST_COLUMNS,
    check_width,
    open_parquet,
    read_errors,
)
from tsucb.numeric.arrays import Floats, Integers

if TYPE_CHECKING:
    import pandas as pd

DROP, RECENT = "drop", "recent"
# Bytes that the first line of a CSV file may have, and that any compressed file may expand to.
MOST_HEADER, SMALL_TEXT = 1 << 20, 1 << 28
MOST_LOST = 0.05  # share of the older decisions that may have no reward with "recent"


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions in the order in which they were made.

    Parameters
    ----------
    arms : (K,) names
    arm, reward : (N,) index of the arm played, and its reward; NaN where that is missing
    contexts : N mappings of names to values, lists of numbers, or None
    offered : (N, K) which arms could be played
    propensity : (N,) the probability with which the arm was played
    probabilities : (N, K) of all arms; None where only that of the arm played is known
    time : (N,) in seconds; the numbers 0, 1, … where the log has no times
    reward_time : (N,) when the reward came; right after the decision where the log has no times
    arm_features : N mappings of the arms to their features; None where the log has none
    """

    arms: tuple[str, ...]
    arm: Integers
    reward: Floats
    contexts: list[Any]
    offered: NDArray[np.bool_]
    propensity: Floats
    probabilities: Floats | None
    time: Floats
    reward_time: Floats
    arm_features: list[dict[str, Any] | None] | None = None

    def __len__(self) -> int:
        return self.arm.size

    def rewarded(self, missing: float | str | None = None) -> "Decisions":
        """Return the decisions with rewards; refuse, leave out or fill in those without one.

        Parameters
        ----------
        missing
            The reward of a decision without one, such as 0 for "no click came". "drop" leaves such
            decisions out, for rewards that get lost by chance. "recent" leaves out all decisions
            that are younger than rewards usually take, with and without a reward, as rewards that
            come early differ from the others; at most one in 20 of the older ones may have none.
        """
        if missing == RECENT:
            old = self.some(old_enough(self.time, self.reward_time))
            return old.rewarded(None if np.isnan(old.reward).mean() > MOST_LOST else DROP)
        filled = number_of(missing) if missing not in (None, DROP) else math.nan
        gone = np.isnan(self.reward)
        if not gone.any():
            return self
        if missing is None:
            raise ValueError(
                f"{gone.sum():,} of {gone.size:,} decisions have no reward; say what that means: "
                "missing=0 if nothing was earned, missing='drop' if rewards get lost by chance, or "
                "missing='recent' to leave out those that are too young"
            )
        if missing == DROP:
            return self.some(~gone)
        late = np.where(np.isnan(self.reward_time), self.time, self.reward_time)
        return replace(self, reward=np.where(gone, filled, self.reward), reward_time=late)

    def some(self, which: NDArray[np.bool_]) -> "Decisions":
        """Return the decisions for which `which` (N,) is true."""
        if not which.any():
            raise ValueError("no decision of the log has a reward; there is nothing to learn from")
        kept: dict[str, Any] = {
            field.name: [x for x, take in zip(value, which, strict=True) if take]
            if isinstance(value, list)
            else value[which]
            for field in fields(self)
            if field.name != "arms" and (value := getattr(self, field.name)) is not None
        }
        return replace(self, **kept)

    def feature_matrix(self, intercept: bool = False) -> Floats:
        """Return the contexts as (N, d) numbers; raise ValueError where one is text or missing.

        `intercept` adds a feature that is always 1, for models without a constant, such as
        `NIGLinear`.
        """
        if self.contexts[0] is None:
            return np.empty((len(self), 0))
        require("tables", "pandas")
        import pandas as pd

        table = pd.DataFrame(self.contexts)
        for name in table:
            check_events(table[name].notna().to_numpy(), f"column {name!r} is empty")
        ones = np.ones((len(self), int(intercept)))
        return np.column_stack([ones, *(numeric(table, str(name)) for name in table)])

    def logged_data(self, contexts: Floats) -> LoggedData:
        """Return the decisions for compiled code, with these contexts; all must have a reward."""
        check_events(~np.isnan(self.reward), "there is no reward")
        sets, which = np.unique(self.offered, axis=0, return_inverse=True)
        return LoggedData(
            self.arm,
            self.reward,
            contexts,
            available=([np.flatnonzero(each) for each in sets], which.reshape(-1)),
            propensity=self.propensity,
        )


def read_decisions(
    log: Any,
    *,
    arm: str = "arm",
    reward: str = "reward",
    contexts: Sequence[str] | None = None,
    available: str | None = None,
    propensity: str | None = None,
    uniform: bool = False,
) -> Decisions:
    """Return the decisions in a decision log (`Agent(log=…)`), or in a table of your own.

    Parameters
    ----------
    log
        The path of a decision log, or of a `.csv`, `.csv.gz` or `.parquet` file with one row per
        decision, in order; or a data frame. A decision log needs no further arguments.
    arm, reward, propensity
        Names of the columns; arms may have any names.
    contexts
        Names of columns, which may hold text and gaps; by default all columns not named otherwise.
    available
        Column with the arms that could have been played: a list, or text such as `a|b|c` with
        `|`, `;`, `,` or spaces between the names; every arm of the log by default.
    uniform
        True, in place of `propensity`, if each available arm was played with the same probability.
    """
    table, where = as_table(log)
    if {"probabilities", "arms", "propensity", "context"} <= set(table.columns):
        decisions = logged_decisions(table)
        if decisions.probabilities is None:
            raise ValueError(
                f"{where} holds no probabilities, so it cannot say what others would have earned; "
                "log with a floor: Agent(exploration=0.05, log=…)"
            )
        return decisions
    if (propensity is None) != uniform:
        raise ValueError(
            "say how the arms were logged: either name the column with the propensity of every "
            "decision, or uniform=True if each available arm was played with the same probability"
        )
    check_width(where, len(table.columns))
    columns = table.columns.astype(str).tolist()
    named = [name for name in (arm, reward, available, propensity) if name is not None]
    features = [c for c in columns if c not in named] if contexts is None else list(contexts)
    for name in [*named, *features]:
        if name not in columns:
            raise ValueError(f"{where} has no column {name!r}; it has {', '.join(columns)}")
        if name != reward and name in named:
            check_events(table[name].notna().to_numpy(), f"column {name!r} is empty")
    sets = None if available is None else list(map(arms_of, table[available]))
    names, played, offered = arms_and_offers(table[arm].astype(str).tolist(), sets)
    rows = np.arange(len(table))
    chances = offered / offered.sum(axis=1, keepdims=True) if uniform else None
    known = numeric(table, str(propensity)) if chances is None else chances[rows, played]
    check_events((known > 0) & (known <= 1), "the propensity is not above 0 and at most 1")
    values = numeric(table, reward)
    check_events(~np.isinf(values), "the reward is not a finite number")
    records: list[Any] = table[features].to_dict("records") if features else [None] * len(table)
    when = rows.astype(np.float64)
    return Decisions(names, played, values, records, offered, known, chances, when, when)


def as_table(log: Any) -> tuple["pd.DataFrame", str]:
    """Return a log, given or at this path, as a data frame, and its name in messages."""
    if isinstance(log, str | os.PathLike):
        path = Path(log)
        return (read_log(path) if is_decision_log(path) else read_table(path)), str(path)
    table = log.to_pandas() if hasattr(log, "to_pandas") else log
    if not hasattr(table, "columns"):
        raise TypeError(f"a log is a path, a data frame or Decisions, not {type(log).__name__}")
    if table.empty:
        raise ValueError("the table holds no decisions, only columns")
    return table, "the table"


def arms_and_offers(
    played: list[str], available: list[Any] | None
) -> tuple[tuple[str, ...], Integers, NDArray[np.bool_]]:
    """Return the names of all arms, (N,) the arms played, and (N, K) which arms were available.

    `available` has the names of each decision's available arms; None if all were.
    """
    names = tuple(sorted({*played, *(name for each in available or [] for name in each)}))
    index = {name: i for i, name in enumerate(names)}
    numbers = np.array([index[name] for name in played], dtype=np.int64)
    offered = np.ones((len(played), len(names)), dtype=np.bool_)
    if available is not None:
        offered = by_arm(available, [True] * len(available), names, False)
    check_events(offered[np.arange(numbers.size), numbers], "the logged arm was not available")
    return names, numbers, offered


def logged_decisions(table: "pd.DataFrame") -> Decisions:
    """Return the decisions of a table from `decision_log.read`.

    Their `probabilities` are None if the log lacks those of some decision.
    """
    names, played, offered = arms_and_offers(table["arm"].tolist(), table["arms"].tolist())
    contexts, features = zip(*map(context_of, table["context"]), strict=True)
    known = table["propensity"].notna().all()
    return Decisions(
        names,
        played,
        table["reward"].to_numpy(dtype=np.float64),
        list(contexts),
        offered,
        table["propensity"].to_numpy(dtype=np.float64),
        by_arm(table["arms"], table["probabilities"], names, 0.0) if known else None,
        table["time"].to_numpy(dtype=np.float64),
        table["reward_time"].to_numpy(dtype=np.float64),
        None if all(arms is None for arms in features) else list(features),
    )


def by_arm(arms: Iterable[Any], values: Iterable[Any], names: Sequence[str], other: Any) -> Any:
    """Return a matrix (N, K): in each row the values listed for some arms, and `other` elsewhere.

    `arms` has the names of these arms for each of the N rows, `names` those of all K.
    """
    index, rows = {name: i for i, name in enumerate(names)}, list(arms)
    matrix = np.full((len(rows), len(names)), other)
    for number, (row, listed) in enumerate(zip(rows, values, strict=True)):
        matrix[number, [index[name] for name in row]] = listed
    return matrix


def old_enough(time: Floats, reward_time: Floats) -> NDArray[np.bool_]:
    """Return which decisions are older than the time within which 99 of 100 rewards come."""
    took = (reward_time - time)[~np.isnan(reward_time)]
    if not took.size:
        return np.ones(time.size, dtype=np.bool_)
    end = max(float(time.max()), float(np.nanmax(reward_time)))
    old: NDArray[np.bool_] = time <= end - np.quantile(took, 0.99)
    return old


def number_of(missing: Any) -> float:
    """Return the number that stands for a missing reward; raise ValueError unless it is finite."""
    with contextlib.suppress(TypeError, ValueError):
        if math.isfinite(float(missing)):
            return float(missing)
    raise ValueError(f"missing is a number, 'drop' or 'recent', not {shown(missing)}")


def read_table(path: Path) -> "pd.DataFrame":
    """Return the table in a CSV or Parquet file."""
    require("tables", "pandas")
    import pandas as pd

    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ValueError(f"{path} is neither .csv, .csv.gz nor .parquet")
    if path.suffix == ".parquet":
        file = open_parquet(path)
        with read_errors(path):
            table: pd.DataFrame = file.read().to_pandas()
    else:
        try:
            with read_errors(path), text_of(path) as text:
                table = pd.read_csv(text)
        except (EOFError, zlib.error) as error:
            raise ValueError(f"{path} is truncated or damaged: {error}") from None
    if table.empty:
        raise ValueError(f"{path} holds no events, only a header")
    return table


def text_of(path: Path) -> BinaryIO:
    """Return the text of a table, decompressed; raise ValueError if it is far too large."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = file.readline(MOST_HEADER)
        if len(first) == MOST_HEADER:
            raise ValueError(
                f"its first line has more than {MOST_HEADER:,} bytes; it must name the columns, "
                f"at most {MOST_COLUMNS:,}"
            )
        if path.suffix != ".gz":
            return path.open("rb")
        most = max(SMALL_TEXT, EXPANSION * path.stat().st_size)
        text = first + file.read(most)
        if len(text) > most:
            raise ValueError(f"it expands to more than {EXPANSION} times its size")
    return io.BytesIO(text)


def arms_of(entry: Any) -> tuple[str, ...]:
    """Return the arms in an entry of a column of available arms: a list, or text.

    >>> arms_of("a|b c"), arms_of([1, 2]), arms_of(7)
    (('a', 'b', 'c'), ('1', '2'), ('7',))
    """
    if isinstance(entry, list | tuple | np.ndarray):
        return tuple(map(str, entry))
    return tuple(re.split(r"[\s|;,]+", str(entry).strip()))


def numeric(table: "pd.DataFrame", name: str) -> Floats:
    """Return a column of numbers; raise ValueError if it holds text."""
    column = table[name]
    if column.dtype.kind not in "biuf":
        import pandas as pd

        text = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
        example = str((column if text.empty else text).iloc[0])[:100]
        raise ValueError(
            f"column {name!r} holds text, such as {example!r}, where numbers are "
            "expected; encode it, or name the context columns that are numbers"
        )
    return column.to_numpy(dtype=np.float64)
