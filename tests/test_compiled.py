"""The cache of compiled code: found again, never stale, private, and never in the way."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tsucb
from tsucb.agent.calls import runs_by_address
from tsucb.compiler import MissingImplementation, compiled, generic, hook, implements, offers
from tsucb.compiler import cache as kernels
from tsucb.compiler.memory import Kept, keepable
from tsucb.files import cache_folder
from tsucb.policies.policy import choose

PACKAGE = Path(tsucb.__file__).parent

FIRST_STEP = """
import tsucb
from tsucb.numeric.special import normal_cdf
assert abs(normal_cdf(1.0) - 0.8413447460685429) < 1e-15
print(sum(normal_cdf.stats.cache_hits.values()), normal_cdf.stats.cache_path)
"""


def run_python(script: str, **environment: str) -> str:
    out = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return out.stdout


def first_step(cache: Path, package: Path = PACKAGE) -> list[str]:
    found = run_python(FIRST_STEP, PYTHONPATH=str(package.parent), TSUCB_CACHE=str(cache))
    return found.split()


def test_a_second_process_compiles_nothing_and_an_edited_source_is_never_stale(tmp_path):
    package, cache = tmp_path / "tsucb", tmp_path / "cache"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    hits, folder = first_step(cache, package)
    assert hits == "0"
    assert first_step(cache, package) == ["1", folder]
    for part in (
        "cli/__init__.py",
        "paper/experiments/report.py",
    ):  # nothing is compiled from these
        with (package / part).open("a") as file:
            file.write("# edited\n")
    assert first_step(cache, package) == ["1", folder]
    with (package / "beliefs/law.py").open("a") as file:  # not the file of the function called
        file.write("# edited\n")
    hits, other = first_step(cache, package)
    assert hits == "0"
    assert other != folder


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """A cache that the first step has been compiled into."""
    cache = tmp_path_factory.mktemp("cache")
    first_step(cache)
    return cache


@pytest.fixture
def filled(made_once, tmp_path):
    """A copy of it to spoil."""
    return shutil.copytree(made_once, tmp_path / "cache")


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_cache_is_compiled_anew(filled, damage):
    files = [path for path in filled.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    assert first_step(filled)[0] == "0"
    assert first_step(filled)[0] == "1"  # and is whole again


def test_flipped_bits_in_machine_code_are_noticed(filled):
    for path in filled.rglob("*.nbc"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 16
        path.write_bytes(data)
    assert first_step(filled)[0] == "0"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_folder_that_others_can_write_to_is_not_trusted(filled):
    hits, folder = first_step(filled)  # as it was copied it is found
    assert hits == "1"
    os.chmod(folder, 0o777)
    hits, other = first_step(filled)
    assert hits == "0"
    assert other != folder


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_folder_is_private_only_if_nobody_else_can_change_it_or_put_another_in_its_place(
    tmp_path,
):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o700)
    assert kernels._is_private(folder)
    os.chmod(folder.parent, 0o777)  # somebody else could rename b away
    assert not kernels._is_private(folder)
    os.chmod(folder.parent, 0o777 | stat.S_ISVTX)
    assert kernels._is_private(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert not kernels._is_private(link)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users are POSIX's")
def test_a_folder_of_another_user_is_not_trusted(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    if folder.stat().st_uid != 0:  # root's folders are trusted
        assert not kernels._is_private(folder)


@pytest.mark.skipif(os.name != "posix", reason="users are POSIX's")
@pytest.mark.parametrize("cache", ["/proc/nowhere", ""])
def test_without_home_or_a_place_to_write_it_still_runs(cache):
    nobody = """
