"""Every small change of a Python file: expressions (expressions.py), and statements dropped, moved or rounded once more."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from difftest.mutants.machine.expressions import called, changes, mistaken

# What a value may be put through (faults.py): a rounding to fewer bits than fp32 has, or by another rule.
ROUNDINGS = ("through_fp16", "through_bf16", "toward_zero", "half_away")
_STORES = ("write", "store")
_LEFT_ALONE = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.Pass)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change: its kind, the function it is in, the line (from 1), the statement before and after as one line each, and the
    span of the text, in bytes, that `put` stands in place of."""

    kind: str
    function: str
    line: int
    before: str
    after: str
    start: int
    end: int
    put: str


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement is: the text's lines as offsets in bytes, the function, the names known there, and how often each is
    given a value.
    """

    source: bytes
    lines: list[int]
    function: str
    known: frozenset[str]
    stored: Counter[str]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """A node's first byte and the one after its last."""
        start = self.lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self.lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def edit(self, kind: str, node: ast.AST, before: str, after: str, put: str, end: str = "") -> Edit:
        """An edit of a node. Lines are left empty between `put` and its `end`, so that what follows keeps its own."""
        first, last = self.span(node)
        text = put + "\n" * self.source[first:last].count(b"\n") + end
        return Edit(kind, self.function, node.lineno, before, after, first, last, text)  # type: ignore[attr-defined]


def edits(source: str, wanted: Callable[[str], bool] = lambda function: True) -> list[Edit]:
    """Every edit of the functions that are wanted, told by the name of the outermost one ("" for the file itself), in the text's
    order; of several that leave the same text the first."""
    text = source.encode()
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(source)
    found: list[Edit] = []
    seen: set[tuple[int, int, str]] = set()
    for statement in tree.body:
        inside = statement.name if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ""
        if not wanted(inside):
            continue
        block = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        place = _Place(
            text, lines, statement.name if isinstance(statement, ast.ClassDef) else "", _names(statement), _stored(statement)
        )
        for edit in _of_block(block, place):
            if edit.before != edit.after and (edit.start, edit.end, edit.put) not in seen:
                seen.add((edit.start, edit.end, edit.put))
                found.append(edit)
    return sorted(found, key=lambda edit: edit.start)


def applied(source: str, edit: Edit) -> str:
    """The text with the edit made."""
    text = source.encode()
    return (text[: edit.start] + edit.put.encode() + text[edit.end :]).decode()


def _names(statement: ast.stmt) -> frozenset[str]:
    arguments = {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
    return frozenset(arguments | {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)})


