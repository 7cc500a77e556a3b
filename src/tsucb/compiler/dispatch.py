"""Compile functions with Numba and choose them by class, here and in packages from outside.

Two decorators make the package open. A `generic` function is called by everyone and does nothing
itself; `implements(function, *classes)` says what it does for some classes of its first argument:

    @generic
    def choose(policy, belief, rng):
        return policy.choose(belief, rng)  # for classes without a compiled implementation

    @implements(choose, Greedy)
    def choose_greedy(policy, belief, rng):
        arm = belief.mean.argmax()
        return Choice(arm, np.nan, arm)

In compiled code the implementation of the argument's class, or of the nearest of its ancestors, is
compiled in. In plain Python the same implementation runs compiled; where there is none, the body of
the generic function does. Arguments are chosen by type, not handed over as functions, because a
compiled function that receives others as arguments misses Numba's disk cache in every process.
"""

import _thread
import functools
import gc
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numba import types
from numba.core.cpu_options import FastMathOptions
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.target_extension import jit_registry, target_registry
from numba.core.targetconfig import ConfigStack
from numba.core.typing.templates import AbstractTemplate, infer_global

from tsucb.compiler.cache import KernelCache
from tsucb.compiler.memory import Kept
from tsucb.compiler.parts import KernelCompiler, KernelKeepingGilCompiler, PartCompiler

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Condition = Callable[..., bool]

# Sums may be reordered (that is what lets them use vector instructions), but infinities and NaN
# keep their meaning: an untried arm has an infinite radius. Division by zero gives infinity.
OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "nopython": True,
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
}


class MissingImplementation(TypeError):
    """A class lacks what was asked of it; the message says which function to implement."""


def undisturbed(call: Callable[[], T]) -> T:
    """What a call returns, made where no signal handler runs: not in the main thread.

    Numba runs Python code while it compiles, takes a random generator apart, or makes a named tuple
    of a result. A handler that raises there, as that of Ctrl-C does, leaves the compiler in pieces
    or crashes the interpreter. Handlers run in the main thread only.
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
        if begun.acquire(timeout=1.0):  # nothing goes on behind the caller's back
            while not results and not errors:
                time.sleep(1e-4)
        raise
    if errors:
        raise errors[0]
    return results[0]


class Part(CPUDispatcher):  # type: ignore[misc]
    """A function as other compiled code sees it."""

    def compile(self, sig: Any) -> Any:
        """Its code for the types of a signature.

        Without the clocks of Numba's method: every call into LLVM sets off those of all callers.
        """
        arguments, returned = normalize_signature(sig)
        found = self.overloads.get(tuple(arguments))
        if found is None:
            with self._compiling_counter:
                found = self._compiler.compile(arguments, returned)
            self.add_overload(found)
        return found.entry_point


def _jit(*arguments: Any, **options: Any) -> Any:
    """How Numba compiles its own functions: as parts where parts call them.

    With its own decorator it optimises each of them alone, as it would any other function.
    """
    flags = ConfigStack.top_or_none()
    if flags is None or flags.fastmath != _FASTMATH or not flags.no_cpython_wrapper:
        return numba.jit(*arguments, **options)
    return lambda function: Part(function, {}, {**OPTIONS, **options}, PartCompiler)


_FASTMATH = FastMathOptions(OPTIONS["fastmath"])
dict.__setitem__(jit_registry, target_registry["cpu"], _jit)


class Compiled(CPUDispatcher):  # type: ignore[misc]
    """A function that plain Python calls as a kernel, and other compiled code copies as a part."""

    def __init__(
        self,
        py_func: Callable[..., Any],
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] = OPTIONS,
        pipeline_class: type = KernelCompiler,
    ) -> None:
        super().__init__(py_func, locals or {}, targetoptions, pipeline_class)
        self._cache = KernelCache(py_func)

    @functools.cached_property
    def part(self) -> Part:
        """The function as compiled code sees it."""
        return Part(self.py_func, {}, OPTIONS, PartCompiler)

    def compile(self, sig: Any) -> Any:
        """The machine code for the types of a signature, from the disk if it is there."""
        return undisturbed(lambda: self._compile_all(sig))

    def _compile_all(self, sig: Any) -> Any:
        collecting = gc.isenabled()
        gc.disable()  # a compiler keeps nearly all that it makes: looking for garbage is in vain
        try:
            return super().compile(sig)
        finally:
            if collecting:
                gc.enable()

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a call in compiled code returns."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """What compiled code calls."""
        return self.part.get_overload(sig)


def compiled(function: F, nogil: bool = True) -> F:
    """Compile a function on its first call; keep the machine code on disk; drop the GIL, or not."""
    compiler = KernelCompiler if nogil else KernelKeepingGilCompiler
    result: F = Compiled(function, pipeline_class=compiler)
    return result


def generic(function: F, plain: bool = True, method: str | None = None) -> F:
    """Let every class say what `function(first, …)` does for it; see the top of this file.

    `method` is the name of the method that does the same in plain Python, if not the function's.
    """
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        cls = kind_of(arguments[0])
        return (function if plain and not offers(call, cls) else machine)(*arguments)

    def machine(*arguments: Any) -> Any:
        cls = kind_of(arguments[0])
        if not offers(call, cls):
            raise missing(cls)
        return entry(*arguments)

    def missing(cls: type) -> MissingImplementation:
        alternative = f", or give it a method {call.__dict__['method']}" if plain else ""
        return MissingImplementation(
            f"{cls.__qualname__} has no {call.__name__}({', '.join(names)}); write one and register"
            f" it with @implements({call.__module__}.{call.__name__}, {cls.__name__}){alternative}"
        )

    call.__dict__.update(implementations={}, method=method or function.__name__, machine=machine)
    entry = _entry(call, names)

    def pick(*arguments: Any) -> Callable[..., Any] | None:
        cls = class_of(arguments[0])
        if cls is None:
            return None
        for condition, implementation in _candidates(call, cls):
            if condition(*arguments):
                return implementation
        raise missing(cls)

    in_compiled_code(call, pick)
    return call  # type: ignore[return-value]


def hook(function: F) -> F:
    """A `generic` function for compiled implementations only: it has no body."""
    return generic(function, plain=False)


def shared(function: F) -> F:
    """A function that is compiled in compiled code, and in plain Python is just itself.

    For what a compiled loop and an interpreted one have in common.
    """
    in_compiled_code(function, lambda *_: function)
    return function


def in_compiled_code(
    function: Callable[..., Any], pick: Callable[..., Callable[..., Any] | None]
) -> None:
    """Let compiled code that calls the function call what `pick` returns for its types instead."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            implementation = pick(*args)
            if implementation is None:
                return None
            kind = types.Dispatcher(_compiled_once(implementation))
            signature = kind.get_call_type(self.context, args, kws)
            self.found = kind.get_overload(signature)
            return signature

        def get_impl_key(self, sig: Any) -> Any:
            return self.found

    infer_global(function, types.Function(Template))


