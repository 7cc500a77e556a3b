"""Forged files of agents, with a valid checksum: refused in a sentence, or harmless.

    python tests/forgery.py 100000
    python tests/forgery.py logs 5000
    python tests/forgery.py folders 5000
    python tests/forgery.py news 5000

Every mutant must be refused by one `ValueError`, soon, or give an agent that decides and learns
without a number that is not finite, and that can be saved and loaded again. Decision logs that lie,
as journals and as Parquet files, must be refused in the same way, or be read and reported; so must
folders of experiments, and days of the news log with click models and the Excel file of jester.
"""

import contextlib
import faulthandler
import gzip
import hashlib
import io
import json
import math
import resource
import shutil
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tsucb
from tsucb.logs.decision_log import write_parquet
from tsucb.logs.report import report
from tsucb.paper.datasets.sources import csv_from_archive
from tsucb.paper.experiments import reproduce
from tsucb.paper.experiments.folder import Folder, checksum_of
from tsucb.paper.experiments.report import write_results
from tsucb.paper.news.clicks import ClickModel
from tsucb.paper.news.generate import make_news
from tsucb.paper.news.parser import read_day
from tsucb.paper.theorems import Theorems

SLOW = 2.0  # processor seconds that one mutant may take
PATIENCE = 60  # seconds after which a mutant counts as hanging


def parts(data):
    """First line, header and arrays of a file."""
    first, rest = data[: data.index(b"\n") + 1], data[data.index(b"\n") + 1 : -32]
    length = int.from_bytes(rest[:8], "little")
    return first, json.loads(rest[8 : 8 + length]), rest[8 + length :]


def together(first, header, arrays):
    """Return a file of these parts, with a matching checksum."""
    text = json.dumps(header).encode()
    body = first + len(text).to_bytes(8, "little") + text + arrays
    return body + hashlib.sha256(body).digest()


