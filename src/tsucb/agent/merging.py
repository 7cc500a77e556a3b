"""Put agents together that learned apart, and learn from histories too long for one table."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.knowledge import Knowledge, known_name, plain_name
from tsucb.agent.learner import Learner
from tsucb.agent.machine import DUE, PER_COLUMN, Books
from tsucb.agent.open_decisions import (
    END,
    IDS,
    LIMIT,
    PER_ROW,
    USED,
    OpenTable,
    empty_table,
    open_rows,
    packed_table,
)
from tsucb.agent.open_decisions import ROWS as OPEN_ROWS
from tsucb.agent.snapshot import check_knowledge
from tsucb.contexts.encoding import Encoder
from tsucb.contexts.readers import AnyArmFeatures, AnyContext, Arm, Reader
from tsucb.contexts.values import shown
from tsucb.extras import require
from tsucb.models.forgetting import without_forgetting
from tsucb.structure import pack_object

if TYPE_CHECKING:
    from tsucb.agent.agent import Agent

ROWS = 50_000  # of a file that are read at a time


def merge(first: "Agent", second: "Agent", base: "Agent | None" = None) -> "Agent":
    """Return the agent that has learned all that two agents have since they were one.

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
        if not hasattr(agent, "_learner"):
            raise TypeError(f"agents are merged, not {shown(agent)}; load them first")
    if not first.model.merges:
        first.model.merged(None, None, None)  # says why not
    result, other = first.__copy__(), second.__copy__()
    start = _blank_like(result) if base is None else base.__copy__()
    one, two, old = (agent._learner for agent in (result, other, start))
    for each in (two, old):
        if _settings(one) != _settings(each):
            raise ValueError(
                "agents with different models, policies or features cannot be merged; make them "
                "alike, or copy one"
            )
    if _is_older(old, one) or _is_older(old, two):
        raise ValueError(
            "the base has made decisions or seen rewards that the agents have not; give what both "
            "were copied from"
        )
    reader, wide = _same_columns(one, two, old)
    names = _same_arms(one, two, old)
    mine, theirs, before = (_with_arms(known, names) for known in wide)
    state = mine.model.merged(mine.state, theirs.state, before.state)
    books = _added(mine.books, theirs.books, before.books)
    table, departed, given = _still_open(
        *zip((mine, theirs, before), (result, other, start), strict=True)
    )
    known = Knowledge(mine.model, state, mine.arms, books, table, (), departed)
    check_knowledge(known, result.max_open)
    result._open.given = given
    one.reader, one.known = reader, known
    words: list[Any] = [agent._learner.rng.bit_generator.state for agent in (first, second)]
    one.rng = np.random.default_rng(
        [word["state"][name] for word in words for name in ("state", "inc")]
    )
    return result


def _settings(learner: Learner) -> Any:
    """Return what two learners must have in common; a width that is learned is none of it."""
    packed: dict[str, Any] = pack_object(learner.model, [])
    any_form = bool(_encoders(learner.reader))
    if any_form:
        packed = {"class": packed["class"]}
    return packed, learner.policy, learner.reader.names, any_form, learner.coming


def _blank_like(agent: "Agent") -> "Agent":
    """Return an agent made like this one that has seen nothing."""
    reader, arms = agent._learner.reader, None if agent._learner.coming else agent.arms or ["none"]
    encoders = _encoders(reader)
    categories = sorted(encoders[0].categories) if encoders else ()
    return type(agent)(
        arms, reader.names, model=None if encoders else agent.model, policy=agent.policy, seed=0,
        transformer=reader.transformer, categories=categories,
    )  # fmt: skip


def _encoders(reader: Reader) -> tuple[Encoder, ...]:
    return tuple(each for each in reader.encoders if isinstance(each, Encoder))


