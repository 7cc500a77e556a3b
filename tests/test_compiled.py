"""Compiled code: chosen by class, handed values by address, kept on disk, safe from signals."""

import ctypes
import importlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from interrupts import Alarm

import tsucb
from tsucb.agent.machine import runs_by_address
from tsucb.compiler import MissingImplementation, compiled, generic, hook, implements, offers
from tsucb.compiler import cache as kernels
from tsucb.compiler.lent import borrowed
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
    assert first_step(cache, package)[0] == "0"
    assert first_step(cache, package)[0] == "1"
    for part in ("cli/__init__.py", "paper/experiments/report.py", "agent/machine.py"):
        with (package / part).open("a") as file:  # nothing else is compiled from these
            file.write("# edited\n")
    assert first_step(cache, package)[0] == "1"
    with (package / "beliefs/law.py").open("a") as file:  # not the file of the function called
        file.write("# edited\n")
    assert first_step(cache, package)[0] == "0"


def test_code_depends_on_the_files_that_it_can_come_from():
    def files(module: str) -> set[str]:
        importlib.import_module(module)
        found = kernels.further_sources(module)
        return {path.relative_to(PACKAGE).as_posix() for path in found}

    assert files("tsucb.models.linear") == set()  # all of the core counts always
    assert {"agent/machine.py", "agent/batch.py"} <= files("tsucb.agent.machine")
    assert not files("tsucb.agent.machine") & {"agent/agent.py", "agent/open_decisions.py"}
    assert "sets/ball.py" in files("tsucb.sets.rules")
    core = {path.relative_to(PACKAGE).as_posix() for path in kernels.core_sources()}
    assert {"models/linear.py", "numeric/special.py", "checks.py"} <= core


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Return a cache folder that holds the machine code of the first step."""
    cache = tmp_path_factory.mktemp("cache")
    first_step(cache)
    return cache


@pytest.fixture
def filled(made_once, tmp_path):
    """Return a copy of that cache folder, for a test to damage."""
    return shutil.copytree(made_once, tmp_path / "cache")


def kernel_file(cache: Path) -> Path:
    (path,) = cache.rglob("special.normal_cdf-*")
    return path


@pytest.mark.parametrize("damage", ["empty", "nonsense", "cut", "flipped", "of another function"])
def test_a_damaged_file_is_compiled_again(filled, damage):
    path = kernel_file(filled)
    data = path.read_bytes()
    if damage == "of another function":  # a valid file, but of another function than its name says
        key = b"something else"
        kernels.private_folder.cache_clear()
        body = len(key).to_bytes(8, "little") + key + b"code"
        data = kernels.MAGIC + kernels.hashlib.sha256(body).digest() + body
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 16
    spoiled = {"empty": b"", "nonsense": b"nonsense", "cut": data[:-9], "flipped": bytes(flipped)}
    path.write_bytes(spoiled.get(damage, data))
    assert first_step(filled)[0] == "0"
    assert first_step(filled)[0] == "1"  # the file was written again


needs_posix = pytest.mark.skipif(os.name != "posix", reason="users and permissions are POSIX's")


@needs_posix
def test_files_and_folders_that_others_can_write_are_not_trusted(filled):
    path = kernel_file(filled)
    assert first_step(filled)[0] == "1"  # the copy is loaded
    os.chmod(path, 0o666)
    assert first_step(filled)[0] == "0"
    assert stat.S_IMODE(kernel_file(filled).stat().st_mode) == 0o600
    assert first_step(filled)[0] == "1"
    os.chmod(path.parent, 0o777)
    assert first_step(filled) == ["0", "None"]


@needs_posix
def test_a_link_in_the_place_of_a_file_is_not_followed(filled, tmp_path):
    path = kernel_file(filled)
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert first_step(filled)[0] == "0"
    assert not kernel_file(filled).is_symlink()


@needs_posix
def test_a_folder_is_private_only_if_nobody_else_can_change_it_or_put_another_in_its_place(
    tmp_path, monkeypatch
):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o700)
    assert kernels.is_private(folder)
    os.chmod(folder.parent, 0o777)  # somebody else could rename b away
    assert not kernels.is_private(folder)
    os.chmod(folder.parent, 0o777 | stat.S_ISVTX)
    assert kernels.is_private(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert not kernels.is_private(link)
    monkeypatch.setattr(kernels, "is_own_group", lambda group: True)
    assert kernels.is_private(folder)
    os.chmod(folder.parent, 0o775)  # by a group: of the user alone, or of several
    assert kernels.is_private(folder)
    os.chmod(folder.parent, 0o777)
    assert not kernels.is_private(folder)
    os.chmod(folder.parent, 0o775)
    monkeypatch.setattr(kernels, "is_own_group", lambda group: False)
    assert not kernels.is_private(folder)


@needs_posix
def test_a_folder_of_another_user_is_not_trusted(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    about = folder.stat()
    assert kernels.is_own(about)
    monkeypatch.setattr(os, "getuid", lambda: about.st_uid + 1)
    assert kernels.is_own(about) == (about.st_uid == 0)  # root's folders are trusted


@needs_posix
def test_every_folder_made_is_private_under_any_umask(tmp_path):
    code = "import os; os.umask(0o002)\n" + FIRST_STEP
    cache = tmp_path / "new" / "and" / "deep"
    environment = {"TSUCB_CACHE": str(cache)}
    assert run_python(code, **environment).split()[0] == "0"
    assert run_python(code, **environment).split()[0] == "1"
    for place in (cache, cache.parent, cache.parent.parent, kernel_file(cache).parent):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


@needs_posix
@pytest.mark.parametrize("cache", ["/proc/nowhere", ""])
def test_without_home_or_any_place_to_write_it_still_runs(cache):
    nobody = """