def places(value, path=()):
    """Yield the path to every entry of a JSON value."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    for key, child in children:
        yield from places(child, (*path, key))


def originals():
    """Yield agents of all kinds, with something in them."""
    rng = np.random.default_rng(0)
    kinds = {
        "nig": {"model": tsucb.NIGLinear(2), "policy": tsucb.TSUCB(3)},
        "free": {"policy": tsucb.TSUCB(3)},
        "hashed": {"model": tsucb.HashedLinear(bits=4), "policy": tsucb.TSUCB(3)},
        "forgetting": {
            "model": tsucb.BernoulliArms(), "policy": tsucb.Thompson(), "forgetting": 0.9,
        },
        "poisson": {"model": tsucb.PoissonArms(), "policy": tsucb.TSUCB(3)},
        "linear": {"model": tsucb.Linear(2), "policy": tsucb.Thompson()},
        "forgetful": {"model": tsucb.NIGLinear(2), "policy": tsucb.TSUCB(3), "forgetting": 0.9},
    }  # fmt: skip
    for name, options in kinds.items():
        agent = tsucb.Agent(["a", "b", 3], seed=1, max_open=9, **options)
        for step in range(14):
            decision = agent.choose(context_of(agent, rng))
            if step % 3:
                agent.reward(decision.id, float(rng.integers(2)))
        made = agent.choose_many([context_of(agent, rng) for _ in range(3)])
        agent.reward(made.ids[1], 1.0)
        agent.update(one_context(agent, rng), "b", 1.0)
        agent.add_arm("late")
        agent.remove_arm("a")
        yield name, agent


def context_of(agent, rng, size=1.0):
    """Return a context of the shape the agent wants."""
    if agent._learner.reader.encoders:
        return {
            "age": float(size * np.tanh(rng.normal())),
            "city": str(rng.choice(["Rome", "Oslo"])),
        }
    shape = agent.model.context_shape(len(agent.arms))
    return size * np.tanh(rng.normal(size=shape)) if shape else None


def one_context(agent, rng):
    context = context_of(agent, rng)
    return context[0] if agent._learner.reader.per_arm else context


NUMBERS = [
    0, 1, -1, 2, 3, 7, 8, 100, 6000, 10**6, 10**9, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64,
    2**128, 10**40, -(2**63), 0.5, -0.5, 1e-9, 1e-300, 1e9, 1e30, 1e31, 1e60, 1e100, 1e200, 1e308,
    -1e30, -1e100, math.inf, -math.inf, math.nan, 5e-324,
]  # fmt: skip
THINGS = [
    None, True, False, "", "a", "b", "x", [], [1], [[1]], {}, {"array": 0}, {"array": 5},
    {"array": -1}, {"array": 99}, "TSUCB", "Thompson", "IDS", "Greedy", "NIGLinear", "Linear",
    "AdaptiveLinear", "NeuralLinear", "Forgetting", "Model", "Policy", "Choice", "BernoulliArms",
    "PoissonArms", "GaussianArms", "ContextualLinear", "UCB1", "OFUL", "<f8", "<i8", "<u8", "<f4",
    "|O", "named", "numbered", "new", "PCG64", "MT19937", "category", "number", "missing", "other",
]  # fmt: skip


def mutate_entry(rng, values):
    """Change one entry of a JSON value, in place."""
    everywhere = list(places(values))
    if not everywhere:
        return
    path = everywhere[rng.integers(len(everywhere))]
    holder = values
    for key in path[:-1]:
        holder = holder[key]
    old, kind = holder[path[-1]], rng.random()
    if isinstance(old, int | float) and not isinstance(old, bool) and kind < 0.6:
        options = [*NUMBERS, old + 1, old - 1, 2 * old, -old]
        holder[path[-1]] = options[rng.integers(len(options))]
    elif kind < 0.85:
        options = THINGS + NUMBERS
        holder[path[-1]] = options[rng.integers(len(options))]
    elif isinstance(holder, list) and kind < 0.93:
        holder.insert(path[-1], json.loads(json.dumps(old)))
    else:
        del holder[path[-1]]


def mutate(rng, header, arrays):
    """Change one entry of the header or one number in an array."""
    if rng.random() < 0.5:
        mutate_entry(rng, header)
        return arrays
    listed = header.get("arrays")
    listed = listed if isinstance(listed, list) else []
    words = [entry for entry in listed if isinstance(entry, list) and entry]
    start, spans = 0, []
    for kind, *shape in words:
        if kind in ("<f8", "<i8", "<u8") and all(type(n) is int and 0 <= n < 1e6 for n in shape):
            count = math.prod(shape)
            spans += [(start + 8 * i, kind) for i in range(count)]
            start += 8 * count
    if not spans or start > len(arrays):
        return arrays
    at, kind = spans[rng.integers(len(spans))]
    number = NUMBERS[rng.integers(len(NUMBERS))]
    if kind == "<f8":
        new = np.array(float(number), "<f8").tobytes()
        if rng.random() < 0.3:
            new = (np.frombuffer(arrays[at : at + 8], "<f8") * rng.choice([-1, 2, 1e10])).tobytes()
    elif rng.random() < 0.5:
        new = bytes(rng.integers(256, size=8, dtype=np.uint8))
    else:
        whole = int(number) if math.isfinite(number) else 0
        new = (whole % 2**64).to_bytes(8, "little")
    return arrays[:at] + new + arrays[at + 8 :]


class SlowMutant(Exception):
    """Examining a file took too long."""


def examine(path, classes, slow=SLOW):
    """Return "refused" or "accepted" for a mutant; raise AssertionError for anything else."""
    begun = time.process_time()
    try:
        agent = tsucb.Agent.load(path)
    except ValueError as error:
        text = str(error)
        assert str(path) in text, text
        assert "\n" not in text, text
        assert len(text) < 1000, text
        took = time.process_time() - begun
        if took >= slow:
            raise SlowMutant(f"refused after {took:.1f} s: {text}") from None
        return "refused"
    took = time.process_time() - begun
    if took >= slow:
        raise SlowMutant(f"accepted after {took:.1f} s")
    if (type(agent.model), type(agent.policy), agent.keep_beliefs) != classes:
        agent.save(path)
        return "another"  # that would have to be compiled
    rng = np.random.default_rng(0)
    if not agent.arms:
        agent.add_arm("new")
    begun = time.process_time()
    with np.errstate(all="ignore"):
        for size in (1.0, 1e30, 1.0, 0.0):
            decision = agent.choose(context_of(agent, rng, size))
            seen = decision.explain()
            if not np.isnan(seen.mean).all():  # else one of the first pulls
                assert np.isfinite(seen.mean).all(), seen.mean
                assert not np.isnan(seen.std).any(), seen.std
                assert not np.isnan(seen.target), seen.target
            agent.reward(decision.id, float(rng.integers(2)))
        agent.update(one_context(agent, rng), agent.arms[0], 1.0)
        agent.arms_summary()
        table = agent.coefficients()
        assert np.isfinite(table["mean"]).all(), table
        assert not np.isnan(table["std"]).any(), table
    took = time.process_time() - begun
    if took >= slow:
        raise SlowMutant(f"decided after {took:.1f} s")
    try:
        agent.save(path)
    except ValueError as error:  # a number at its limit, which has now gone beyond it
        if "so it was not saved" not in str(error):
            raise
        return "accepted"
    tsucb.Agent.load(path)
    return "accepted"


def fuzz(mutants, seed=0, folder=None, report=None):
    """Examine this many mutants, shared among the kinds of agents; return what became of them."""
    counts = {"refused": 0, "accepted": 0, "another": 0}
    failures = []
    with tempfile.TemporaryDirectory() as own:
        place = Path(folder or own)
        found = []
        for name, agent in originals():
            path = place / f"{name}.tsucb"
            agent.save(path)
            classes = type(agent.model), type(agent.policy), agent.keep_beliefs
            examine(path, classes, math.inf)  # compiles what is needed
            agent.save(path)
            found.append((name, classes, path.read_bytes()))
        rng = np.random.default_rng(seed)
        room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(mutants):
            name, classes, data = found[number % len(found)]
            first, header, arrays = parts(data)
            for _ in range(int(rng.integers(1, 3))):
                arrays = mutate(rng, header, arrays)
            path = place / "mutant.tsucb"
            path.write_bytes(together(first, header, arrays))
            kept = path.read_bytes()
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            try:
                try:
                    counts[examine(path, classes)] += 1
                except SlowMutant:  # the first of its kind may have had to be compiled
                    path.write_bytes(kept)
                    counts[examine(path, classes)] += 1
            except Exception as error:
                failures.append((number, name, f"{type(error).__name__}: {error}"))
                (place / f"bad-{number}.tsucb").write_bytes(kept)
            faulthandler.cancel_dump_traceback_later()
            if report and number % 1000 == 999:
                report(number + 1, counts, len(failures))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - room
        assert grown < 2**20, f"{grown} kB more memory"
    return counts, failures


# Decision logs


def logged_rows():
    """Return the rows of a small log with everything in it."""
    rng, rows = np.random.default_rng(0), []
    agent = tsucb.Agent(["a", "b", 3], exploration=0.3, seed=1, log=rows.append)
    for step in range(30):
        context = {"age": float(rng.normal()), "city": str(rng.choice(["Rome", "Oslo"]))}
        decision = agent.choose(context if step % 7 else None)
        if step % 3:
            agent.reward(decision.id, float(rng.integers(2)))
    agent.expire(-1.0)
    return rows


def forge_log(rng, rows, folder):
    """Write rows into a folder with an entry or some bytes that are wrong."""
    rows = json.loads(json.dumps(rows))
    for _ in range(int(rng.integers(1, 3))):
        row = rows[rng.integers(len(rows))]
        context = row.get("context") if isinstance(row, dict) else None
        if isinstance(context, str) and rng.random() < 0.3:
            held = {"context": json.loads(context)}
            mutate_entry(rng, held)
            row["context"] = json.dumps(held.get("context"))
        else:
            mutate_entry(rng, row if isinstance(row, dict) and rng.random() < 0.9 else rows)
    lines = [json.dumps(row) if rng.random() > 0.0003 else "[" * 100_000 for row in rows]
    data, path = "\n".join([*lines, ""]).encode(), folder / "1.jsonl"
    if rng.random() < 0.4:
        with contextlib.suppress(TypeError, ValueError, AttributeError, OverflowError):
            write_parquet([rows], file := io.BytesIO())  # which writes only what fits its columns
            data, path = file.getvalue(), folder / "1.parquet"
    path.write_bytes(spoiled(rng, data) if rng.random() < 0.3 else data)


def examine_log(folder):
    """Return "refused" or "read" for a forged log; raise AssertionError for anything else."""
    begun, outcome = time.process_time(), "read"
    try:
        tsucb.logs.read_decision_log(folder)
        decisions = tsucb.logs.read_decisions(folder).rewarded(0)
        assert np.isfinite(decisions.reward).all()
        report(folder, folder / "page.html")
    except (ValueError, TypeError) as error:
        outcome, text = "refused", str(error)
        assert "\n" not in text, text
        assert len(text) < 1000, text
    took = time.process_time() - begun
    assert took < SLOW, f"{outcome} after {took:.1f} s"
    return outcome


def fuzz_logs(mutants, seed=0, report=None):
    """Examine this many forged logs; return what became of them."""
    counts, failures, rows = {"refused": 0, "read": 0}, [], logged_rows()
    rng = np.random.default_rng(seed)
    for number in range(mutants):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            forge_log(rng, rows, Path(folder))
            try:
                counts[examine_log(Path(folder))] += 1
            except Exception as error:
                failures.append((number, type(error).__name__, str(error)[:200]))
        if report and number % 1000 == 999:
            report(number + 1, counts, len(failures))
    return counts, failures


# Folders of experiments


class Plain(Theorems):
    """An experiment without figures, which take longer than all else."""

    def figures(self, rows, summary):
        return []


def new_folder(place):
    """Return a small experiment that is measured in this folder."""
    experiment = Plain(
        runs=2, policies=("TS",), horizon=1_000, arms=(2,), features=(2,), ball_features=(),
        short_horizons=(10,),
    )  # fmt: skip
    reproduce(experiment, place)
    return experiment


def other_column(rng, rows):
    """Return numbers, or anything else, for a column of some rows."""
    number, thing = (some[rng.integers(len(some))] for some in (NUMBERS, THINGS))
    return [
        [number] * rows, [thing] * rows, [[number] * 3] * rows, [[1.0] * 10_000] * rows,
        [[[1.0]]] * rows, [None] * rows, [b"\xff"] * rows, [{"a": 1}] * rows, ["9" * 400] * rows,
        list(range(rows)), [float("nan")] * rows, [True] * rows,
    ][rng.integers(12)]  # fmt: skip


def forge_folder(rng, folder):
    """Change a task, with the checksum that fits it, or the settings of an experiment."""
    if rng.random() < 0.2:
        values = {"it": json.loads((folder / "settings.json").read_text())}
        mutate_entry(rng, values)
        (folder / "settings.json").write_text(json.dumps(values.get("it")))
        return
    paths = sorted((folder / "tasks").iterdir())
    path = paths[rng.integers(len(paths))]
    table, rows = pq.read_table(path), pq.read_metadata(path).num_rows
    names, kind = table.column_names, rng.integers(7)
    at = int(rng.integers(len(names)))
    with contextlib.suppress(pa.ArrowException, TypeError, OverflowError):  # no such column
        if kind == 0:
            table = table.set_column(at, names[at], pa.array(other_column(rng, rows)))
        elif kind == 1:
            table = table.append_column(str(rng.choice([*names, "x"])), pa.array([1.0] * rows))
        elif kind == 2:
            table = table.drop_columns(names[at])
        elif kind == 3:
            table = table.slice(0, int(rng.integers(rows))) if at else pa.concat_tables([table] * 2)
        elif kind in (4, 5):
            key = (b"PANDAS_ATTRS", b"pandas")[kind - 4]
            told = {"it": json.loads(table.schema.metadata[key])}
            mutate_entry(rng, told)
            text = "[" * 100_000 if rng.random() < 0.03 else json.dumps(told.get("it"))
            table = table.replace_schema_metadata({**table.schema.metadata, key: text.encode()})
    file, group = io.BytesIO(), None if rng.random() < 0.9 else 1
    try:
        pq.write_table(table, file, row_group_size=group)
    except pa.ArrowException:  # not all that Arrow has can be in a file
        return
    content = spoiled(rng, file.getvalue()) if kind == 6 else file.getvalue()
    path.unlink()
    key = path.stem.rpartition(".")[0]
    (folder / "tasks" / f"{key}.{checksum_of(content)}.parquet").write_bytes(content)


def spoiled(rng, content):
    """Return bytes of which a few differ, or the last are missing."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        changed[rng.integers(len(changed))] = rng.integers(256)
    return bytes(changed[: rng.integers(len(changed)) if rng.random() < 0.2 else None])


