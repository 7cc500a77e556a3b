"""Compile functions with Numba and choose them by class, here and in packages from outside.

Two decorators let other packages add policies, models and so on. Everyone calls a `generic`
function, which does nothing itself; `implements(function, *classes)` registers what it does for
some classes of its first argument:

    @generic
    def choose(policy, belief, rng):
        return policy.choose(belief, rng)  # for classes without a compiled implementation

    @implements(choose, Greedy)
    def choose_greedy(policy, belief, rng):
        arm = belief.mean.argmax()
        return Choice(arm, np.nan, arm)

Compiled code calls the implementation for the argument's class, or for its nearest ancestor that
has one. Plain Python calls the same implementation, compiled, or the body of the generic function
if there is none. Implementations are chosen by type and never passed as functions, because a
compiled function that receives others as arguments misses Numba's disk cache in every process.
"""

import _thread
import functools
import gc
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numba import types
from numba.core.registry import CPUDispatcher
from numba.extending import overload

from tsucb.compiler.cache import KernelCache
from tsucb.compiler.memory import Kept, KeptType
from tsucb.compiler.results import runs_python, to_python

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Condition = Callable[..., bool]
Table = dict[type, list[tuple[Condition, Callable[..., Any]]]]

# Sums may be reordered, so that they can use vector instructions. Infinities and NaN keep their
# meaning: an untried arm has an infinite radius. Division by zero gives infinity.
OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc": True, "contract": True, "nsz": True, "arcp": True},
    "error_model": "numpy",
    "nopython": True,
    "no_cfunc_wrapper": True,
}
# Versions of Numba that the accelerator in `parts` was tested with. With any other version, or with
# TSUCB_COMPILER=public, Numba's own pipeline compiles everything: same results, longer start.
ACCELERATED = ("0.63", "0.64", "0.65", "0.66", "0.67", "0.68")


def part_options() -> dict[str, Any]:
    """Return Numba's options for functions that only compiled code calls."""
    options = {**OPTIONS, "no_cpython_wrapper": True}
    if os.environ.get("TSUCB_COMPILER") == "public":
        return options
    if numba.__version__.rpartition(".")[0] not in ACCELERATED:
        logging.getLogger(__name__).warning(
            "compile without the accelerator, which was not tested with Numba %s",
            numba.__version__,
        )
        return options
    return {**options, "pipeline_class": import_module("tsucb.compiler.parts").PartCompiler}


PART_OPTIONS = part_options()


class MissingImplementation(TypeError):
    """A class does not implement a function; the message says which one, and how to add it."""


def undisturbed(call: Callable[[], T]) -> T:
    """Make the call in another thread if this is the main thread; return its result.

    Signal handlers run in the main thread only. If one raises while Numba compiles, as that of
    Ctrl-C does, the compiler's tables would be left half written.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return call()
    results: list[T] = []
    errors: list[BaseException] = []
    begun, done = threading.Lock(), threading.Lock()
    begun.acquire()
    done.acquire()

    def make() -> None:
        begun.release()
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        done.release()

    try:
        _thread.start_new_thread(make, ())
        done.acquire()
    except BaseException:
        if begun.acquire(timeout=1.0):  # wait, so that nothing runs on after this call
            while not results and not errors:
                time.sleep(1e-4)
        raise
    if errors:
        raise errors[0]
    return results[0]


class Compiled(CPUDispatcher):  # type: ignore[misc]
    """A compiled function: a kernel for plain Python, a part that other compiled code copies."""

    def __init__(
        self, py_func: Callable[..., Any], locals: Any = None, targetoptions: Any = OPTIONS
    ) -> None:
        super().__init__(py_func, locals or {}, targetoptions)
        self._cache = KernelCache(py_func, targetoptions)

    @functools.cached_property
    def part(self) -> Any:
        """The function as compiled code sees it."""
        return numba.jit(**PART_OPTIONS)(self.py_func)

    def compile(self, sig: Any) -> Any:
        """Return the machine code for the types of a signature, from the disk if it is there."""
        return undisturbed(lambda: self._compile_all(sig))

    def _compile_all(self, sig: Any) -> Any:
        collecting = gc.isenabled()
        gc.disable()  # collecting during compilation frees almost nothing
        try:
            return super().compile(sig)
        finally:
            if collecting:
                gc.enable()

    def add_overload(self, cres: Any) -> None:
        """Add machine code, and connect it to the Python objects that its parts refer to."""
        for environment in cres._find_referenced_environments():
            cres.target_context.codegen().set_env(environment.env_name, environment)
        if runs_python(cres.signature.return_type):
            kinds = tuple(cres.signature.args)
            self.entry.compile(kinds)
            cres = self.entry.overloads[kinds]
        super().add_overload(cres)

    @functools.cached_property
    def entry(self) -> "Compiled":
        """The function as plain Python calls it if it returns arrays or named tuples."""
        return Compiled(entry_of(self.part, self.py_func), targetoptions=self.targetoptions)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the type of a call in compiled code."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return what compiled code calls."""
        return self.part.get_overload(sig)


def compiled(function: F, nogil: bool = True) -> F:
    """Compile a function on its first call and keep its machine code on disk.

    With `nogil`, other threads can run Python while it runs.
    """
    result: F = Compiled(function, targetoptions={**OPTIONS, "nogil": nogil})
    return result


