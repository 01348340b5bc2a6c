"""Counts the shape of the code, with a limit for each count; `make lint` runs it. Exit status 1 where a limit is passed.

    python .ci/shape.py [--root DIR] [--where]

What is counted is read from the syntax trees of the files that git has (of all files, in a tree that is not a repository),
tests and this folder left out. `--where` names every place.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("numba_kernels", "reference", "difftest")
LEFT_OUT = ("tests", ".ci", "out", "build")

# An operator's family, and what it is told by. Words that an operator's declaration says once; code that asks for one by
# name elsewhere has to be found again for each new operator.
FAMILIES = {"add_norm", "norm", "gated"}
ACTIVATIONS = {"silu", "gelu", "gelu_tanh", "swigluoai"}
OPERATORS = {"fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm", "gemma_rmsnorm"}
OPERATORS |= {f"{activation}_and_mul" for activation in ACTIVATIONS}

CALL_FIELDS = ({"op", "operator"}, {"dtype", "storage"}, {"rows", "lead", "shape"}, {"width"})  # the first two by name
POOLS = {"Process", "Pool", "ProcessPoolExecutor", "SpawnProcess"}


@dataclass(frozen=True)
class Tree:
    """The Python files of a checkout, parsed."""

    root: Path
    modules: dict[Path, ast.Module]  # by path from the root

    @classmethod
    def read(cls, root: Path) -> Tree:
        """Reads every Python file that is no test."""
        files = [path for path in listed(root, "*.py") if path.parts[0] not in LEFT_OUT]
        return cls(root, {path: ast.parse((root / path).read_text(), str(path)) for path in sorted(files)})

    def under(self, *parts: str) -> dict[Path, ast.Module]:
        """The modules in a folder."""
        return {path: module for path, module in self.modules.items() if path.parts[: len(parts)] == parts}

    def exists(self, *parts: str) -> bool:
        """Whether a folder is there."""
        return bool(self.under(*parts))


@dataclass(frozen=True)
class Count:
    """One count: what it is of, how many, how many there may be, and where they are."""

    what: str
    found: int
    limit: int
    where: list[str]


def listed(root: Path, pattern: str) -> list[Path]:
    """Files of the checkout by git's word, or all that there are."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", pattern]
    answer = subprocess.run(command, capture_output=True, text=True) if (root / ".git").exists() else None
    if answer is not None and answer.returncode == 0:
        names = [Path(name) for name in answer.stdout.split("\0") if name]
        return [name for name in names if (root / name).is_file()]
    return [path.relative_to(root) for path in root.rglob(pattern) if path.is_file()]


def family_literals(tree: Tree) -> Count:
    """Files that name a family, ask an object for its `family`, or compare something with an operator's or activation's name."""
    where = []
    for path, module in tree.modules.items():
        lines = sorted(set(_family_lines(module)))
        if lines:
            where.append(f"{path}: {len(lines)} (lines {', '.join(map(str, lines))})")
    return Count("files with a family literal", len(where), 6, where)


def _family_lines(module: ast.Module) -> Iterator[int]:
    docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        match node:
            case ast.Constant(value=str(word)) if word in FAMILIES and id(node) not in docstrings:
                yield node.lineno
            case ast.Attribute(attr="family"):
                yield node.lineno
            case ast.Compare():
                if any(_names_one(side) for side in (node.left, *node.comparators)):
                    yield node.lineno
            case ast.MatchValue(value=value) if _names_one(value):
                yield value.lineno
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[*words]):
                if any(_is_part_of_a_name(word) for word in words):
                    yield node.lineno


