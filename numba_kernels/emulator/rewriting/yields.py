"""Waits become yields: a thread offers what it brings, yields the number of its site, and takes the answer when it goes on."""

from __future__ import annotations

import ast

from numba import cuda

from ..environment import Kind
from .program import UNKNOWN, Site
from .statements import StatementPass, load, location_of
from .targets import COLLECTIVES, COUNTING_BARRIERS, GRID_SYNC, MATCHES, NAMES, SHUFFLES, SPIN, VOTES, is_collective, waits_for

ANSWERS = {
    Kind.ALL: "__answer_flag",
    Kind.ANY: "__answer_flag",
    Kind.MATCH_ALL: "__answer_match",
}  # the other votes and barriers answer with a count


class Yields(StatementPass):
    def do_Expr(self, node: ast.Expr) -> None:
        if not self.wait(node.value, None):
            self.emit(node)

    def do_Assign(self, node: ast.Assign) -> None:
        if not self.wait(node.value, node.targets[0]):
            self.emit(node)

    def expression(self, node: ast.expr) -> ast.expr:
        return node

    def wait(self, node: ast.expr, target: ast.expr | None) -> bool:
        """Write a wait whose answer goes to ``target``; False where the expression is none."""
        called = self.program.value(node.func) if isinstance(node, ast.Call) else UNKNOWN
        if is_collective(called):
            answer = self.collective(node, called)  # type: ignore[arg-type]
        elif waits_for(called):
            answer = self.condition(node, waits_for(called))  # type: ignore[arg-type]
        else:
            return False
        if target is not None:
            self.emit(ast.Assign([target], answer))
        return True

    def site(self, kind: Kind, call: str, node: ast.Call) -> str:
        self.program.sites.append(Site(kind, call, location_of(node)))
        return f"yield {len(self.program.sites)}"

    def offer(self, function: str, *arguments: ast.expr) -> None:
        self.call(function, load("__env"), load("__t"), *arguments)

    def collective(self, node: ast.Call, called: object) -> ast.expr:
        kind, name, arguments = COLLECTIVES[called], NAMES[called], node.args
        if node.keywords:
            raise self.refusal(f"{name} with keyword arguments", node)
        one = (cuda.nanosleep, *COUNTING_BARRIERS)
        none = (cuda.syncthreads, cuda.activemask, SPIN, GRID_SYNC)
        most = 3 if called in SHUFFLES else 1 if called in one else 0 if called in none else 2
        wanted = (0, 1) if called is cuda.syncwarp else (most, most)
        if not wanted[0] <= len(arguments) <= wanted[1]:
            raise self.refusal(f"{name} takes {wanted[1]} arguments", node)
        if kind is Kind.SHUFFLE:
            mask, value, argument = arguments
            if not isinstance(value, ast.Name):
                value = self.assign(self.program.fresh(), value)
            self.offer(f"__offer_{SHUFFLES[called]}", mask, value, argument)
        elif called in VOTES:
            self.offer("__offer_vote", *arguments)
        elif kind is Kind.GRID:
            self.program.syncs_grid = True
        elif called in MATCHES:
            self.offer("__offer_match", *arguments)
        elif kind is Kind.SYNCWARP:
            self.offer("__offer_mask", *(arguments or [ast.Constant(0xFFFFFFFF)]))
        elif called in COUNTING_BARRIERS:
            self.offer("__offer_vote", ast.Constant(0), *arguments)
        self.raw(self.site(kind, name, node))
        if kind in (Kind.BARRIER, Kind.SYNCWARP, Kind.SPIN, Kind.GRID):
            return ast.Constant(None)
        taken: list[ast.expr] = [load("__env"), load("__t")]
        if kind is Kind.SHUFFLE:
            return ast.Call(load("__answer_like"), [*taken, value], [])
        return ast.Call(load(ANSWERS.get(kind, "__answer_count")), taken, [])

    def condition(self, node: ast.Call, what: object) -> ast.expr:
        """A yield that ends when all threads of the cluster are there, or yields for as long as a condition is not true."""
        kept = [self.assign(self.program.fresh(), value).id for value in node.args]
        text = getattr(node, "text", "")
        if what == "cluster":
            self.raw(self.site(Kind.CLUSTER, text, node))
        else:
            waiting = self.site(Kind.POLL, text, node)
            self.raw(f"while not {self.program.name_of(what, 'condition')}({', '.join(kept)}):\n    {waiting}")
            self.raw("__passed(__env)")
        return ast.Constant(None)
