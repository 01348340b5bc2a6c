"""What an emulated kernel is compiled into: Numba's code library, whose LLVM code is changed before it is optimised.

Conversions of floats to integers saturate, as PTX's ``cvt`` does; on a CPU they are undefined beyond the integer's range. This
holds for all code that the kernel is linked from, whatever syntax it came from.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import register_pass

from .accounting import account, accounted
from .libraries import OwnCompiler, OwnLibrary

# %x = fptosi float %y to i32
_CONVERSION = re.compile(r"^(  %\S+ = )fpto(si|ui) (half|float|double) (\S+) to i(\d+)(.*)$", re.MULTILINE)
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


_environments: dict[str, Any] = {}  # of functions without machine code, by the names of the variables that point to them


class _Noted:
    """Numba's code generator where it is told a function's environment, for which there is no place before an entry has code."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        _environments[name] = environment


class EmulatedLibrary(JITCodeLibrary):
    """Code that is only linked into an entry's, where it is optimised and becomes machine code: once, and not for each function
    and each of its callers."""

    codegen = _Noted()

    def _optimize_functions(self, ll_module: Any) -> None:
        """Nothing but what linking needs: the entry's optimisation does it again."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        text = str(self._final_module)
        changed = self.changed(text)
        if changed is not text:
            name = self._final_module.name
            self._final_module = llvm.parse_assembly(changed)
            self._final_module.name = name
            self.complete()

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def complete(self) -> None:
        """Link what the changed module calls."""

    def changed(self, text: str) -> str:
        """The module's text, changed; itself where there is nothing to change."""
        return saturating(text) if _CONVERSION.search(text) else text


def saturating(text: str) -> str:
    """LLVM code in which float-to-integer conversions are PTX's: beyond the range the nearest integer, for NaN 0, but the sign
    bit alone where the source is float64 or the result has 64 bits (PTX ISA, ``cvt``). An 8-bit result is that of 16 bits, cut,
    as LLVM's PTX backend makes it."""
    declared: set[str] = set()
    count = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal count
        target, sign, source, value, bits, rest = found.groups()
        wide = max(int(bits), 16)
        function = f"llvm.fpto{sign}.sat.i{wide}.{_SUFFIX[source]}"
        declared.add(f"declare i{wide} @{function}({source})")
        count += 1
        made = f"%nk.cvt{count}"
        lines = [f"  {made} = call i{wide} @{function}({source} {value})"]
        if wide == 64 or (source == "double" and wide >= 32):
            lines.append(f"  {made}.nan = fcmp uno {source} {value}, {value}")
            lines.append(f"  {made}.w = select i1 {made}.nan, i{wide} {-(1 << (wide - 1))}, i{wide} {made}")
            made += ".w"
        if int(bits) < wide:
            lines.append(f"{target}trunc i{wide} {made} to i{bits}{rest}")
        else:
            lines.append(f"{target}add i{wide} {made}, 0{rest}")
        return "\n".join(lines)

    changed = _CONVERSION.sub(replaced, text)
    present = {
        line for line in declared if re.search(rf"^declare .*@{re.escape(line.split('@')[1].split('(')[0])}\(", text, re.M)
    }
    return changed + "\n" + "\n".join(sorted(declared - present)) + "\n"


class EntryLibrary(JITCodeLibrary):
    """Code that Python calls, with all that it is linked from. It is optimised once, not twice, as Numba does for what counts
    references."""

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)

    def _finalize_specific(self) -> None:
        super()._finalize_specific()
        for variable in self._final_module.global_variables:
            if variable.name in _environments:
                self.codegen.set_env(variable.name, _environments[variable.name])


class CheckedLibrary(EmulatedLibrary):
    """The full check's: each access to memory is accounted for, where a function optimised by itself still has it."""

    _optimize_functions = JITCodeLibrary._optimize_functions

    def changed(self, text: str) -> str:
        return accounted(super().changed(text))

    def complete(self) -> None:
        self._final_module.link_in(account()[1]._get_module_for_linking(), preserve=True)


@register_pass(mutates_CFG=False, analysis_only=True)
class _Emulated(OwnLibrary):
    _name = "emulated_library"
    kind = EmulatedLibrary


@register_pass(mutates_CFG=False, analysis_only=True)
class _Checked(OwnLibrary):
    _name = "checked_library"
    kind = CheckedLibrary


@register_pass(mutates_CFG=False, analysis_only=True)
class _Entry(OwnLibrary):
    _name = "entry_library"
    kind = EntryLibrary


class EntryCompiler(OwnCompiler):
    library = _Entry


class EmulatedCompiler(OwnCompiler):
    library = _Emulated


class CheckedCompiler(OwnCompiler):
    library = _Checked
