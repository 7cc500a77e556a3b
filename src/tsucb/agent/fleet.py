"""Agents that learn apart and are put together; and histories too long for one table."""

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.arm_features import HybridReader
from tsucb.agent.calls import PENDING, Books
from tsucb.agent.contexts import Arm, FreeReader, Reader
from tsucb.agent.encoding import Encoder
from tsucb.agent.roster import (
    PER_COLUMN,
    Roster,
    columns_of,
    plain_name,
    record_of,
)
from tsucb.agent.waiting import ArmRecord, Entries, Waiting
from tsucb.models.forgetting import without_forgetting
from tsucb.models.model import Model
from tsucb.structure import pack_object

if TYPE_CHECKING:
    from tsucb.agent.agent import Agent
    from tsucb.agent.learning import Learning

ROWS = 50_000  # of a file that are read at a time


def merge(first: "Agent", second: "Agent", base: "Agent | None" = None) -> "Agent":
    """The agent that has learned all that two agents have since they were one.

    What it believes is what one agent would believe that had learned all of it, in any order. Two
    copies of an agent go their own ways in two processes, and are put together again; then both go
    on from the result. A model that forgets or trains cannot be merged, and says so.

    Parameters
    ----------
    first, second
        Copies of `base`, or agents made alike, which went on by themselves. They are not changed.
    base
        What both were: the agent as it was copied, or as the file that both loaded has it. By
        default nothing, for two agents that began anew.

    Returns
    -------
    Agent
        With the settings and the clock of the first, without a log. Arms added to either are there,
        those removed from either are not. A decision stays open if neither has closed it.

    >>> import copy, tsucb
    >>> base = tsucb.Agent(["red", "blue"], seed=0)
    >>> one, two = copy.copy(base), copy.copy(base)
    >>> one.update({"x": 1.0}, "red", 3.0)
    >>> two.update({"x": 2.0}, "blue", 5.0)
    >>> merge(one, two, base).arms_summary()["pulls"].tolist()
    [1, 1]
    """
    for agent in (first, second, *(() if base is None else (base,))):
        if not hasattr(agent, "_roster"):
            raise TypeError(f"agents are merged, not {agent!r}; load them first")
    if type(first.model).merged is Model.merged:
        first.model.merged(None, None, None)  # says why not
    one, two = first.__copy__(), second.__copy__()
    start = _blank_like(one) if base is None else base.__copy__()
    for other in (two, start):
        if _settings(one) != _settings(other):
            raise ValueError(
                "agents with different models, policies or features cannot be merged; make them "
                "alike, or copy one"
            )
    if _is_older(start, one) or _is_older(start, two):
        raise ValueError(
            "the base has made decisions or seen rewards that the agents have not; give what both "
            "were copied from"
        )
    one._reader, rosters = _same_columns(one, two, start)
    records = _same_arms(one, two, start)
    mine, theirs, before = (_with_arms(roster, records) for roster in rosters)
    state = mine.model.merged(mine.state, theirs.state, before.state)
    books = _added(mine.books, theirs.books, before.books)
    # All three have the arms in the same order.
    columns = dict(zip(records.values(), mine.columns.values(), strict=True))
    open = _still_open(mine, theirs, before, records)
    one._records = OrderedDict(records)
    one._roster = Roster(mine.model, columns, state, books, open, mine.axes)
    one._settled = True
    words: list[Any] = [agent._rng.bit_generator.state for agent in (first, second)]
    one._rng = np.random.default_rng(
        [word["state"][name] for word in words for name in ("state", "inc")]
    )
    return one


def _settings(agent: "Agent") -> Any:
    """What two agents must have in common; a width that is learned is none of it."""
    model: Any = agent.model
    packed: dict[str, Any] = pack_object(model, [])
    if agent._free:
        packed = {"class": packed["class"]}
    return packed, agent.policy, agent._reader.names, agent._free, agent._coming