def examine_folder(folder, experiment):
    """Return "refused" or "read" for a forged folder; raise AssertionError for anything else."""

    def read():
        with contextlib.closing(Folder(folder, experiment, other_code=True)) as opened:
            if opened.pending():  # it would be measured
                raise ValueError("nothing")
            table = write_results(opened).summary
            numbers = table.select_dtypes("number").to_numpy()
            assert not np.isinf(numbers).any(), table

    outcome = in_one_sentence(read)
    assert not list(folder.rglob(".*.part")), "left half written"
    return outcome


def in_one_sentence(read):
    """Return "read" or "refused" for a call that reads; raise AssertionError for anything else."""
    begun, outcome = time.process_time(), "read"
    try:
        with np.errstate(all="ignore"):
            read()
    except (ValueError, TypeError, OSError) as error:  # of which a command makes one line
        outcome, text = "refused", str(error)
        assert len(text) < 1000, text
        assert "\n" not in text, text
    took = time.process_time() - begun
    assert took < SLOW, f"{outcome} after {took:.1f} s"
    return outcome


def fuzz_folders(mutants, seed=0, report=None):
    """Examine this many forged folders of experiments; return what became of them."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as place:
        sound, forged = Path(place, "sound"), Path(place, "forged")
        experiment = new_folder(sound)

        def one():
            shutil.rmtree(forged, ignore_errors=True)
            shutil.copytree(sound, forged)
            forge_folder(rng, forged)
            return examine_folder(forged, experiment)

        return repeated(one, mutants, report)


# The news log, click models, and the Excel file of jester


def forge_news(rng, text, model, place):
    """Write a day, a click model or an Excel file with something wrong; return what reads it."""
    kind = rng.integers(3)
    if kind == 0:
        lines = text.split(b"\n")
        for _ in range(int(rng.integers(1, 5))):
            at = rng.integers(len(lines))
            number = str(NUMBERS[rng.integers(len(NUMBERS))]).encode()
            fields = lines[at].split(b" ")
            fields[rng.integers(len(fields))] = (
                number, b"id-" + number, b"|id-" + number, b"|user", b"", b"\xff\0", b"x\n",
                b" ".join(fields),
            )[rng.integers(8)]  # fmt: skip
            lines[at] = b" ".join(fields)
        content = gzip.compress(b"\n".join(lines), 1)
        day = place / "day.gz"
        day.write_bytes(spoiled(rng, content) if rng.random() < 0.4 else content)
        return lambda: read_day(day).logged_data()
    if kind == 1:
        arrays = {name: value.copy() for name, value in model._asdict().items()}
        name = list(arrays)[rng.integers(3)]
        for_type = np.asarray(other_column(rng, len(arrays[name])), object)
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            arrays[name] = np.array(for_type.tolist(), rng.choice(["<f8", "<i4", "<i8", "U9", "O"]))
        file = place / "clicks.npz"
        with zipfile.ZipFile(file, "w", rng.choice([0, 0, 0, 8, 12, 14])) as archive:
            for each, values in arrays.items():
                np.save(content := io.BytesIO(), values)
                data = content.getvalue()
                if rng.random() < 0.3:  # the description of shape and type
                    head = (
                        spoiled(rng, data[:128]) if rng.random() < 0.5 else lying(rng, data[:128])
                    )
                    data = head + data[128:]
                if rng.random() > 0.05:
                    archive.writestr(each + ".npy", data)
        if rng.random() < 0.2:
            file.write_bytes(spoiled(rng, file.read_bytes()))
        return lambda: ClickModel.load(file)
    cells = b"".join(
        struct.pack("<HHHHBBBd", 3, 15, row, column, 0, 0, 0, float(rng.normal()))
        for row in range(3)
        for column in range(4)
    )
    sheet = struct.pack("<HHHH", 9, 4, 2, 16) + cells + struct.pack("<HH", 10, 0)
    archive = place / "jester.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a.xls", spoiled(rng, sheet) if rng.random() < 0.9 else sheet)
    return lambda: csv_from_archive(archive)


def lying(rng, head):
    """Return the head of an array's file that names another shape or type."""
    shape = (b"(9999999999999,)", b"(-1,)", b"(10000000000000000000000,)", b"(3, 3)", b"()", b"x")
    said = b"{'descr': '<f8', 'fortran_order': False, 'shape': %s}" % shape[rng.integers(6)]
    return head[:10] + said.ljust(len(head) - 11) + b"\n"