def _stored(statement: ast.stmt) -> Counter[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return Counter(node.id for node in names)


def _of_block(block: list[ast.stmt], place: _Place) -> Iterator[Edit]:
    for k, statement in enumerate(block):
        if isinstance(statement, ast.FunctionDef):
            inner = f"{place.function}.{statement.name}".lstrip(".")
            yield from _of_block(statement.body, replace(place, function=inner))
            continue
        if isinstance(statement, _LEFT_ALONE) or _is_text(statement):
            continue
        if isinstance(statement, ast.If | ast.While | ast.For):
            yield from _of_header(statement, place)
            yield from _of_block(statement.body, place)
            yield from _of_block(statement.orelse, place)
        else:
            yield from _of_simple(statement, place)
        following = block[k + 1] if k + 1 < len(block) else None
        if following is not None and not isinstance(following, _LEFT_ALONE) and _may_move(statement, following):
            yield _exchanged(statement, following, place)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _of_header(statement: ast.If | ast.While | ast.For, place: _Place) -> Iterator[Edit]:
    """Changes of the condition, or of what is gone through."""
    field = "iter" if isinstance(statement, ast.For) else "test"
    node = getattr(statement, field)
    word = {"For": "for … in", "If": "if", "While": "while"}[type(statement).__name__]
    before = ast.unparse(node)

    def edit(kind: str, text: str) -> Edit:
        return place.edit(kind, node, f"{word} {before}:", f"{word} {text}:", f"({text}", ")")

    for kind, text in _changed(statement, field, place, lambda: ast.unparse(getattr(statement, field))):
        yield edit(kind, text)
    if field == "test":
        yield edit("condition", f"not ({before})")
        yield edit("condition", "False")
        if isinstance(statement, ast.If):
            yield edit("condition", "True")


def _of_simple(statement: ast.stmt, place: _Place) -> Iterator[Edit]:
    """Changes of a statement that has no others in it, and its loss."""
    before = ast.unparse(statement)

    def edit(kind: str, after: str) -> Edit:
        return place.edit(kind, statement, before, after, after)

    for field, _ in ast.iter_fields(statement):
        for kind, after in _changed(statement, field, place, lambda: ast.unparse(statement)):
            yield edit(kind, after)
    if isinstance(statement, ast.AugAssign):
        target, value = ast.unparse(statement.target), ast.unparse(statement.value)
        yield edit("arithmetic", f"{target} = {value}")
        if isinstance(statement.op, ast.Add):
            yield edit("arithmetic", f"{target} -= {value}")
    if not isinstance(statement, ast.Return) and _may_go(statement, place):
        yield edit("statement", "pass")
    for after in _rounded(statement):
        yield edit("rounding", after)


def _changed(statement: ast.stmt, field: str, place: _Place, text: Callable[[], str]) -> Iterator[tuple[str, str]]:
    """The kind of each change of an expression in the statement's field, and what `text` says while it is made."""
    for holder, name, index in _slots(statement, field):
        values = getattr(holder, name)
        old = values if index is None else values[index]
        for kind, new in list(mistaken(old, place.known) if isinstance(old, ast.Name) else changes(old)):
            _put(holder, name, index, new)
            after = text()
            _put(holder, name, index, old)
            if not (statement is holder and isinstance(statement, ast.Expr)) or isinstance(new, ast.Call):
                yield kind, after


def _put(holder: ast.AST, name: str, index: int | None, new: ast.expr) -> None:
    if index is None:
        setattr(holder, name, new)
    else:
        getattr(holder, name)[index] = new


def _slots(node: ast.AST, only: str) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Every place in a field of a node that has an expression: its holder, the field of that, the number in a list."""
    value = getattr(node, only)
    for index, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
        if isinstance(each, ast.expr):
            if not isinstance(getattr(each, "ctx", None), ast.Store) or isinstance(each, ast.Subscript):
                yield node, only, index
            for field, _ in ast.iter_fields(each):
                if field != "func":
                    yield from _slots(each, field)


def _rounded(statement: ast.stmt) -> Iterator[str]:
    """The statement with what it keeps, gives back or stores rounded once more."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    holder: ast.AST
    if isinstance(call, ast.Call) and called(call) in _STORES:
        holder, name, index = call, "args", len(call.args) - 1
    elif isinstance(statement, ast.Assign | ast.AugAssign | ast.Return) and _may_be_a_value(statement):
        holder, name, index = statement, "value", None
    else:
        return
    values = getattr(holder, name)
    old = values if index is None else values[index]
    for rounding in ROUNDINGS:
        _put(holder, name, index, ast.Call(ast.Name(rounding, ast.Load()), [old], []))
        yield ast.unparse(statement)
        _put(holder, name, index, old)


def _may_go(statement: ast.stmt, place: _Place) -> bool:
    """Whether the function still compiles without it: no name that only it gives a value."""
    if not isinstance(statement, ast.Assign):
        return True
    given = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return all(place.stored[name] > 1 for name in given)


def _may_be_a_value(statement: ast.Assign | ast.AugAssign | ast.Return) -> bool:
    """Whether it may be an fp32 value that is kept: no tuple, no whole number, nothing that is made before the kernel."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    name = getattr(target, "id", "")
    value = statement.value
    function = called(value) if isinstance(value, ast.Call) else ""
    fixed = isinstance(value, ast.Call) and all(isinstance(each, ast.Constant) for each in value.args)
    other = isinstance(target, ast.Tuple) or isinstance(value, ast.Tuple | ast.Name | ast.Subscript | None)
    makes = function in ("int32", "int64", "array", "log2") or function.startswith("make")
    return not (fixed or other or makes or name.isupper())


def _may_move(statement: ast.stmt, following: ast.stmt) -> bool:
    """Whether two neighbours are worth exchanging: one of them is a call for its effect."""
    return any(isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) for each in (statement, following))


def _exchanged(statement: ast.stmt, following: ast.stmt, place: _Place) -> Edit:
    (start, first_end), (second, end) = place.span(statement), place.span(following)
    between = place.source[first_end:second]
    moved = place.source[second:end] + between + place.source[start:first_end]
    texts = [ast.unparse(each).partition("\n")[0] for each in (statement, following)]
    return Edit(
        "order", place.function, statement.lineno, "; ".join(texts), "; ".join(reversed(texts)), start, end, moved.decode()
    )
