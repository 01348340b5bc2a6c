"""Calls of ``races.access`` before each load and store of LLVM code, so that no syntax has a way past the account of memory.

Left out: what can't lie in shared memory or in an argument's (the stack, results, a thread's kept variables), and the emulator's
own accesses, marked ``!nosanitize``. The environment's address, which a function compiled by Numba for itself does not know, lies
in a variable of the module that a kernel's own functions set; launches in the full check run one at a time.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from numba import int64

from . import races
from .words import njit

_SLOT = "@nk_environment"
_OWN = ("%retptr", "%excinfo", "%arg.gen")  # arguments of every function that Numba compiles
_ENVIRONMENT = re.compile(r"%arg\.__env[\w.]*")  # numbered where a function calls itself
_RESULT = re.compile(r"^  (%\S+) = ")
_DERIVED = re.compile(r"^  (%\S+) = (?:getelementptr|bitcast|addrspacecast)\b.*?(%[\w.$-]+|%\"[^\"]+\"|@\S+?)(?:,|$| to )")
_ACCESS = re.compile(r"^  (?:%\S+ = )?(load|store)( volatile| atomic)? ")
_MEMORY = re.compile(r"^  (?:tail )?call void @llvm\.(memcpy|memmove|memset)\S*\((.*?)\)(?:, |$| #)")
_SIZES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "fp128": 16, "ptr": 8}


@functools.cache
def account() -> tuple[str, Any]:
    """(the declaration of ``races.access`` in LLVM code, the library that holds it)."""
    signature = (int64,) * 5
    compiled = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(races.access.py_func)
    compiled.compile(signature)
    result = compiled.overloads[signature]
    name = result.fndesc.mangled_name
    (found,) = re.findall(rf"^define .*?i32 (@\"?{re.escape(name)}\"?)\((.*?)\)[^()]*{{$", result.library.get_llvm_str(), re.M)
    return f"declare i32 {found[0]}({', '.join(_type(p)[0] for p in _split(found[1]))})", result.library


def accounted(text: str) -> str:
    """LLVM code with its accesses accounted for; functions in which they are already stay as they are."""
    declaration, _ = account()
    writer = _Writer(declaration)
    made: list[str] = []
    body: list[str] = []
    for line in text.split("\n"):
        if body:
            body.append(line)
            if line == "}":
                made += writer.function(body)
                body = []
        elif line.startswith("define ") and line.endswith("{"):
            body = [line]
        else:
            made.append(line)
    name = writer.name + "("
    if not any(name in line and line.startswith(("declare ", "define ")) for line in made):
        made.append(declaration)
    head = [f"{slot} = linkonce_odr global i64 0" for slot in (_SLOT, f"{_SLOT}.scratch") if f"\n{slot} = " not in text]
    at = next((k for k, line in enumerate(made) if line.startswith("define ")), len(made))
    return "\n".join([*made[:at], *head, "", *made[at:]])


class _Writer:
    """State: ``name`` of the called function; ``leading``, its two first arguments; ``count`` of the names that it has made."""

    def __init__(self, declaration: str) -> None:
        self.name = declaration.split("(")[0].split(" ")[-1]
        kinds = _split(declaration[declaration.index("(") + 1 : -1])[:2]
        scratch = f"{_SLOT}.scratch"
        self.leading = ", ".join(f"ptr {scratch}" if k == "ptr" else f"{k} bitcast (i64* {scratch} to {k})" for k in kinds)
        self.slot = f"{'ptr' if kinds[0] == 'ptr' else 'i64*'} {_SLOT}"
        self.count = 0

    def function(self, body: list[str]) -> list[str]:
        if any(self.name + "(" in line for line in body):
            return body
        self.bases: dict[str, str] = {}
        made = [body[0]]
        waiting = _ENVIRONMENT.search(body[0])
        for line in body[1:]:
            if waiting and line.startswith("  "):
                made.append(f"  store i64 {waiting[0]}, {self.slot}, !nosanitize !{{}}")
                waiting = None
            made += self.before(line)
            made.append(line)
        return made

    def before(self, line: str) -> list[str]:
        """What goes before a line."""
        derived = _DERIVED.match(line)
        if derived:
            self.bases[derived[1]] = self.bases.get(derived[2], derived[2])
            return []
        result = _RESULT.match(line)
        if result and " = alloca " in line:
            self.bases[result[1]] = "@stack"
            return []
        memory = _MEMORY.match(line)
        if memory:
            return self.of_block(memory[1], _split(memory[2]))
        access = _ACCESS.match(line)
        if not access or "!nosanitize" in line or "!numba_exception_output" in line:
            return []
        return self.of_access(access[1] == "store", line[access.end() :])

    def of_access(self, writes: bool, rest: str) -> list[str]:
        kind, rest = _type(rest)
        value = ""
        if writes:
            value, rest = _split(rest, 2)[:2]
        pointer_kind, pointer = _type(_split(rest, 2)[0])
        if not self.is_followed(pointer):
            return []
        self.count += 1
        lines, bits = self.bits(kind, value.strip()) if writes else ([], "0")
        how = (races.WRITES | (races.KNOWN if lines else 0)) if writes else 0
        return lines + self.call(pointer_kind, pointer, str(size_of(kind)), how, bits)

    def of_block(self, name: str, arguments: list[str]) -> list[str]:
        """memcpy(to, from, bytes, …), memmove, memset(to, value, bytes, …)."""
        count = arguments[2].split()[-1]
        made: list[str] = []
        for argument, how in ((arguments[0], races.WRITES), *(() if name == "memset" else ((arguments[1], 0),))):
            kind, pointer = _type(argument)[0], argument.split()[-1]  # attributes stand between
            if self.is_followed(pointer):
                self.count += 1
                made += self.call(kind, pointer, count, how, "0")
        return made

    def is_followed(self, pointer: str) -> bool:
        base = self.bases.get(pointer, pointer)
        return not base.startswith("@") and base not in _OWN

    def bits(self, kind: str, value: str) -> tuple[list[str], str]:
        """(lines that make 64 bits of a value, their name); none where that is not simple."""
        floats = {"half": 16, "float": 32, "double": 64}
        whole = re.fullmatch(r"i(8|16|32|64)", kind)
        if not (whole or kind in floats) or value in ("undef", "poison"):
            return [], "0"
        width, name = int(whole[1]) if whole else floats[kind], f"%nk.value{self.count}"
        lines = [f"  {name}.i = " + (f"add i{width} {value}, 0" if whole else f"bitcast {kind} {value} to i{width}")]
        lines.append(f"  {name} = add i64 {name}.i, 0" if width == 64 else f"  {name} = zext i{width} {name}.i to i64")
        return lines, name

    def call(self, kind: str, pointer: str, size: str, how: int, value: str) -> list[str]:
        k = self.count
        arguments = (f"%nk.environment{k}", f"%nk.address{k}", size, str(how), value)
        return [
            f"  %nk.environment{k} = load i64, {self.slot}, !nosanitize !{{}}",
            f"  %nk.address{k} = ptrtoint {kind} {pointer} to i64",
            f"  %nk.done{k} = call i32 {self.name}({self.leading}, {', '.join(f'i64 {a}' for a in arguments)})",
        ]


def _split(text: str, most: int = 0) -> list[str]:
    """The parts between commas that stand in no bracket; after ``most`` - 1 of them the rest."""
    parts: list[str] = []
    depth, start, quoted = 0, 0, False
    for k, sign in enumerate(text):
        if sign == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif sign in "([{<":
            depth += 1
        elif sign in ")]}>":
            depth -= 1
        elif sign == "," and depth == 0 and (not most or len(parts) < most - 1):
            parts.append(text[start:k].strip())
            start = k + 1
    return [*parts, text[start:].strip()]


def _type(text: str) -> tuple[str, str]:
    """The type that a text begins with, and the rest."""
    text = text.lstrip()
    depth = 0
    for k, sign in enumerate(text):
        if sign in "([{<":
            depth += 1
        elif sign in ")]}>":
            depth -= 1
        elif sign in " ," and depth == 0:
            return text[:k], text[k:].lstrip(" ,")
    return text, ""


def size_of(kind: str) -> int:
    """Bytes of a type."""
    whole = re.fullmatch(r"i(\d+)", kind)
    if whole:
        return -(-int(whole[1]) // 8)
    if kind.endswith("*"):
        return 8
    if kind in _SIZES:
        return _SIZES[kind]
    several = re.fullmatch(r"[\[<](\d+) x (.*)[\]>]", kind)
    if several:
        return int(several[1]) * size_of(several[2])
    if kind.startswith("<{"):
        return sum(size_of(part) for part in _split(kind[2:-2].strip()))
    offset, widest = 0, 1
    for part in _split(kind.strip("{} ")) if kind.startswith("{") else []:
        size, alignment = size_of(part), alignment_of(part)
        offset = -(-offset // alignment) * alignment + size
        widest = max(widest, alignment)
    return -(-offset // widest) * widest


def alignment_of(kind: str) -> int:
    """A type's natural alignment."""
    inner = re.fullmatch(r"\[\d+ x (.*)\]", kind)
    if inner:
        return alignment_of(inner[1])
    if kind.startswith("{"):
        return max(alignment_of(part) for part in _split(kind[1:-1].strip()))
    return 1 if kind.startswith("<{") else min(16, size_of(kind))