def _same_columns(one: Learner, two: Learner, start: Learner) -> tuple[Reader, list[Knowledge]]:
    """Return what reads for all three, and what each knows with its columns."""
    learners = one, two, start
    known = [each.prepared() for each in learners]
    if not _encoders(one.reader):
        return one.reader, known
    triples = zip(*(_encoders(each.reader) for each in learners), strict=True)
    encoders = [a.joined(b, c)[0] for a, b, c in triples]
    hybrid = isinstance(one.reader, AnyArmFeatures)
    widths: Any = tuple(encoder.used for encoder in encoders) if hybrid else encoders[0].width
    wide = []
    for learner, each in zip(learners, known, strict=True):
        model: Any = without_forgetting(each.model)
        have = (model.context, model.features) if hybrid else (model.features,)
        places = []
        for encoder, own, count in zip(encoders, _encoders(learner.reader), have, strict=True):
            # Columns that the model does not have yet are left out, as are its own without a name.
            places.append(encoder.vocabulary.places_of(own.vocabulary)[:count])
        wide.append(_moved(each, widths, tuple(places) if hybrid else places[0]))
    model = wide[0].model
    if hybrid:
        return AnyArmFeatures(model, (encoders[0], encoders[1])), wide
    return AnyContext(model, encoders[0]), wide


def _moved(known: Knowledge, widths: Any, places: Any) -> Knowledge:
    """Return what is known with columns at other places, those of open decisions, too."""
    new, table = known.widened(widths, places), packed_table(known.table)
    rows = []
    for begin, length in zip(table.starts.tolist(), table.lengths.tolist(), strict=True):
        row = table.values[begin : begin + length]
        if isinstance(places, tuple):
            context = int(row[0])
            x, z = (
                _spread(part, place, width)
                for part, place, width in zip(
                    (row[1 : 1 + context], row[1 + context :]), places, widths, strict=True
                )
            )
            row = np.concatenate(([float(x.size)], x, z))
        else:
            row = _spread(row, places, widths)
        rows.append(row)
    lengths = np.array([row.size for row in rows], dtype=np.int64)
    values = np.concatenate([np.zeros(0), *rows])
    table = table._replace(lengths=lengths, starts=np.cumsum(lengths) - lengths, values=values)
    table.sizes[USED] = values.size
    return new.changed(table=table)


def _spread(row: Any, places: Any, width: int) -> Any:
    """Return a row of numbers with its entries at other places; those without one are 0."""
    out, count = np.zeros(width), min(row.size, places.size)
    out[places[:count]] = row[:count]
    return out


def _is_older(base: Learner, learner: Learner) -> bool:
    then, now = base.known.books.counts[:DUE], learner.known.books.counts[:DUE]
    return bool((then > now).any())


def _same_arms(one: Learner, two: Learner, start: Learner) -> list[Arm]:
    """Return the arms that neither has removed."""
    removed: set[Arm] = set()
    if not one.coming:
        removed = {name for name in start.arms if name not in one.arms or name not in two.arms}
    names = dict.fromkeys(name for learner in (one, two) for name in learner.arms)
    found = [name for name in names if name not in removed]
    if not found and not one.coming:
        raise ValueError("the agents have no arm in common; at least one must be left")
    return found


def _with_arms(known: Knowledge, names: list[Arm]) -> Knowledge:
    """Return what is known of these arms alone, in the columns 0, 1, … ; new ones have no data."""
    ordered = known.with_arms({name: known.arms.get(name, -1) for name in names})
    order = np.array(list(ordered.arms.values()), dtype=np.int64)
    books = ordered.books._replace(
        **{name: getattr(ordered.books, name)[order] for name in PER_COLUMN}
    )
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    table = packed_table(ordered.table)
    here = table.arms >= 0
    table.arms[here] = places[table.arms[here]]
    return ordered.changed(
        state=ordered.state.select(order), books=books, table=table,
        arms={name: i for i, name in enumerate(ordered.arms)},
    )  # fmt: skip