import os, pwd, tempfile
pwd.getpwuid = lambda uid: {}[uid]
for name in ("HOME", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
def nowhere(*arguments, **options):
    raise FileNotFoundError("no usable temporary directory")
tempfile.mkdtemp = tempfile.gettempdir = nowhere
"""
    assert run_python(nobody + FIRST_STEP, TSUCB_CACHE=cache).split() == ["0", "None"]


def test_a_filled_cache_that_cannot_be_written_is_used(filled):
    if os.name != "posix" or os.getuid() == 0:
        # Root writes anywhere, so writing fails by hand.
        failing = "import os\ndef fail(*_, **__): raise OSError(30, 'read-only')\n"
        failing += "os.utime = os.replace = os.mkdir = fail\n"
        assert run_python(failing + FIRST_STEP, TSUCB_CACHE=str(filled)).split()[0] == "1"
        return
    os.chmod(kernel_file(filled).parent, 0o500)
    assert first_step(filled)[0] == "1"
    os.chmod(kernel_file(filled).parent, 0o700)


def test_only_old_files_of_its_own_names_are_removed(filled):
    folder = kernel_file(filled).parent
    stem = "old.function-" + 32 * "0"
    mine = [folder / f"{stem}.kernel", folder / f"{stem}.kernel.{16 * 'a'}.part"]
    others = [folder / "notes.txt", folder / "model.kernel", folder / f"{stem}.kernel.bak",
              folder / f"old.function-{32 * 'A'}.kernel", filled / f"{stem}.kernel"]  # fmt: skip
    young = folder / f"young.function-{32 * '0'}.kernel"
    for path in (*mine, *others, young):
        path.write_text("x")
    theirs = filled / "kernels-cuda"
    theirs.mkdir()
    for path in (*mine, *others, theirs):
        os.utime(path, (0, 0))
    kernel_file(filled).unlink()
    assert first_step(filled)[0] == "0"  # writing a file removes old ones
    assert not any(path.exists() for path in mine)
    assert all(path.exists() for path in (*others, young, theirs))


SEVERAL = """
import sys, numpy as np
from tsucb.compiler import compiled
from tsucb.numeric.arrays import total
kinds = [np.float64, np.float32, np.int64, np.int32, np.uint8, np.int16]
first = int(sys.argv[1])
for kind in kinds[first:] + kinds[:first]:
    for values in (np.arange(5).astype(kind), np.arange(10).astype(kind)[::2]):
        assert total(values) == values.sum(), (kind, total(values))
print(sum(total.stats.cache_hits.values()))
"""


def test_processes_that_save_one_function_at_once_never_mix_up_signatures(tmp_path):
    environment = os.environ | {"TSUCB_CACHE": str(tmp_path)}
    for hits in (None, 12):
        running = [
            subprocess.Popen([sys.executable, "-c", SEVERAL, str(first)], env=environment,
                             stdout=subprocess.PIPE, text=True)
            for first in range(0, 6, 2)
        ]  # fmt: skip
        printed = [process.communicate()[0] for process in running]
        assert [process.returncode for process in running] == [0, 0, 0]
        assert hits is None or [int(each) for each in printed] == [hits] * 3
    assert len(list(tmp_path.rglob("arrays.total-*.kernel"))) == 12
    assert not list(tmp_path.rglob("*.part"))


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


def test_implementations_are_inherited_unless_the_plain_method_is_overridden():
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


CALLS = """
import numpy as np, tsucb
belief = tsucb.GaussianBelief([0.1, 0.2, 0.3], [1.0, 0.5, 0.2])
rng = np.random.default_rng(3)
arms = [tsucb.TSUCB(3).choose(belief, rng).arm for _ in range(20)]
agent = tsucb.Agent(["a", "b"], model=tsucb.BernoulliArms(), policy=tsucb.Thompson(), seed=0)
for step in range(30):
    decision = agent.choose()
    agent.reward(decision.id, float(step % 3 == 0))
    arms.append(decision.arm)
from tsucb.compiler import dispatch
print("pipeline_class" in dispatch.PART_OPTIONS, *arms)
"""
OTHER_NUMBA = "import numba, logging; logging.basicConfig(); numba.__version__ = '9.9.9'\n"


# `make test-public` sets TSUCB_COMPILER, which these two tests are about.
def test_the_public_compiler_and_the_accelerator_agree(tmp_path, monkeypatch):
    monkeypatch.delenv("TSUCB_COMPILER", raising=False)
    fast = run_python(CALLS).split()
    public = run_python(CALLS, TSUCB_CACHE=str(tmp_path), TSUCB_COMPILER="public").split()
    assert (fast[0], public[0]) == ("True", "False")
    assert fast[1:] == public[1:]


def test_another_version_of_numba_is_used_without_the_accelerator(monkeypatch):
    monkeypatch.delenv("TSUCB_COMPILER", raising=False)
    code = OTHER_NUMBA + "from tsucb.compiler import dispatch\nprint(dispatch.PART_OPTIONS)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pipeline_class" not in out.stdout
    assert out.stderr.count("not tested with Numba 9.9.9") == 1


def test_nothing_of_numba_is_changed_for_others():
    code = """
from numba.core.target_extension import jit_registry, target_registry
import numba, numba.np.linalg
def settings():
    cpu = jit_registry[target_registry["cpu"]]
    return cpu, numba.np.linalg.ensure_blas, vars(numba.config).copy()
before = settings()
import tsucb, numpy as np
tsucb.Greedy().choose(tsucb.GaussianBelief([0.0], [1.0]), np.random.default_rng(0))
assert before == settings()
"""
    run_python(code)


def test_signals_that_raise_find_plain_calls_done_or_not_done():
    """Ctrl-C at random moments of calls from the main thread, compiled before."""
    policy, belief = tsucb.TSUCB(10), tsucb.GaussianBelief(np.zeros(20), np.ones(20))
    model, rng = tsucb.NIGLinear(2), np.random.default_rng(0)
    state, x = model.start(3), np.ones(2)

    def call() -> None:
        for _ in range(20):
            assert policy.choose(belief, rng).arm < 20
            assert model.belief(state, x, rng=rng).mean.shape == (3,)

    call()
    before = signal.getsignal(signal.SIGALRM)
    alarm, moments, interrupted = Alarm(), np.random.default_rng(1), 0
    end = time.monotonic() + 20
    try:
        while interrupted < 400 and time.monotonic() < end:
            interrupted += alarm.call(call, 10 ** moments.uniform(-5.0, -3.0))[1]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted >= 100
    call()


@compiled
def squares(count):  # type: ignore[no-untyped-def]
    found = np.empty(count)
    for i in range(count):
        found[i] = i * i
    return found, (found[1:], tsucb.Choice(1, 0.5, 2))


def test_signals_that_raise_find_arrays_of_kernels_returned_or_not():
    """Numba runs Python code to return an array, and crashes if a signal handler raises there."""

    def call() -> None:
        for _ in range(100):
            found, (rest, choice) = squares(4)
            assert found.tolist() == [0.0, *rest.tolist()]
            assert choice == tsucb.Choice(1, 0.5, 2)

    call()
    before = signal.getsignal(signal.SIGALRM)
    alarm, moments, interrupted = Alarm(), np.random.default_rng(1), 0
    end = time.monotonic() + 20
    try:
        while interrupted < 2_000 and time.monotonic() < end:
            interrupted += alarm.call(call, 10 ** moments.uniform(-5.0, -3.5))[1]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted >= 100


@compiled
def swap(matrix, flags, i, j):  # type: ignore[no-untyped-def]
    matrix[i, j], matrix[-1, -1] = matrix[-1, -1], matrix[i, j]
    flags[j] = not flags[-1]


@compiled
def swap_in_a_part(matrix, flags, i, j):  # type: ignore[no-untyped-def]
    swap(matrix, flags, i, j)


@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize("i", [1, -2, np.uint8(1)])
def test_elements_in_parts_are_those_of_numpy(order, i):
    expected, flags = np.arange(12.0).reshape(3, 4), np.array([True, False, True])
    matrix = np.repeat(expected, 2, axis=1)[:, ::2]
    if order != "strided":
        matrix = np.array(expected, order=order)
    swap_in_a_part(matrix, flags, i, 0)
    expected[1, 0], expected[2, 3] = 11.0, 4.0
    assert matrix.tolist() == expected.tolist()
    assert flags.tolist() == [False, False, True]


@compiled
def sum_of_lent(values):  # type: ignore[no-untyped-def]
    lent = borrowed(values)
    return lent[1:].sum() + (lent if lent[0] > 0 else values + 1.0)[0]


def test_lent_arrays_are_arrays():
    values = np.array([1.0, 2.0, 3.0])
    assert sum_of_lent(values) == 6.0
    values[0] = -1.0
    assert sum_of_lent(values) == 5.0
    before = sys.getrefcount(values)
    for _ in range(100):
        sum_of_lent(values)
    assert sys.getrefcount(values) == before


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
