"""The accelerator: only translate called functions to LLVM code; optimise it in the caller.

Numba optimises each function alone, makes machine code of it, then copies its LLVM code into every
caller and optimises it there again. With calls ten deep, most of the time goes into code that never
runs. A *part* is only translated; a kernel, compiled by Numba's own pipeline, optimises all its
parts together.

Results do not change, and functions of other packages are compiled as before. This module uses
Numba's insides, so it is imported only for the versions in `dispatch.ACCELERATED`.
"""

import functools
import operator
from typing import Any, ClassVar

import llvmlite.binding as llvm
from numba import _dynfunc, types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import NativeLowering
from numba.np.arrayobj import fix_integer_index


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
        for function in self._final_module.functions:  # its own: those linked in are shared already
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)

    def _get_module_for_linking(self) -> Any:
        return self._final_module


class PartCounts(NRTContext):  # type: ignore[misc]
    """Numba's code that counts references."""

    def get_meminfos(self, builder: Any, ty: Any, val: Any) -> list[Any]:
        """Return type and counter of all that is counted in a value.

        Numba would also take out of it all that is not counted, such as an array's shape.
        """
        model = self._context.data_model_manager[ty]
        counters = [(ty, model.get_nrt_meminfo(builder, val))] if model.has_nrt_meminfo() else []
        for kind, member in model.traverse(builder):
            if self._context.data_model_manager[kind].contains_nrt_meminfo():
                counters += self.get_meminfos(builder, kind, member(val))
        return counters


class PartContext(CPUContext):  # type: ignore[misc]
    """Numba's target, with short code for array elements, and without lookups it would repeat."""

    sizes: ClassVar[dict[Any, int]] = {}

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Return the implementation of a function; raise NotImplementedError if there is none.

        Before it says so, Numba loads all its registries again: at each use of an array, as
        ordinary arrays have no `__array__`, and at each constant index.
        """
        if fn in ("static_getitem", "static_setitem") and isinstance(sig.args[0], types.Array):
            raise NotImplementedError
        uses: dict[Any, Any] = {operator.getitem: self.load, operator.setitem: self.store}
        use = uses.get(getattr(fn, "typing_key", None))
        if use and is_element(*sig.args[:2]) and not self.enable_boundscheck:
            return functools.partial(use, sig.args)
        return super().get_function(fn, sig, _firstcall and fn != "__array__")

    def address(self, builder: Any, kinds: Any, values: Any) -> Any:
        """Return the address of an element, given types and values of array and index.

        Numba would write the array to memory first, and read all of it again.
        """
        (kind, index), (array, place) = kinds[:2], values[:2]
        model = self.data_model_manager[kind]
        shape, strides = (
            cgutils.unpack_tuple(builder, model.get(builder, array, name))
            for name in ("shape", "strides")
        )
        one = not isinstance(index, types.BaseTuple)
        places = [place] if one else cgutils.unpack_tuple(builder, place)
        indices = [
            fix_integer_index(self, builder, *each)
            for each in zip([index] if one else index, places, shape, strict=True)
        ]
        data = model.get(builder, array, "data")
        return cgutils.get_item_pointer2(self, builder, data, shape, strides, kind.layout, indices)

    def load(self, kinds: Any, builder: Any, values: Any) -> Any:
        """Return array[index]."""
        return self.unpack_value(builder, kinds[0].dtype, self.address(builder, kinds, values))

    def store(self, kinds: Any, builder: Any, values: Any) -> None:
        """Do array[index] = value."""
        number = self.cast(builder, values[2], kinds[2], kinds[0].dtype)
        self.pack_value(builder, kinds[0].dtype, number, self.address(builder, kinds, values))

    def get_abi_sizeof(self, ty: Any) -> int:
        """Return the bytes of an LLVM type; LLVM parses a module of its own to find out."""
        if ty not in self.sizes:
            self.sizes[ty] = super().get_abi_sizeof(ty)
        return self.sizes[ty]


def is_element(array: Any, index: Any) -> bool:
    """Return whether an index of this type stands for one number of an array of this type."""
    if not isinstance(array, types.Array) or not isinstance(
        array.dtype, types.Number | types.Boolean
    ):
        return False
    indices = index.types if isinstance(index, types.BaseTuple) else [index]
    return len(indices) == array.ndim and all(isinstance(x, types.Integer) for x in indices)


@register_pass(mutates_CFG=True, analysis_only=False)
class LowerPart(NativeLowering):  # type: ignore[misc]
    """Translate to LLVM code; do not optimise the whole, make no machine code."""

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        """Run Numba's pass without its last step, and register the result for callers."""
        context, name = state.targetctx, state.func_id.func_qualname
        context.__class__ = PartContext  # Numba has copied the target for this function
        context.nrt = PartCounts(context, context.enable_nrt)
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
