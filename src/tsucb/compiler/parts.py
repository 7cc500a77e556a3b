"""How Numba compiles what is part of something larger: optimised once, in the whole.

A function that a compiled function calls is compiled too, and its code is copied into the caller's
and optimised there again. Numba also optimises it alone and makes machine code of it, which nobody
ever runs: with calls ten deep, that is most of the time. So a *part* is translated and left at
that, and a *kernel*, which plain Python calls, optimises all its parts together.

Nor does either count references to its arguments, nor to what lies inside of them if they are
tuples: whoever calls holds on to them. Numba counts up and down for each of the arrays of a state
at every call, and finds out afterwards which of it was needless, if it does.
"""

import functools
from collections import Counter
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
from numba import _dynfunc, types
from numba.core import ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.environment import lookup_environment
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

MANGLED = "_Z"  # how the names of functions and of Numba's environments begin
ENVIRONMENT = "_ZN08NumbaEnv"  # how the names of Numba's environments begin


class Borrowing(Lower):  # type: ignore[misc]
    """Numba's translation, with arguments and their members borrowed from the caller."""

    def init(self) -> None:
        """Find the variables that are borrowed: those that have one value for all the call."""
        super().init()
        self.borrowed: set[str] = set()
        self._lending = False
        if self.func_ir.func_id.is_generator:
            return
        assigned = [x for block in self.blocks.values() for x in block.find_insts(ir.Assign)]
        times = Counter(x.target.name for x in assigned)
        once = [x for x in assigned if times[x.target.name] == 1]
        before = -1
        while before < len(self.borrowed):
            before = len(self.borrowed)
            self.borrowed.update(x.target.name for x in once if self._borrows(x))

    def _borrows(self, assign: Any) -> bool:
        """Whether what is assigned belongs to the caller."""
        value, kind = assign.value, self.typeof(assign.target.name)
        if isinstance(value, ir.Arg):
            return bool(self.typeof(f"arg.{value.name}") == kind)
        if isinstance(value, ir.Var):
            return value.name in self.borrowed and self.typeof(value.name) == kind
        return member(value, self.typeof, self.borrowed) is not None

    def lower_inst(self, inst: Any) -> None:
        """Count no references for borrowed variables, neither up nor down."""
        name = inst.target.name if isinstance(inst, ir.Assign) else None
        name = inst.value if isinstance(inst, ir.Del) else name
        self._lending = name in self.borrowed
        super().lower_inst(inst)
        self._lending = False

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        """Take a borrowed member out of its tuple."""
        if self._lending and isinstance(inst.value, ir.Expr):
            index = member(inst.value, self.typeof, self.borrowed)
            return self.builder.extract_value(self.loadvar(inst.value.value.name), index)
        return super().lower_assign(ty, inst)

    def incref(self, typ: Any, val: Any) -> None:
        """Count one reference more."""
        if not self._lending:
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        """Count one reference less."""
        if not self._lending:
            super().decref(typ, val)


def member(value: Any, typeof: Any, borrowed: set[str]) -> int | None:
    """Which member of a borrowed tuple an expression means; None if it is none."""
    if not isinstance(value, ir.Expr) or value.op not in ("getattr", "static_getitem"):
        return None
    kind = typeof(value.value.name)
    if value.value.name not in borrowed or not isinstance(kind, types.BaseTuple):
        return None
    if value.op == "static_getitem":
        index = value.index
        return index if isinstance(index, int) and 0 <= index < len(kind) else None
    named = isinstance(kind, types.BaseNamedTuple) and value.attr in kind.fields
    return kind.fields.index(value.attr) if named else None


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _get_module_for_linking(self) -> Any:
        """The names alone of what is there, for the disk: whoever copies code copies parts."""
        found = (*self._final_module.functions, *self._final_module.global_variables)
        names = (x.name for x in found if not x.is_declaration and x.name.startswith(MANGLED))
        return llvm.parse_assembly("\n".join(f'@"{name}" = global i8 0' for name in names))


class PartLibrary(KernelLibrary):
    """The code of a part: no machine code, and nothing optimised but each function by itself."""

    def finalize(self) -> None:
        """Gather the code of all that the part calls."""
        self._finalized = True
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"

    def _get_module_for_linking(self) -> Any:
        """All of its code."""
        return self._final_module


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerPart(NativeLowering):  # type: ignore[misc]
    """Translates, and leaves it at that."""

    _name = "lower_part"
    lowering_class = Borrowing

    def run_pass(self, state: Any) -> bool:
        """See Numba's `NativeLowering`."""
        context, name = state.targetctx, state.func_id.func_qualname
        state.library = PartLibrary(context.codegen(), name)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # Callers find a function by this object; nobody calls it.
        key = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,)
        )
        context.insert_user_function(key, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=key)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerKernel(NativeLowering):  # type: ignore[misc]
    """Translates, optimises, and makes machine code, which gives up the interpreter's lock."""

    _name = "lower_kernel"
    lowering_class = Borrowing
    nogil = True

    def run_pass(self, state: Any) -> bool:
        """See Numba's `NativeLowering`."""
        codegen = state.targetctx.codegen()
        state.library = KernelLibrary(codegen, state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_cpython_wrapper, state.flags.release_gil = False, self.nogil
        super().run_pass(state)
        for variable in state.library._final_module.global_variables:
            found = variable.name.startswith(ENVIRONMENT) and lookup_environment(variable.name)
            if found:
                codegen.set_env(variable.name, found)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerKernelKeepingGil(LowerKernel):
    """The same, keeping the lock."""

    _name = "lower_kernel_keeping_gil"
    nogil = False


class _Compiler(CompilerBase):  # type: ignore[misc]
    lowering: type[NativeLowering]

    def __init__(self, *arguments: Any) -> None:
        load_arrays()
        super().__init__(*arguments)
        context = self.state.targetctx  # a copy, for this function alone
        context.get_abi_sizeof = functools.partial(_size, context.target_data)

    def define_pipelines(self) -> list[PassManager]:
        """Numba's passes, with the last of them replaced."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (self.lowering, text) if each is NativeLowering else (each, text)
            for each, text in passes.passes
        ]
        passes._finalized = False
        passes.finalize()
        return [passes]


class PartCompiler(_Compiler):
    """Compiles a function for others to copy."""

    lowering = LowerPart


class KernelCompiler(_Compiler):
    """Compiles a function for plain Python to call."""

    lowering = LowerKernel


class KernelKeepingGilCompiler(_Compiler):
    """The same, for calls so short that to give up the lock would take longer."""

    lowering = LowerKernelKeepingGil


@functools.cache
def load_arrays() -> None:
    """Load what Numba knows of arrays, without what it loads only to see whether it is there.

    That is the linear algebra of SciPy, which takes as long as to compile ten small functions.
    """
    linalg: Any = import_module("numba.np.linalg")
    check, linalg.ensure_blas = linalg.ensure_blas, lambda: None
    try:
        import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = check


@functools.cache
def _size(target: Any, kind: Any) -> int:
    """The bytes of an LLVM type: LLVM parses a module to find it out."""
    size: int = kind.get_abi_size(target)
    return size