import os, pwd
pwd.getpwuid = lambda uid: {}[uid]
for name in ("HOME", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
"""
    assert run_python(nobody + FIRST_STEP, TSUCB_CACHE=cache).split()[0] == "0"


def test_old_folders_go(filled):
    old, young = filled / "kernels-old", filled / "kernels-young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (0, 0))
    _, folder = first_step(filled)
    assert sorted(p.name for p in filled.iterdir()) == sorted([Path(folder).name, young.name])


THEIRS = """
from tsucb.compiler import implements
from tsucb.policies.policy import Choice, Policy, choose

class Last(Policy):
    pass

@implements(choose, Last)
def choose_last(policy, belief, rng):
    arm = belief.mean.size - {back}
    return Choice(arm, 0.5, arm)
"""
USE = """
import numpy as np, tsucb
{imports}
belief = tsucb.GaussianBelief([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
before = tsucb.policies.policy.count_choices.stats.cache_hits
counts = {policy}.probabilities(belief, repetitions=9)
hits = tsucb.policies.policy.count_choices.stats.cache_hits
print(counts.argmax(), sum(hits.values()))
"""


def test_classes_of_other_packages_are_cached_while_their_source_stays_the_same(tmp_path):
    (tmp_path / "theirs.py").write_text(THEIRS.format(back=1))
    script = USE.format(imports="from theirs import Last", policy="Last()")
    environment = {"TSUCB_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    assert run_python(script, **environment) == "2 0\n"
    assert run_python(script, **environment) == "2 1\n"
    (tmp_path / "theirs.py").write_text(THEIRS.format(back=2))
    assert run_python(script, **environment) == "1 0\n"


def test_a_class_of_a_script_is_not_cached_and_spoils_nothing(tmp_path):
    script = USE.format(imports=THEIRS.format(back=1), policy="Last()")
    for _ in range(2):
        assert run_python(script, TSUCB_CACHE=str(tmp_path)) == "2 0\n"
    (tmp_path / "theirs.py").write_text(THEIRS.format(back=1))
    other = USE.format(imports="from theirs import Last", policy="Last()")
    environment = {"TSUCB_CACHE": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    assert run_python(other, **environment) == "2 0\n"


ABSOLUTE = ctypes.CDLL(None).labs
ABSOLUTE.argtypes, ABSOLUTE.restype = [ctypes.c_long], ctypes.c_long


@compiled
def absolute(number):  # type: ignore[no-untyped-def]
    return ABSOLUTE(number)


@pytest.mark.skipif(os.name != "posix", reason="C's functions are found as POSIX has them")
def test_code_with_the_address_of_a_c_function_runs_and_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path))
    assert absolute(-3) == 3
    assert not list(tmp_path.rglob("*absolute*"))


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TSUCB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert cache_folder() == tmp_path / "tsucb"


def test_implementations_are_inherited_unless_the_plain_method_is_defined_anew():
    class Parent:
        pass

    class Child(Parent):
        pass

    class Other(Parent):
        def answer(self):
            return "plain"

    @generic
    def answer(thing):
        return thing.answer()

    implements(answer, Parent)(lambda thing: "compiled")
    assert offers(answer, Child)
    assert not offers(answer, Other)
    assert answer(Other()) == "plain"


def test_what_is_missing_is_said_in_a_sentence():
    @hook
    def needed(thing, size):
        """Nobody has it."""

    class Thing:
        pass

    with pytest.raises(
        MissingImplementation, match=r"Thing has no needed\(thing, size\); write one"
    ):
        needed(Thing(), 3)
    with pytest.raises(TypeError, match="not a generic function"):
        implements(len, Thing)


class Small(NamedTuple):
    flag: bool
    real: float


class Values(NamedTuple):
    flag: bool
    nothing: tuple[()]
    small: Small
    flags: tuple[bool, bool]
    whole: int
    columns: Any
    rng: np.random.Generator
    other: Kept


@compiled
def read(kept):  # type: ignore[no-untyped-def]
    small, columns, rng = kept.small, kept.columns, kept.rng
    columns[1, 0] = -7.0
    total = 0.0
    for i in range(columns.shape[0]):
        for j in range(columns.shape[1]):
            total += columns[i, j]
    numbers = rng.random(), float(rng.integers(0, 1000)), kept.other.real
    flags = kept.flag, small.flag, kept.flags[0], kept.flags[1], kept.other.flag
    return numbers, flags, small.real, kept.whole, total, columns.shape, len(kept.nothing)


def test_machine_code_finds_what_is_kept():
    matrix = np.arange(12.0).reshape(3, 4)
    small, rng, twin = Small(True, 2.5), np.random.default_rng(4), np.random.default_rng(4)
    kept = Kept(
        Values(True, (), small, (False, True), 2**40, matrix[:, ::2], rng, Kept(Small(False, 0.5)))
    )
    numbers = twin.random(), float(twin.integers(0, 1000)), 0.5
    flags = True, True, False, True, False
    total = 0.0 + 2.0 - 7.0 + 6.0 + 8.0 + 10.0
    assert read(kept) == (numbers, flags, 2.5, 2**40, total, (3, 2), 0)
    assert matrix[1, 0] == -7.0
    assert keepable(kept.values[:-2])


class Labelled(tsucb.Policy):
    label: str


@implements(choose, Labelled)
def choose_labelled(policy, belief, rng):  # type: ignore[no-untyped-def]
    arm = len(policy.label)
    return tsucb.Choice(arm, 0.0, arm)


def test_what_cannot_be_kept_is_handed_over_by_plain_python():
    model, state = tsucb.GaussianArms(), tsucb.GaussianArms().start(2)
    assert runs_by_address(model, state, tsucb.Greedy())
    assert not runs_by_address(model, state, Labelled("mine"))
    agent = tsucb.Agent(["a", "b", "c"], model=model, policy=Labelled("x"), seed=0)
    for _ in range(9):  # each arm first, then what the policy says
        decision = agent.choose()
        agent.reward(decision.id, 1.0)
    assert decision.arm == "b"
    assert agent.arms_summary().pulls.sum() == 9
    assert not runs_by_address(model, ("text",))