def _blank_like(agent: "Agent") -> "Agent":
    """An agent made like this one that has seen nothing."""
    model: Any = None if agent._free else agent.model
    arms = None if agent._coming else (agent.arms or ["none"])
    names = agent._reader.names
    categories = sorted(_encoders(agent._reader)[0].categories) if agent._free else ()
    return type(agent)(arms, names, model=model, policy=agent.policy, seed=0,
                       transformer=agent._reader.transformer, categories=categories)  # fmt: skip


def _encoders(reader: Reader) -> tuple[Encoder, ...]:
    if isinstance(reader, HybridReader):
        return reader.encoders or ()
    return (reader.encoder,) if isinstance(reader, FreeReader) else ()


def _same_columns(one: "Agent", two: "Agent", start: "Agent") -> tuple[Reader, list[Roster]]:
    """What reads for all three, and their rosters with its columns."""
    rosters = [agent._current() for agent in (one, two, start)]
    if not one._free:
        return one._reader, rosters
    triples = zip(*(_encoders(agent._reader) for agent in (one, two, start)), strict=True)
    joined = [a.joined(b, c) for a, b, c in triples]
    encoders = [encoder for encoder, _ in joined]
    hybrid = isinstance(one._reader, HybridReader)
    widths: Any = tuple(encoder.used for encoder in encoders) if hybrid else encoders[0].width
    wide = []
    for agent, roster in zip((one, two, start), rosters, strict=True):
        model = without_forgetting(roster.model)
        have = (model.context, model.features) if hybrid else (model.features,)
        places = []
        for encoder, own, count in zip(encoders, _encoders(agent._reader), have, strict=True):
            at = {column: i for i, column in enumerate(encoder._vocabulary.columns)}
            # Columns that the model does not have yet are left out, as are its own without a name.
            there = [at[column] for column in own._vocabulary.columns][:count]
            places.append(np.array(there, dtype=np.int64))
        wide.append(roster.widened(widths, tuple(places) if hybrid else places[0]))
    model = without_forgetting(wide[0].model)
    if hybrid:
        return HybridReader(model, (encoders[0], encoders[1])), wide
    return FreeReader(wide[0].model, encoders[0]), wide


def _is_older(base: "Agent", agent: "Agent") -> bool:
    then, now = base._roster.books.counts, agent._roster.books.counts
    return bool(
        (np.delete(then, [PENDING, PENDING + 1]) > np.delete(now, [PENDING, PENDING + 1])).any()
    )


def _same_arms(one: "Agent", two: "Agent", start: "Agent") -> dict[Arm, ArmRecord]:
    """The arms that neither has removed, by their names."""
    removed: set[Arm] = set()
    if not one._coming:
        removed = {name for name in start.arms if name not in one.arms or name not in two.arms}
    names = dict.fromkeys(name for agent in (one, two) for name in agent.arms)
    records = {name: ArmRecord(name) for name in names if name not in removed}
    if not records and not one._coming:
        raise ValueError("the agents have no arm in common; at least one must be left")
    return records


def _with_arms(roster: Roster, records: dict[Arm, ArmRecord]) -> Roster:
    """The roster with these arms alone, in this order; those that are new to it have no data."""
    known = {record.name: record for record in roster.columns}
    ordered = roster.with_arms([known.get(name, record) for name, record in records.items()])
    order = np.array(list(ordered.columns.values()), dtype=np.int64)
    if ordered.axes is None:
        raise ValueError(f"{type(roster.model).__name__} cannot be merged")
    books = ordered.books._replace(
        **{name: getattr(ordered.books, name)[order] for name in PER_COLUMN}
    )
    state = columns_of(ordered.state, order, ordered.axes)
    places = {record: i for i, record in enumerate(ordered.columns)}
    return Roster(ordered.model, places, state, books, ordered.open, ordered.axes)