def fuzz_news(mutants, seed=0, report=None):
    """Examine this many forged days, click models and Excel files; return what became of them."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as place:
        [path] = make_news(place, days=1, lines=300)
        text = gzip.decompress(path.read_bytes())
        model = ClickModel.load(f"{place}/truth.npz")

        def one():
            read = forge_news(rng, text, model, Path(place))
            xlrd_says = contextlib.redirect_stdout(io.StringIO())
            with xlrd_says:
                return in_one_sentence(read)

        return repeated(one, mutants, report)


def repeated(one, mutants, report):
    """Return how often `one` had which outcome, and what failed."""
    counts, failures = {"refused": 0, "read": 0}, []
    for number in range(mutants):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            try:
                counts[one()] += 1
            except Exception as error:
                failures.append((number, type(error).__name__, str(error)[:200]))
            faulthandler.cancel_dump_traceback_later()
        if report and number % 1000 == 999:
            report(number + 1, counts, len(failures))
    return counts, failures


KINDS = {"logs": fuzz_logs, "folders": fuzz_folders, "news": fuzz_news}


def main():
    """Run as the first lines of this file say."""
    begun, words = time.perf_counter(), sys.argv[1:]
    work = KINDS.get(words[0], fuzz) if words else fuzz
    words = words[work is not fuzz :]
    how_many = int(words[0]) if words else 100_000
    seed = int(words[1]) if len(words) > 1 else 0
    more = {"folder": words[2]} if len(words) > 2 else {}
    counts, failures = work(how_many, seed, report=lambda *now: print(*now, flush=True), **more)
    for failure in failures[:40]:
        print(*failure)
    print(counts, f"{len(failures)} failures in {how_many}, {time.perf_counter() - begun:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