def _names_one(node: ast.AST) -> bool:
    """Whether an expression is the name of an operator or an activation, or a tuple, list or set with one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(_names_one(each) for each in node.elts)
    return isinstance(node, ast.Constant) and node.value in ACTIVATIONS | OPERATORS | FAMILIES


def _is_part_of_a_name(node: ast.AST) -> bool:
    """Whether a name is asked for by its beginning or end: "gemma_", "_and_mul"."""
    words = node.elts if isinstance(node, ast.Tuple) else [node]
    texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return any(len(text.strip("_")) > 2 and any(text in name for name in OPERATORS) for text in texts)


def types_for_a_call(tree: Tree) -> Count:
    """Classes whose fields are an operator and a dtype by their names, rows and a width."""
    where = []
    for path, module in tree.modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                typed = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
                fields = {each.target.id: ast.unparse(each.annotation).strip("'\"") for each in typed}  # type: ignore[union-attr]
                op, dtype, *sizes = ([fields[name] for name in names & fields.keys()] for names in CALL_FIELDS)
                if "str" in op and "str" in dtype and all(sizes):
                    where.append(f"{path}:{node.lineno} {node.name}")
    return Count("types for a call", len(where), 1, where)


def worker_pools(tree: Tree) -> Count:
    """Modules of the packages that start processes through multiprocessing."""
    where = []
    for package in PACKAGES:
        for path, module in tree.under(package).items():
            lines = [node.lineno for node in ast.walk(module) if isinstance(node, ast.Call) and _called(node) in POOLS]
            if lines:
                where.append(f"{path}:{lines[0]}")
    return Count("worker pools", len(where), 1, where)


def availability_checks(tree: Tree) -> Count:
    """Functions that answer whether a provider can run a call: the protocol's `check`, and all outside the folders of providers
    that ask for a part of the answer (`refuses`, `unavailable` together with something) or add a reason of their own with `or`.
    """
    where = []
    providers = Path("reference", "providers")
    folders = {providers, Path("difftest", "providers")}
    for path, module in tree.modules.items():
        for function, within in _functions(module):
            inside = list(_own_nodes(function))
            calls = {_called(node) for node in inside if isinstance(node, ast.Call)}
            joined = [each for node in inside if isinstance(node, ast.BoolOp) for each in node.values]
            added = {_called(each) for each in joined if isinstance(each, ast.Call)} & {"check", "unavailable", "refuses"}
            if path == providers / "protocol.py":
                if function.name == "check":
                    where.append(f"{path}:{function.lineno} {within}{function.name}")
            elif not folders & set(path.parents) and ("refuses" in calls or added):
                where.append(f"{path}:{function.lineno} {within}{function.name}")
    return Count("availability checks", len(where), 1, where)


def longest_kernel(tree: Tree) -> Count:
    """The lines of the longest function of the kernels, `def` line to last line, nested functions included."""
    kernels = tree.under("numba_kernels", "kernels") or tree.under("numba_kernels")
    lengths = []
    for path, module in kernels.items():
        for function, within in _functions(module):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            lengths.append((lines, f"{path}:{function.lineno} {within}{function.name}: {lines}"))
    lengths.sort(reverse=True)
    return Count("lines of the longest kernel function", lengths[0][0] if lengths else 0, 60, [text for _, text in lengths[:5]])


def import_cycles(tree: Tree) -> Count:
    """Groups of modules that import one another, imports inside functions included."""
    where = []
    for package in PACKAGES:
        edges = _imports(tree.under(package))
        where += [" <-> ".join(sorted(group)) for group in _cycles(edges)]
    return Count("import cycles", len(where), 0, where)


def layers(tree: Tree) -> Count:
    """The layers of difftest's rooms (folders), as pyproject.toml gives them to import-linter. What stands in none, and a module
    beside the folders of which no contract speaks, counts as a layer of its own.
    """
    text = tree.root / "pyproject.toml"
    contracts = tomllib.loads(text.read_text())["tool"]["importlinter"]["contracts"] if text.is_file() else []
    mine = [contract for contract in contracts if contract["type"] == "layers" and contract.get("containers") == ["difftest"]]
    found = [layer for contract in mine for layer in contract["layers"]]
    held = {name.strip(" ()") for layer in found for name in re.split(r"[|:]", layer)}
    held |= {name.removeprefix("difftest.") for contract in contracts for name in contract.get("source_modules", ())}
    there = {path.parts[1].removesuffix(".py") for path in tree.under("difftest")} - {"__init__"}
    missing = sorted(there - held)
    return Count("layers of difftest", len(found) + len(missing), 6, [*found, *(f"in none: {name}" for name in missing)])


def result_lines(tree: Tree) -> Count:
    """Lines of committed result files; a file of long lines counts a line for each 400 bytes."""
    where, total = [], 0
    for path in listed(tree.root, "benchmarks/results/*"):
        content = (tree.root / path).read_bytes()
        lines = max(len(content.splitlines()), len(content) // 400)
        total += lines
        where.append(f"{path}: {lines}")
    return Count("lines of result files", total, 9_999, where)


def readme_lines(tree: Tree) -> Count:
    """Lines of README.md."""
    readme = tree.root / "README.md"
    lines = len(readme.read_text().splitlines()) if readme.is_file() else 0
    return Count("lines of README.md", lines, 220, [])


COUNTS: tuple[Callable[[Tree], Count], ...] = (
    family_literals,
    types_for_a_call,
    worker_pools,
    availability_checks,
    longest_kernel,
    import_cycles,
    layers,
    result_lines,
    readme_lines,
)


def _called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _functions(module: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Every function, and the classes and functions around it as a prefix."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[ast.FunctionDef, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, prefix  # type: ignore[misc]
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from inside(child, f"{prefix}{child.name}." if named else prefix)  # type: ignore[attr-defined]

    yield from inside(module, "")


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own_nodes(child)


def _imports(modules: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """module -> the modules of the same package that it imports, anywhere in it."""
    names = {_dotted(path): path for path in modules}
    edges: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        around = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        for node in ast.walk(modules[path]):
            if isinstance(node, ast.Import):
                edges[name] |= {alias.name for alias in node.names} & names.keys()
            elif isinstance(node, ast.ImportFrom):
                start = around[: len(around) - node.level + 1] if node.level else []
                base = ".".join([*start, *([node.module] if node.module else [])])
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    edges[name] |= {full if full in names else base} & names.keys()
        edges[name].discard(name)
    return edges


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _cycles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Groups of more than one module, each reachable from each other (strongly connected)."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for following in edges[todo.pop()] - seen:
                seen.add(following)
                todo.append(following)
        return seen

    reach = {name: reached(name) for name in edges}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in edges}
    return sorted((set(group) for group in groups if len(group) > 1), key=sorted)


def main(words: list[str] | None = None) -> int:
    """Prints the table; 1 where a count is over its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--where", action="store_true", help="name every place, of counts within their limits too")
    options = parser.parse_args(words)
    tree = Tree.read(options.root)
    counts = [count(tree) for count in COUNTS]
    print(f"{'':38}{'found':>8}{'limit':>8}")
    for each in counts:
        over = each.found > each.limit
        print(f"{each.what:38}{each.found:8}{each.limit:8}{'  over' if over else ''}")
        if over or options.where:
            print(*(f"    {place}" for place in each.where), sep="\n")
    return int(any(each.found > each.limit for each in counts))


if __name__ == "__main__":
    sys.exit(main())
