"""The accelerator: translate called functions only, and optimise once, in the caller.

A compiled function's code is copied into its callers and optimised there again. Numba also
optimises it alone and makes machine code of it that nobody runs; with calls ten deep, this is most
of the time. A *part* is translated and left at that; a kernel, compiled by Numba's own pipeline,
optimises all its parts together.

Nothing here changes results, and nothing outside of the package's own functions is touched. It uses
Numba's insides, so it is imported only for the versions in `dispatch.ACCELERATED`.
"""

from typing import Any

import llvmlite.binding as llvm
from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a part and of all that it calls, without machine code."""

    def _optimize_functions(self, module: Any) -> None:
        """Tidy up what a module defines; Numba does all it can, and for each declaration, too."""
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager(opt=1)
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        """Link the code of all callees, for callers to copy."""
        self._finalized = True
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"

    def _get_module_for_linking(self) -> Any:
        return self._final_module


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerPart(NativeLowering):  # type: ignore[misc]
    """Translate to LLVM code; no optimisation of the whole, no machine code."""

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        """Run Numba's pass without its last step, and register the result for callers."""
        context, name = state.targetctx, state.func_id.func_qualname
        state.library = PartLibrary(context.codegen(), name)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # Callers look the function up by this object; nobody calls it.
        key = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,)
        )
        context.insert_user_function(key, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=key)
        return True


class PartCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's pipeline with its last pass replaced."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (LowerPart if each is NativeLowering else each, text) for each, text in passes.passes
        ]
        passes._finalized = False
        passes.finalize()
        return [passes]