_compiled_once = functools.cache(compiled)


def implements(
    function: Callable[..., Any], *classes: type, where: Condition = lambda *_: True
) -> Callable[[F], F]:
    """Register the compiled implementation of a `generic` function for the classes given.

    A class inherits the implementations of its ancestors. Of several for one class, the first
    registered is taken whose `where` holds for the Numba types of the arguments; the others are
    then not compiled.
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
    """Call the compiled implementation of a `generic` function, or say that there is none."""
    return function.__dict__["machine"](*arguments)


def offers(function: Callable[..., Any], cls: type) -> bool:
    """Whether the class, or an ancestor of it, implements the `generic` function compiled.

    Not if the method that does the same in plain Python is defined anew below that ancestor.
    """
    table, method = function.__dict__["implementations"], function.__dict__["method"]
    for ancestor in cls.__mro__:
        if ancestor in table:
            return True
        if method in vars(ancestor):
            return False
    return False


def kind_of(value: Any) -> type:
    """The class by which implementations are chosen: the value's own, or that of its `law`."""
    cls = type(value)
    chooser = getattr(cls, "chosen_by", None)
    return type(getattr(value, chooser)) if chooser else cls


def class_of(kind: Any) -> Any:
    """The same for a Numba type; None if it is not that of a named tuple."""
    if not isinstance(kind, types.BaseNamedTuple):
        return None
    cls: type = kind.instance_class
    chooser = getattr(cls, "chosen_by", None)
    return class_of(kind.types[kind.fields.index(chooser)]) if chooser else cls


def _candidates(
    function: Callable[..., Any], cls: type
) -> list[tuple[Condition, Callable[..., Any]]]:
    """The implementations for a class, its own before those of its ancestors."""
    table = function.__dict__["implementations"]
    return [each for ancestor in cls.__mro__ for each in table.get(ancestor, [])]


class Stream(NamedTuple):
    """A random generator to be handed over to compiled code; see `held`."""

    rng: np.random.Generator


class Plain:
    """A random generator as plain Python takes it; `held` makes its counterpart."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng


@functools.lru_cache(maxsize=64)
def held(rng: np.random.Generator) -> Kept:
    """The generator for compiled code, handed over once."""
    return Kept(Stream(rng))


def _entry(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """How plain Python calls a generic function's implementations: compiled for each class.

    The source of its one line is written here, as Numba cannot inline calls with *arguments, and a
    generator arrives held.
    """
    passed = ", ".join(f"{name}.rng" if name == "rng" else name for name in names)
    source = f"def {function.__name__}({', '.join(names)}):\n    return call({passed})\n"
    place: dict[str, Any] = {"call": function, "__name__": function.__module__}
    exec(compile(source, inspect.getfile(function), "exec"), place)
    code = place[function.__name__]
    code.__qualname__ = f"{function.__qualname__}.entry"
    machine: Callable[..., Any] = compiled(code)
    if "rng" not in names:
        return machine
    at = names.index("rng")

    def entry(*arguments: Any) -> Any:
        rng = held(arguments[at])
        # What takes a generator returns a named tuple.
        return undisturbed(lambda: machine(*arguments[:at], rng, *arguments[at + 1 :]))

    return entry
