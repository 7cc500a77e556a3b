"""The accelerator: only translate called functions to LLVM code; optimise it in the caller.

Numba optimises each function alone, makes machine code of it, then copies its LLVM code into every
caller and optimises it there again. With calls ten deep, most of the time goes into code that never
runs. A *part* is only translated; a kernel, compiled by Numba's own pipeline, optimises all its
parts together.

Results do not change, and functions of other packages are compiled as before. This module uses
Numba's insides, so it is imported only for the versions in `dispatch.ACCELERATED`.
"""

from typing import Any, ClassVar

import llvmlite.binding as llvm
from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.typed_passes import NativeLowering


class PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a part and of all functions that it calls; no machine code."""

    def _optimize_functions(self, module: Any) -> None:
        """Run LLVM's cheapest passes on the functions that a module defines.

        Numba would run its full set of passes, on declarations too.
        """
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager(opt=1)
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        """Link the code of all callees, so that callers can copy it."""
        self._finalized = True
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"

    def _get_module_for_linking(self) -> Any:
        return self._final_module


class PartContext(CPUContext):  # type: ignore[misc]
    """Numba's target, without two lookups that it repeats for every array and variable."""

    sizes: ClassVar[dict[Any, int]] = {}

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Return the implementation of a function; raise NotImplementedError if there is none.

        Numba looks up `__array__` at each use of an array. Ordinary arrays have none, and each time
        Numba would load all its registries again before it says so.
        """
        return super().get_function(fn, sig, _firstcall and fn != "__array__")

    def get_abi_sizeof(self, ty: Any) -> int:
        """Return the bytes of an LLVM type; LLVM parses a module of its own to find out."""
        if ty not in self.sizes:
            self.sizes[ty] = super().get_abi_sizeof(ty)
        return self.sizes[ty]


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerPart(NativeLowering):  # type: ignore[misc]
    """Translate to LLVM code; do not optimise the whole, make no machine code."""

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        """Run Numba's pass without its last step, and register the result for callers."""
        context, name = state.targetctx, state.func_id.func_qualname
        context.__class__ = PartContext  # Numba has copied the target for this function
        state.library = PartLibrary(context.codegen(), name)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # Callers look the function up by this object, which is never called.
        key = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,)
        )
        context.insert_user_function(key, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=key)
        return True


class PartCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's pipeline, with `LowerPart` as its last pass."""

    def define_pipelines(self) -> list[PassManager]:
        """Return Numba's list of passes with the last one replaced."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (LowerPart if each is NativeLowering else each, text) for each, text in passes.passes
        ]
        passes._finalized = False
        passes.finalize()
        return [passes]