def _added(one: Books, two: Books, base: Books) -> Books:
    """Counts of both, those from before once."""
    sums = {
        name: getattr(one, name) + getattr(two, name) - getattr(base, name)
        for name in ("counts", "chosen", "pulls", "totals")
    }
    sums["counts"][PENDING:] = 0
    mixed = (int(one.checksum[0]) ^ 3 * int(two.checksum[0])) % 2**64
    checksum = np.array([mixed, 0], dtype=np.uint64)
    return Books(sums["counts"], checksum, one.tokens.copy(), sums["chosen"], sums["pulls"],
                 sums["totals"])  # fmt: skip


def _still_open(one: Roster, two: Roster, base: Roster, records: dict[Arm, ArmRecord]) -> Waiting:
    """The decisions that nobody has closed, for the arms as they are now."""
    mine, theirs, before = (each.open.decisions() for each in (one, two, base))
    closed = {id for id in before if id not in mine or id not in theirs}
    result: Entries = {}
    for id, (record, context, when) in {**theirs, **mine}.items():
        if id not in closed:
            if isinstance(record, tuple):
                result[id] = tuple(records.get(r.name, r) for r in record), context, when
            else:
                result[id] = records.get(record.name, record), context, when
    return Waiting(result)


def pieces(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The rows of a Parquet file, or of all in a folder in the order of their names, in pieces."""
    import pyarrow.parquet as pq

    for file in files(path):
        for batch in pq.ParquetFile(file).iter_batches(ROWS):
            yield batch.to_pandas()


def files(path: str | os.PathLike[str]) -> list[Path]:
    """The Parquet files at a path, or a sentence that there are none."""
    where = Path(path)
    found = sorted(where.glob("*.parquet")) if where.is_dir() else [where]
    if not found or not all(file.is_file() for file in found):
        raise ValueError(f"there is no Parquet file at {where}; give a file, or a folder of them")
    return found


def check_files(agent: "Learning", path: str | os.PathLike[str], settings: dict[str, Any]) -> None:
    """Complain about arms or rewards that cannot be learned, before anything is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arm, reward = settings["arm"], settings["reward"]
    for file in files(path):
        try:
            table = pq.ParquetFile(file)
            names = set(table.schema_arrow.names)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"cannot read {file}: {' '.join(str(error).split())}") from None
        for column in (arm, reward):
            if column not in names:
                raise ValueError(
                    f"{file} has no column {column!r}; say which are meant with "
                    "fit(history, arm=…, reward=…)"
                )
        for batch in table.iter_batches(ROWS, columns=[arm, reward]):
            part = batch.to_pydict()
            for name in dict.fromkeys(part[arm]):
                if agent._coming:
                    plain_name(name)
                else:
                    record_of(name, agent._records)
            for value in part[reward]:
                agent.check_reward(value)


def fitted_on_cluster(
    agent: Any, path: str | os.PathLike[str], settings: Any, cluster: Any
) -> "Agent":
    """The agent after the files at a path, of which Dask's workers learn one each."""
    try:
        from distributed import Client, as_completed
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "cluster= needs Dask; install it with: pip install 'tsucb[cluster]'"
        ) from None
    base: Agent = agent.__copy__()
    client = cluster if isinstance(cluster, Client) else Client(cluster, timeout=10)
    try:
        tasks = [
            client.submit(_fitted_file, base, str(file.resolve()), settings, pure=False)
            for file in files(path)
        ]
        parts: dict[Any, Agent] = {}
        for task in as_completed(tasks):
            parts[task] = task.result()
    finally:
        if client is not cluster:
            client.close()
    result = base
    for task in tasks:  # in the order of the files, so that every run gives the same
        result = merge(result, parts[task], base)
    return result


def _fitted_file(base: "Agent", path: str, settings: Any) -> "Agent":
    agent = base.__copy__()
    for table in pieces(path):
        agent.fit(table, **settings)
    return agent