def generic(function: F, plain: bool = True) -> F:
    """Choose what `function(first, …)` does by the class of `first`; see the top of this file.

    A class without a compiled implementation needs a method of the same name, if `plain`.
    """
    names = list(inspect.signature(function).parameters)
    at = names.index("rng") if "rng" in names else None

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        cls = kind_of(arguments[0])
        return (function if plain and not offers(call, cls) else machine)(*arguments)

    def machine(*arguments: Any) -> Any:
        cls = kind_of(arguments[0])
        if not offers(call, cls):
            raise missing(cls)
        if at is not None:
            arguments = *arguments[:at], held(arguments[at]), *arguments[at + 1 :]
        return entry(*arguments)

    def missing(cls: type) -> MissingImplementation:
        alternative = f", or give it a method {call.__name__}" if plain else ""
        return MissingImplementation(
            f"{cls.__qualname__} has no {call.__name__}({', '.join(names)}); write one and register"
            f" it with @implements({call.__module__}.{call.__name__}, {cls.__name__}){alternative}"
        )

    call.__dict__.update(implementations={}, machine=machine)
    entry = compiled(entry_of(call, call, rng="rng.rng"))

    def pick(*arguments: Any) -> Callable[..., Any] | None:
        cls = class_of(arguments[0])
        if cls is None:
            return None
        table: Table = call.__dict__["implementations"]
        for ancestor in cls.__mro__:  # a class's own implementations before those of its ancestors
            for condition, implementation in table.get(ancestor, []):
                if condition(*arguments):
                    return implementation
        raise missing(cls)

    in_compiled_code(call, pick)
    return call  # type: ignore[return-value]


def hook(function: F) -> F:
    """Make a `generic` function that only has compiled implementations, and no body."""
    return generic(function, plain=False)


def shared(function: F) -> F:
    """Let compiled code call the function, too; plain Python still calls it uncompiled.

    For functions that both a compiled and an interpreted loop call.
    """
    in_compiled_code(function, lambda *_: function)
    return function


def in_compiled_code(
    function: Callable[..., Any], pick: Callable[..., Callable[..., Any] | None]
) -> None:
    """Replace calls of the function in compiled code by calls of `pick(*Numba types)`."""

    @overload(function, jit_options=PART_OPTIONS, strict=False)
    def implementation(*arguments: Any) -> Any:
        found = pick(*arguments)
        return getattr(found, "py_func", found)


def implements(
    function: Callable[..., Any], *classes: type, where: Condition = lambda *_: True
) -> Callable[[F], F]:
    """Register the decorated function as a generic function's implementation for these classes.

    A class inherits the implementations of its ancestors. A class may have several: the first one
    registered whose `where(*Numba types of the arguments)` is true is compiled.
    """
    table = getattr(function, "implementations", None)
    if table is None:
        raise TypeError(f"{function.__name__} is not a generic function; it cannot be implemented")

    def register(implementation: F) -> F:
        for cls in classes:
            table.setdefault(cls, []).append((where, implementation))
        return implementation

    return register


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the compiled implementation of a `generic` function; raise if there is none."""
    return function.__dict__["machine"](*arguments)


def offers(function: Callable[..., Any], cls: type) -> bool:
    """Return whether the class has a compiled implementation, or inherits one.

    A plain method of the same name, on a class below the ancestor that has one, replaces it.
    """
    table = function.__dict__["implementations"]
    for ancestor in cls.__mro__:
        if ancestor in table:
            return True
        if function.__name__ in vars(ancestor):
            return False
    return False


def kind_of(value: Any) -> type:
    """Return the class that chooses the implementation: the value's; for a belief, its law's."""
    cls = type(value)
    chooser = getattr(cls, "chosen_by", None)
    return type(getattr(value, chooser)) if chooser else cls


def class_of(kind: Any) -> Any:
    """Return the class that chooses the implementation for a Numba type.

    Return None if it is not the type of a named tuple.
    """
    if not isinstance(kind, types.BaseNamedTuple | KeptType):
        return None
    cls: type = kind.instance_class
    chooser = getattr(cls, "chosen_by", None)
    return class_of(kind.types[kind.fields.index(chooser)]) if chooser else cls


class Stream(NamedTuple):
    """A random generator for a loop: interpreted loops take this, compiled ones `held(rng)`."""

    rng: np.random.Generator


@functools.lru_cache(maxsize=64)
def held(rng: np.random.Generator) -> Kept:
    """Return the generator as a `Stream` in memory, for compiled code."""
    return Kept(Stream(rng))


def entry_of(call: Any, function: Callable[..., Any], rng: str = "rng") -> Any:
    """Return a function, to be compiled, through which plain Python calls `call`.

    It has the parameters of `function`, and passes the expression `rng` for one called "rng". Its
    source is written here, as Numba cannot inline calls with *arguments. No Python code runs while
    arguments and results are converted: a signal handler that raises there, as that of Ctrl-C
    does, would crash the interpreter.
    """
    names = list(inspect.signature(function).parameters)
    passed = ", ".join(rng if name == "rng" else name for name in names)
    source = f"def entry({', '.join(names)}):\n    return to_python(call({passed}))\n"
    place: dict[str, Any] = {"call": call, "to_python": to_python}
    place["__name__"] = function.__module__
    exec(compile(source, inspect.getfile(function), "exec"), place)
    code = place["entry"]
    code.__qualname__, code.__defaults__ = f"{function.__qualname__}.entry", function.__defaults__
    return code
