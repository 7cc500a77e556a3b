"""Learning: rewards of decisions, of lists, of many, and from logged data."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from tsucb.agent import fleet
from tsucb.agent.arm_features import HybridReader
from tsucb.agent.calls import (
    CLOSED,
    DECISIONS,
    LEARNED,
    NOTHING,
    PENDING,
    record_closed,
)
from tsucb.agent.contexts import Arm, Context
from tsucb.agent.core import refuse_reentry
from tsucb.agent.decision import Decision
from tsucb.agent.ids import decision_ids, parsed_ids
from tsucb.agent.lists import place_id
from tsucb.agent.many import Decisions
from tsucb.agent.offering import Offering
from tsucb.agent.roster import (
    Roster,
    Undo,
    plain_name,
    record_of,
    records_of,
)
from tsucb.agent.waiting import Closing, NotOpen, Open, arms_of
from tsucb.checks import SMALLEST, flushed, within
from tsucb.models.forgetting import without_forgetting
from tsucb.numeric.arrays import Floats, Integers


class UnknownDecision(LookupError):
    """A reward for a decision that is not open: never made, or closed before.

    >>> import tsucb
    >>> agent = tsucb.Agent(arms=["red", "blue"], features=1, seed=0)
    >>> agent.reward("7-1", 1.0)
    Traceback (most recent call last):
    tsucb.agent.learning.UnknownDecision: decision '7-1' was never made by this agent; check the id
    """


# How the rewards of several places are given.
_MANY = (list, tuple, np.ndarray, Mapping)
_TEXT = (str, bytes)


def _pieces(names: list[Arm], most: int | None) -> Iterator[slice]:
    """Parts of a history with at most so many different arms each; None for all of it at once."""
    first, seen = 0, set[Arm]()
    for i, name in enumerate(names):
        if most is not None and len(seen) == most and name not in seen:
            yield slice(first, i)
            first, seen = i, set()
        seen.add(name)
    yield slice(first, len(names))


def _number(reward: Any) -> float:
    """A reward as a number."""
    try:
        value = None if isinstance(reward, _TEXT) else float(reward)  # which reads text, too
    except (TypeError, ValueError):
        value = None
    if value is None:
        raise TypeError(f"a reward must be a number, not {reward!r}")
    return value


class Learning(Offering):
    """The calls that learn."""

    def reward(self, id: str, reward: Any) -> bool:
        """Learn the reward of a decision, in the context in which it was made, and close it.

        Rewards may come in any order. True if it was learned; False if its arm was removed in the
        meantime. A second reward, or one for an expired, dropped or unknown decision, raises
        `UnknownDecision` and changes nothing.

        A list that `rank` made takes the rewards of its places in their order: a sequence, with
        None for a place that nobody looked at, as are those it is too short for; or a mapping of
        arms to rewards. What was not looked at teaches nothing. True if anything was learned.
        """
        # To ask whether a float is a mapping takes long.
        several = type(reward) is not float and isinstance(reward, _MANY)
        value: Any = reward if several else self.check_reward(reward)
        if self._lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry()
        with self._lock:
            roster = self._roster
            if roster.counts[PENDING] or self._behind:
                roster = self._current()
            decision = roster.open.decision(id)
            if decision is None:
                self._refuse(roster, id)
            record, context, _ = decision
            if isinstance(record, tuple):
                return self._reward_list(roster, id, decision, reward)
            if several:
                raise TypeError(f"decision {id!r} is of one arm; give one reward, not {reward!r}")
            column = roster.columns.get(record)
            if self._coming:
                if column is None:
                    roster, columns = self._all_remembered(roster, [record.name])
                    column = int(columns[0])
                else:
                    self._records.move_to_end(record.name)
            self._doing = id
            if column is None:
                record_closed(roster.books)
            else:
                roster = self._learned(roster, column, context, value)
            roster.open.close(id)
            roster.counts[PENDING] = NOTHING
        if self._log is not None:
            self._log.rewarded(id, value, self._time())
        return column is not None

    def reward_many(self, ids: Sequence[str] | Decisions, rewards: Any) -> int:
        """Learn the rewards of several decisions, in their order, and close them.

        All or none: an id that is not open, or twice among them, raises `UnknownDecision` and
        nothing changes. Returns how many were learned; those of removed arms are not.

        Parameters
        ----------
        ids
            Of the decisions, however they were made; or what `choose_many` returned.
        rewards
            One each.
        """
        if isinstance(ids, _TEXT):
            raise TypeError(f"give a list of ids, not {ids!r}; reward takes one")
        values = self._check_rewards(rewards)
        told: list[str] | None = None
        if isinstance(ids, Decisions) and ids.named is not None:
            numbers, checksums = ids.named
        else:
            told = ids.ids if isinstance(ids, Decisions) else list(ids)
            numbers, checksums = parsed_ids(told)
        if values.size != numbers.size:
            raise ValueError(f"{numbers.size} ids and {values.size} rewards do not match")
        self._check_entry()
        with self._lock:
            roster = self._current()
            try:
                closing = roster.open.closing(numbers, checksums, told)
            except NotOpen as error:
                id = error.args[0]
                if roster.open.decision(id) is None:
                    self._refuse(roster, id)
                message = "a decision is twice among the ids; give each once"
                raise UnknownDecision(message) from None
            roster, columns = self._closing(roster, closing)
            known = np.flatnonzero(columns >= 0)
            contexts = closing.contexts if known.size == columns.size else closing.contexts[known]
            self._doing = Undo(roster.copied())
            roster.counts[PENDING] = LEARNED
            self._learn_rows(roster, columns[known], contexts, values[known], counted=False)
            roster.counts[CLOSED] += columns.size - known.size
            roster.open = closing.after
            roster.counts[PENDING] = NOTHING
            self._doing = None
        if self._log is not None:
            now = self._time()
            for id, value in zip(
                told or decision_ids(numbers, checksums), values.tolist(), strict=True
            ):
                self._log.rewarded(id, value, now)
        return int(known.size)

    def _closing(self, roster: Roster, closing: Closing) -> tuple[Roster, Integers]:
        """Where the arms of decisions are, -1 for those removed."""
        used = np.unique(closing.places)
        records = [closing.records[place] for place in used.tolist()]
        if self._coming:
            names = list(dict.fromkeys(record.name for record in records))
            roster, _ = self._all_remembered(roster, names)
            records = [self._records[record.name] for record in records]
        columns = np.full(len(closing.records), -1, dtype=np.int64)
        columns[used] = [roster.columns.get(record, -1) for record in records]
        return roster, columns[closing.places]

    def _check_rewards(self, rewards: Any) -> Floats:
        """`check_reward` of many: at once if they are numbers and all of them are good."""
        array = np.asarray(rewards)
        if array.dtype.kind in "biuf" and within(array, self._reader.largest):
            values = flushed(array.astype(np.float64).ravel())
            return self.model.check_rewards(values) if self._restricted else values
        array = np.asarray(rewards, dtype=object)
        return np.array([self.check_reward(reward) for reward in array.tolist()], dtype=np.float64)

    def _reward_list(self, roster: Roster, id: str, decision: Open, given: Any) -> bool:
        """Learn what the places of a list earned, and close it."""
        names = [record.name for record in arms_of(decision)]
        rewards = self._rewards_of(id, names, given)
        self._behind = True
        self._unfinished = id, rewards
        learned = self._finish_list(roster)
        if self._log is not None:
            now = self._time()
            for place, value in enumerate(rewards):
                if not math.isnan(value):
                    self._log.rewarded(place_id(id, place), value, now)
        return learned

    def _rewards_of(self, id: str, names: list[Arm], given: Any) -> list[float]:
        """The reward of every place, NaN where nobody looked."""
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in names]
            if unknown:
                raise ValueError(f"the list {id!r} has no arm {unknown[0]!r}; it has {names}")
            given = [given.get(name) for name in names]
        if not isinstance(given, _MANY):
            raise TypeError(
                f"{id!r} is a list of {len(names)} arms; give a reward for every place, None for "
                "one that nobody looked at"
            )
        if len(given) > len(names):
            raise ValueError(f"the list {id!r} has {len(names)} places, but {len(given)} rewards")
        rewards = [math.nan if value is None else self.check_reward(value) for value in given]
        return rewards + [math.nan] * (len(names) - len(rewards))

    def close(self, id: str) -> None:
        """Close a decision without learning anything from it."""
        self._check_entry()
        with self._lock:
            roster = self._current()
            if roster.open.decision(id) is None:
                self._refuse(roster, id)
            self._doing = id
            record_closed(roster.books)
            roster.open.close(id)
            roster.counts[PENDING] = NOTHING
        if self._log is not None:
            self._log.expired([id], None, self._time())

    def check_reward(self, reward: float) -> float:
        """A reward as a number that the model can learn from, or a sentence on why it cannot."""
        value = reward if type(reward) is float else _number(reward)
        largest = self._reader.largest
        if not abs(value) <= largest:
            raise ValueError(
                f"a reward must be a finite number, at most ±{largest:g}, not {reward}"
            )
        if self._restricted:
            self.model.check_rewards(np.array([value]))
        return value if abs(value) >= SMALLEST else 0.0

    def _refuse(self, roster: Roster, id: str) -> NoReturn:
        if isinstance(id, Decision):
            raise TypeError(f"give the id of the decision, {id.id!r}, instead of the decision")
        number, decisions = str(id).partition("-")[0], roster.books.counts[DECISIONS]
        if number.isdecimal() and len(number) < 20 and 0 < int(number) <= decisions:
            raise UnknownDecision(
                f"decision {id!r} is not open: it was rewarded, expired or dropped before, lost "
                "when an older file was loaded, or never made by this agent"
            )
        raise UnknownDecision(f"decision {id!r} was never made by this agent; check the id")

    def expire(self, older_than: float | timedelta, reward: float | None = None) -> int:
        """Close the decisions older than so many seconds, and return how many there were.

        Parameters
        ----------
        older_than
            Age in seconds, or a `timedelta`.
        reward
            What their arms are taken to have earned, such as 0 for "no click came"; None to learn
            nothing from them.
        """
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if not isinstance(age, Real) or math.isnan(age):
            raise ValueError(f"older_than must be an age in seconds, not {older_than!r}")
        value = None if reward is None else self.check_reward(reward)
        self._check_entry()
        before = self._time() - age
        with self._lock:
            roster = self._current()
            old, rest = roster.open.before(before)
            if not old:
                return 0
            after = roster.copied(rest)
            places = sum(len(arms_of(decision)) for decision in old.values())
            known: list[tuple[int, bytes]] = []
            if value is not None:
                for decision in old.values():
                    records, x = arms_of(decision), decision[1]
                    step = len(x) // len(records) if self._per_arm else 0
                    rows = [
                        x[n * step : (n + 1) * step] if step else x for n in range(len(records))
                    ]
                    pairs = zip(records, rows, strict=True)
                    known += [(after.columns[r], row) for r, row in pairs if r in after.columns]
                self._learn_all(after, known, [value] * len(known), counted=False)
            after.books.counts[CLOSED] += places - len(known)
            self._roster = after
        if self._log is not None:
            told = [
                place_id(id, n) if isinstance(decision[0], tuple) else id
                for id, decision in old.items()
                for n in range(len(arms_of(decision)))
            ]
            self._log.expired(told, value, self._time())
        return len(old)

    def update(self, context: Context, arm: Arm, reward: float, features: Any = None) -> None:
        """Learn from an observation that was no decision of this agent.

        For `Linear` the context is the feature vector of the arm; for `HybridLinear` that of the
        arm are its `features`.
        """
        given = self._read_one(context, arm, features)
        value = self.check_reward(reward)
        self._check_entry()
        with self._lock:
            roster, x = self._widened(self._current(), given)
            roster, column = self._column_of(roster, arm)
            self._doing = None
            roster = self._learned(roster, column, x, value, counted=True)
            roster.counts[PENDING] = NOTHING

    def fit(
        self, history: Any, *, arm: str = "arm", reward: str = "reward",
        features: Sequence[str] = (), cluster: Any = None,
    ) -> None:  # fmt: skip
        """Learn from logged data, in its order. Everything is checked before anything is learned.

        Parameters
        ----------
        history
            A table (pandas, polars, or a mapping of columns) with the columns `arm`, `reward` and
            one per feature; or three arrays: contexts, arms, rewards. Contexts are as in `update`.
            Or the path of a Parquet file, or of a folder of them, which are read in pieces, in the
            order of their names; arms and rewards of all are checked first.
        arm, reward
            Names of the columns.
        features
            For `HybridLinear`: the columns that are features of the arm, not of the context.
        cluster
            With a path: the address of a Dask scheduler, or a client. Its workers, which must see
            the same files, learn one file each, and what they learned is merged; the agent must not
            be used meanwhile. For models that can be merged.
        """
        if isinstance(history, str | os.PathLike):
            self._fit_files(history, {"arm": arm, "reward": reward, "features": features}, cluster)
            return
        if cluster is not None:
            raise TypeError("a cluster reads files; give the path of a folder of Parquet files")
        if isinstance(self._reader, HybridReader):
            self._fit_arms(history, arm, reward, features)
            return
        if features:
            raise TypeError(f"{self._reader.model_name} knows no features of arms beside a context")
        if isinstance(history, Mapping) or hasattr(history, "columns"):
            history = self._reader.columns(history, arm, reward)
        if not isinstance(history, tuple | list) or len(history) != 3:
            raise ValueError("a history is a table, or three arrays: contexts, arms, rewards")
        contexts, arms, rewards = history
        names = np.asarray(arms).tolist() if isinstance(arms, np.ndarray) else list(arms)
        values = [self.check_reward(value) for value in rewards]
        for name in dict.fromkeys(names):
            record_of(name, self._records)  # before the reader learns anything from the contexts
        self._check_entry()
        if contexts is None or not self._reader.takes_context:
            x = self._reader.vector(contexts)  # refuses, unless the model takes no context
            vectors = np.tile(x, (len(names), 1))
        else:
            vectors = self._reader.matrix(contexts)
        if not len(names) == len(values) == len(vectors):
            raise ValueError(
                f"{len(vectors)} contexts, {len(names)} arms and {len(values)} rewards do not "
                "match; give one of each per observation"
            )
        with self._lock:
            records = [record_of(name, self._records) for name in names]
            roster = self._current()
            if self._free:
                roster, vectors = self._fitted_rows(roster, vectors)
            after = roster.copied()
            pairs = [(after.columns[r], x.tobytes()) for r, x in zip(records, vectors, strict=True)]
            self._learn_all(after, pairs, values, counted=True)
            self._roster = after

    def _fit_files(
        self, path: str | os.PathLike[str], settings: dict[str, Any], cluster: Any
    ) -> None:
        """`fit` on Parquet files."""
        fleet.check_files(self, path, settings)
        if cluster is None:
            for table in fleet.pieces(path):
                self.fit(table, **settings)
            return
        merged = fleet.fitted_on_cluster(self, path, settings, cluster)
        self._check_entry()
        with self._lock:
            self._reader, self._records = merged._reader, merged._records
            self._roster, self._settled = merged._roster, True

    def _fit_arms(self, history: Any, arm: str, reward: str, features: Sequence[str]) -> None:
        """`fit` for arms with features: a table, or contexts, arms, features and rewards."""
        reader = self._reader
        assert isinstance(reader, HybridReader)
        if isinstance(history, Mapping) or hasattr(history, "columns"):
            history = reader.history(history, arm, reward, features)
        if not isinstance(history, tuple | list) or len(history) != 4:
            raise ValueError("a history is a table, or four: contexts, arms, features, rewards")
        contexts, names, described, rewards = history
        names = list(names)
        contexts = [None] * len(names) if contexts is None else list(contexts)
        described = [None] * len(names) if described is None else list(described)
        values = [self.check_reward(value) for value in rewards]
        if not len(names) == len(values) == len(contexts) == len(described):
            raise ValueError("a history needs a context, an arm and a reward per observation")
        for name in dict.fromkeys(names):
            if self._coming:
                plain_name(name)
            else:
                record_of(name, self._records)
        self._check_entry()
        given = [reader.read(x, [z]) for x, z in zip(contexts, described, strict=True)]
        with self._lock:
            roster = self._current()
            if given:  # the last is as wide as any
                roster, _ = self._fitted_arms(roster, reader, given[-1])
            model = without_forgetting(roster.model)
            rows = [reader.laid_out(x, z, model) for x, z in given]
            roster = roster.copied()
            for piece in _pieces(names, max(self.most_arms // 2, 1) if self._coming else None):
                some = list(dict.fromkeys(names[piece]))
                if self._coming:
                    roster, places = self._all_remembered(roster, some)
                else:
                    places = roster.offer(records_of(some, self._records)).columns
                column = dict(zip(some, places.tolist(), strict=True))
                pairs = [
                    (column[name], row.tobytes())
                    for name, row in zip(names[piece], rows[piece], strict=True)
                ]
                self._learn_all(roster, pairs, values[piece], counted=True)
            self._roster = roster
