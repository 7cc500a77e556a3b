"""Saved agents: files are written completely or not at all, and are never trusted."""

import hashlib
import json
import os
import subprocess
import sys

import forgery
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tsucb
from tsucb.agent import storage


def sample_agent(seed=0):
    model, policy = tsucb.NIGLinear(2), tsucb.TSUCB(100)
    agent = tsucb.Agent(["red", 7, "blue"], ["age", "hour"], model=model, policy=policy, seed=seed)
    for step in range(8):
        decision = agent.choose({"age": step / 8, "hour": 1.0})
        if step % 2:
            agent.reward(decision.id, float(step))
    agent.remove_arm("red")
    return agent


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("agents") / "agent.tsucb"
    sample_agent().save(path)
    return path


def reseal(body):
    """Return the file with a checksum that matches its changed content."""
    return body + hashlib.sha256(body).digest()


def test_arrays_and_values_come_back(tmp_path):
    arrays = [np.arange(6.0).reshape(2, 3), np.array([1, -2]), np.zeros((0, 4)), np.float32([1.5])]
    storage.write(tmp_path / "file", {"α": [1, "two", None, 0.1]}, arrays)
    values, back = storage.read(tmp_path / "file")
    assert values == {"α": [1, "two", None, 0.1]}
    for one, two in zip(arrays, back, strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
    back[0][0, 0] = 5.0  # loaded arrays can be changed


def test_everything_continues(saved):
    original, loaded = sample_agent(), tsucb.Agent.load(saved)
    assert loaded.arms == original.arms == (7, "blue")
    assert loaded.open_decisions == original.open_decisions
    assert loaded.arms_summary().equals(original.arms_summary())
    assert loaded.coefficients().equals(original.coefficients())
    for step in range(20):
        x = [step / 20, -1.0]
        one, two = original.choose(x), loaded.choose(x)
        assert (one.id, one.arm) == (two.id, two.arm)
        assert str(one.explain()) == str(two.explain())
        original.reward(one.id, x[0])
        loaded.reward(two.id, x[0])


def test_an_agent_without_arms_can_be_saved(tmp_path):
    agent = tsucb.Agent(["red"], features=2, seed=0)
    decision = agent.choose([1.0, 2.0])
    agent.remove_arm("red")
    agent.save(tmp_path / "agent")
    other = tsucb.Agent.load(tmp_path / "agent")
    assert other.arms == ()
    assert other.reward(decision.id, 1.0) is False
    other.add_arm("green")
    assert other.choose([1.0, 2.0]).arm == "green"


def test_every_truncation_is_refused(saved, tmp_path):
    data = saved.read_bytes()
    path = tmp_path / "cut"
    for length in [*range(0, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"is damaged|is not a file of this library"):
            tsucb.Agent.load(path)


def test_every_flipped_byte_is_refused(saved, tmp_path):
    data, path = saved.read_bytes(), tmp_path / "flipped"
    for place in range(0, len(data), 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(ValueError, match=r"damaged|not a file of this library|newer version"):
            tsucb.Agent.load(path)


def test_foreign_and_newer_files(saved, tmp_path):
    path = tmp_path / "file"
    for foreign in (b"", b"\x80\x04pickle", b"PK\x03\x04", b"tsucb one\n", b"tsucb \n"):
        path.write_bytes(foreign)
        with pytest.raises(ValueError, match="not a file of this library"):
            tsucb.Agent.load(path)
    for version, answer in ((9, r"newer version .* \(format 9.*upgrade"), (7, "first release")):
        path.write_bytes(saved.read_bytes().replace(b"tsucb 8\n", b"tsucb %d\n" % version, 1))
        with pytest.raises(ValueError, match=answer):
            tsucb.Agent.load(path)
    with pytest.raises(FileNotFoundError):
        tsucb.Agent.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no folder"):
        tsucb.Agent(["a"], 1).save(tmp_path / "nowhere" / "file")


def test_other_settings_are_refused(saved):
    assert tsucb.Agent.load(saved, model=tsucb.NIGLinear(2), policy=tsucb.TSUCB(100)).arms
    for options in (
        {"policy": tsucb.TSUCB(1)},
        {"policy": tsucb.Thompson()},
        {"model": tsucb.NIGLinear(2, shape=5)},
        {"model": tsucb.NIGLinear(2, prior_mean=[0, 1])},
        {"model": tsucb.NIGLinear(3)},
        {"model": tsucb.ContextualLinear(2)},
    ):
        with pytest.raises(ValueError, match="saved with other settings"):
            tsucb.Agent.load(saved, **options)
    with pytest.raises(ValueError, match="saved without a transformer"):
        tsucb.Agent.load(saved, transformer=object())


def attempt(path):
    """Return the agent in the file, or the error; no other exception may come."""
    try:
        return tsucb.Agent.load(path), ""
    except ValueError as error:
        return None, str(error)


def parts(data):
    """First line, header and arrays of a file."""
    first, rest = data[: data.index(b"\n") + 1], data[data.index(b"\n") + 1 : -32]
    length = int.from_bytes(rest[:8], "little")
    return first, json.loads(rest[8 : 8 + length]), rest[8 + length :]


def together(first, header, arrays):
    text = json.dumps(header).encode()
    return reseal(first + len(text).to_bytes(8, "little") + text + arrays)


def places(value, path=()):
    """Yield the path to every entry of a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    for key, child in children:
        yield from places(child, (*path, key))


oddities = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([2**31, 2**63, 2**200, -(2**63), 1e308, float("inf"), float("nan"), 0.5]),
    st.text(max_size=3),
    st.sampled_from(["<f8", "<i8", "|O", "TSUCB", "Model", "choose", "__class__", "red"]),
    st.lists(st.integers(-1, 4), max_size=3),
    st.dictionaries(st.sampled_from(["array", "class", "x"]), st.integers(-2, 30), max_size=2),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_forged_header_is_refused_or_harmless(saved, tmp_path_factory, data):
    """For any header, loading gives an agent that works, or an error of one sentence."""
    first, header, arrays = parts(saved.read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from([p for p in places(header) if p]))
        holder = header
        for key in path:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[last] = data.draw(oddities)
        else:
            del holder[last]
    path = tmp_path_factory.getbasetemp() / "forged"
    path.write_bytes(together(first, header, arrays))
    agent, complaint = attempt(path)
    if agent is None:
        assert str(path) in complaint
        assert "\n" not in complaint
    elif isinstance(agent.model, tsucb.NIGLinear) and agent.arms:
        agent.update([0.5, 0.5], agent.arms[0], 1.0)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_forged_body_is_refused_or_harmless(saved, tmp_path_factory, data):
    body = bytearray(saved.read_bytes()[:-32])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body) - 1))
        body[start : start + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path = tmp_path_factory.getbasetemp() / "forged"
    path.write_bytes(reseal(bytes(body)))
    agent, complaint = attempt(path)
    assert agent is not None or str(path) in complaint


KILLED_AT_ANY_BYTE = """
import os, resource, signal, sys
import tsucb
from pathlib import Path

path = Path(sys.argv[1])
model = tsucb.NIGLinear(2)  # its file is short, so that a process can die at every few bytes of it
old = tsucb.Agent(["old"], model=model, seed=0)
new = tsucb.Agent(["old", "new"], model=model, seed=0)
old.save(path)
size = path.stat().st_size
for limit in [*range(0, size + 40, 7), 10**6]:
    old.save(path)
    child = os.fork()
    if child == 0:
        # The kernel ends a process that writes past its limit, at that very byte.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        new.save(path)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    names = tsucb.Agent.load(path).arms
    assert names == (("old",) if killed else ("old", "new")), (limit, killed, names)
    print(int(killed), end="")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
def test_killed_while_writing(tmp_path):
    """At whichever byte the process is killed, the old file is still complete."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_ANY_BYTE, str(tmp_path / "agent.tsucb")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1") > 100
    assert done.stdout.endswith("0")


def test_a_failed_write_leaves_nothing_behind(saved, tmp_path, monkeypatch):
    path = tmp_path / "agent.tsucb"
    sample_agent(seed=1).save(path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sample_agent(seed=2).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["agent.tsucb"]


def test_no_code_is_needed_to_read_a_file(saved):
    """The file holds text and numbers only: no pickle opcodes, no module names."""
    _, header, _ = parts(saved.read_bytes())
    assert header["values"]["model"]["class"] == "NIGLinear"
    assert b"tsucb.models" not in saved.read_bytes()


def test_files_that_lie_are_refused_or_harmless():
    """A few of `python tests/forgery.py 100000`."""
    counts, failures = forgery.fuzz(120)
    assert not failures
    assert min(counts["refused"], counts["accepted"]) > 0
