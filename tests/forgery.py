"""Files of agents that lie, with a right checksum: refused in a sentence, or harmless.

    python tests/forgery.py 100000
    python tests/forgery.py logs 5000

Every mutant must be refused by one `ValueError`, soon, or give an agent that decides and learns
without a number that is not finite, and that can be saved and loaded again. Decision logs that lie,
as journals and as Parquet files, must be refused in the same way, or be read and reported.
"""

import contextlib
import faulthandler
import hashlib
import io
import json
import math
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import tsucb
from tsucb.agent.decision_log import write_parquet
from tsucb.logs.live import report

SLOW = 2.0  # seconds of the processor for one mutant that are too many
PATIENCE = 60  # seconds after which a mutant is taken to hang


def parts(data):
    """First line, header and arrays of a file."""
    first, rest = data[: data.index(b"\n") + 1], data[data.index(b"\n") + 1 : -32]
    length = int.from_bytes(rest[:8], "little")
    return first, json.loads(rest[8 : 8 + length]), rest[8 + length :]


def together(first, header, arrays):
    """Return a file of such parts, with a checksum that matches."""
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
    """A file that takes too long."""


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
    if rng.random() < 0.3:
        spoiled = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            spoiled[rng.integers(len(spoiled))] = rng.integers(256)
        data = bytes(spoiled)
    path.write_bytes(data)


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


def main():
    """Run as the first lines of this file say."""
    begun, words = time.perf_counter(), sys.argv[1:]
    work = fuzz_logs if words[:1] == ["logs"] else fuzz
    words = words[work is fuzz_logs :]
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