def _added(one: Books, two: Books, base: Books) -> Books:
    """Return the counts of both, those from before once."""
    sums = {
        name: getattr(one, name) + getattr(two, name) - getattr(base, name)
        for name in ("counts", "chosen", "pulls", "totals")
    }
    mixed = (int(one.checksum[0]) ^ 3 * int(two.checksum[0])) % 2**64
    return one._replace(checksum=np.array([mixed], dtype=np.uint64), **sums)


def _still_open(
    mine: tuple[Knowledge, Any], theirs: tuple[Knowledge, Any], before: tuple[Knowledge, Any]
) -> tuple[OpenTable, list[Arm], dict[str, tuple[int, int]]]:
    """Return the decisions that nobody has closed, names of arms that left, and ids given."""
    ids = [_ids(known.table, agent._open) for known, agent in (mine, theirs, before)]
    closed = {id for id in ids[2] if id not in ids[0] or id not in ids[1]}
    some = [id not in closed for id in ids[0]]
    others = [id not in closed and id not in set(ids[0]) for id in ids[1]]
    parts = [(mine[0], np.flatnonzero(some)), (theirs[0], np.flatnonzero(others))]
    names: dict[Arm, int] = {}
    rows: list[tuple[Any, ...]] = []
    for known, chosen in parts:
        table = known.table
        for row in chosen.tolist():
            arm, begin = int(table.arms[row]), int(table.starts[row])
            if arm < 0:
                arm = -1 - names.setdefault(known.arm_name(arm), len(names))
            values = table.values[begin : begin + int(table.lengths[row])]
            kept = {name: getattr(table, name)[row] for name in PER_ROW} | {"arms": arm}
            rows.append((int(table.numbers[row]), len(rows), kept, values))
    rows.sort(key=lambda row: row[:2])
    result = empty_table(0, len(rows), sum(row[3].size for row in rows))
    for i, (_, _, kept, values) in enumerate(rows):
        for name, value in kept.items():
            getattr(result, name)[i] = value
        begin = int(result.sizes[USED])
        result.starts[i] = begin
        result.values[begin : begin + values.size] = values
        result.sizes[USED] += values.size
    heads = int(np.count_nonzero(result.places <= 1))
    result.sizes[[END, IDS, OPEN_ROWS, LIMIT]] = len(rows), heads, len(rows), mine[1].max_open
    given = theirs[1]._open.given | mine[1]._open.given
    return result, list(names), {id: key for id, key in given.items() if id not in closed}


def _ids(table: OpenTable, open: Any) -> list[Any]:
    """Return an id, and the place in its list, of every open row."""
    return list(zip(open.ids(open_rows(table)), table.places.tolist(), strict=True))


def pieces(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yield the rows of a Parquet file, or of all in a folder by their names, in pieces."""
    require("tables", "pyarrow")
    import pyarrow.parquet as pq

    for file in files(path):
        for batch in pq.ParquetFile(file).iter_batches(ROWS):
            yield batch.to_pandas()


def files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the Parquet files at a path; raise ValueError if there are none."""
    where = Path(path)
    found = sorted(where.glob("*.parquet")) if where.is_dir() else [where]
    if not found or not all(file.is_file() for file in found):
        raise ValueError(f"there is no Parquet file at {where}; give a file, or a folder of them")
    return found


def check_files(learner: Learner, path: str | os.PathLike[str], settings: dict[str, Any]) -> None:
    """Raise ValueError for arms or rewards that cannot be learned, before anything is."""
    require("tables", "pyarrow")
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
                if learner.coming:
                    plain_name(name)
                else:
                    known_name(name, learner.arms_by_name)
            for value in part[reward]:
                learner.check_reward(value)


def fitted_on_cluster(
    agent: Any, path: str | os.PathLike[str], settings: Any, cluster: Any
) -> "Agent":
    """Return the agent after the files at a path, of which Dask's workers learn one each."""
    require("cluster", "distributed")
    from distributed import Client, as_completed

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
    """Return a copy of an agent after one file."""
    agent = base.__copy__()
    for table in pieces(path):
        agent.fit(table, **settings)
    return agent
