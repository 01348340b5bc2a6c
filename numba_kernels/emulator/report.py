"""The errors that come of the numbers which a launch leaves in its environment."""

from __future__ import annotations

import numpy as np

from .environment import Env, Fault, Kind
from .errors import (
    CheckLimit,
    DataRace,
    DivergentBarrier,
    DivergentCollective,
    EmulatorError,
    MaskError,
    NeverTrue,
    OutOfBounds,
    UninitializedRead,
)
from .rewriting.program import Location, Program

# By what an access is, see races.py: a read, a write, an atomic operation.
WHAT_IT_DID = ("read", "wrote", "read", "changed atomically")
WHAT_IT_DOES = ("reads", "writes", "reads", "changes atomically")


class Report:
    """Errors of one launch: ``program``, ``env`` (the launch's environment), ``seed`` of its schedule."""

    def __init__(self, program: Program, env: np.ndarray, seed: int | None) -> None:
        self.program, self.env, self.seed = program, env, seed

    def error(
        self,
        kind: type[EmulatorError],
        reason: str,
        thread: int | None = None,
        location: Location | None = None,
        others: tuple[Location, ...] = (),
    ) -> EmulatorError:
        """An error at the thread and line that run, or at others."""
        env = self.env
        where = self.program.location_of(int(env[Env.LOCATION])) if location is None else location
        if where.line == 0:
            where = Location(where.function, self.program.file, 0)
        if where.function not in (self.program.name, "?"):
            reason += f" (in {where.function})"
        return kind(
            reason,
            kernel=self.program.name,
            file=where.file,
            line=where.line,
            block=(int(env[Env.BLOCK_X]), int(env[Env.BLOCK_Y]), int(env[Env.BLOCK_Z])),
            thread=(int(env[Env.THREAD]) if thread is None else thread) % int(env[Env.PADDED]),
            schedule_seed=self.seed,
            others=tuple((other.file, other.line) for other in others),
        )

    def _words(self) -> tuple[int, ...]:
        return tuple(int(v) for v in self.env[Env.FAULT : Env.FAULT_D + 1])

    def of_fault(self) -> EmulatorError:
        """The error for the fault that the launch left in the environment."""
        if self.env[Env.FAULT] in (Fault.UNINITIALIZED, Fault.INDEX, Fault.RACE, Fault.GRAIN, Fault.POOL):
            return self._of_check()
        return self._of_scheduler()

    def _of_check(self) -> EmulatorError:
        """What a check found, at the thread that runs."""
        fault, a, b, c, _ = self._words()
        if fault == Fault.INDEX:
            return self.error(OutOfBounds, f"index {a} is out of bounds for axis {c} with size {b}")
        here = self.program.location_of(int(self.env[Env.FAULT_AT]))
        if fault == Fault.GRAIN:
            return self.error(CheckLimit, "an access covers an element in part, in more than 512 MiB of arrays")
        if fault == Fault.POOL:
            reason = "too many threads or addresses order memory by fences and atomics for the full check: try a smaller grid"
            return self.error(CheckLimit, reason, location=here)
        if fault == Fault.UNINITIALIZED:
            reason = f"reads shared memory (byte {a}) that no thread of the block has written"
            return self.error(UninitializedRead, reason, location=here)
        before, now = WHAT_IT_DID[c >> 2], WHAT_IT_DOES[c & 3]
        other_line = self.program.location_of(b)
        line = other_line.line
        if a // int(self.env[Env.PADDED]) == int(self.env[Env.GRID_THREAD]) // int(self.env[Env.PADDED]):
            other, missing = f"thread {a % int(self.env[Env.PADDED])}", "there is no barrier between"
        else:
            other = f"thread {a % int(self.env[Env.PADDED])} of another block"
            missing = "blocks of one launch are not ordered"
        return self.error(
            DataRace, f"{now} an element that {other} {before} in line {line}, and {missing}", location=here, others=(other_line,)
        )

    def notes(self) -> list[str]:
        """What is no error and yet worth a look."""
        env, padded = self.env, int(self.env[Env.PADDED])
        if env[Env.NOTE_B] == 0:
            return []
        sides = []
        for who, where in ((Env.NOTE_A, Env.NOTE_B), (Env.NOTE_C, Env.NOTE_D)):
            block, thread = divmod(int(env[who]), padded)
            sides.append(f"thread {thread} of block {block} in line {self.program.location_of(int(env[where])).line}")
        return [f"{self.program.name}: {' and '.join(sides)} write the same value to one place, in no order"]

    def _of_scheduler(self) -> EmulatorError:
        """What the scheduler found, at the site where a thread waits."""
        fault, a, b, c, d = self._words()
        site = self.program.sites[b - 1]
        kind: type[EmulatorError]
        if fault == Fault.BARRIER:
            kind, reason = DivergentBarrier, f"waits at {site.call}, but {self._whereabouts(c, d, site.kind)}"
        elif fault == Fault.COLLECTIVE:
            kind, reason = DivergentCollective, f"the mask of {site.call} names lane {c % 32}, but {self._whereabouts(c, d)}"
        elif fault == Fault.OTHER_MASK:
            kind, reason = DivergentCollective, f"{site.call} with another mask than thread {c}'s"
        elif fault == Fault.NOT_IN_MASK:
            kind, reason = MaskError, f"{site.call}: the lane is not in its own mask"
        elif fault == Fault.SOURCE:
            kind, reason = MaskError, f"{site.call} reads lane {c}, which takes no part in it: the value is undefined"
        else:
            kind, reason = NeverTrue, f"waits at {site.call}, and no thread is left to end that"
            if site.kind is Kind.SPIN:
                reason = "spins in a loop that no thread is left to end"
        if self.env[Env.TOGETHER] > 1:
            self._enter_block(int(self.env[Env.FIRST_BLOCK]) + a // int(self.env[Env.PADDED]))
        return self.error(kind, reason, thread=a, location=site.location)

    def _enter_block(self, number: int) -> None:
        across, down = int(self.env[Env.GRID_X]), int(self.env[Env.GRID_Y])
        self.env[[Env.BLOCK_X, Env.BLOCK_Y, Env.BLOCK_Z]] = number % across, number // across % down, number // (across * down)

    def _whereabouts(self, thread: int, site: int, barrier: Kind = Kind.BARRIER) -> str:
        """Where a thread is that others wait for: at a site, or, where a barrier is held up, at its end (0)."""
        block, thread = divmod(thread, int(self.env[Env.PADDED]))
        if site == 0 and barrier is Kind.GRID:
            return f"thread 0 of block {int(self.env[Env.FIRST_BLOCK]) + block}, which arrives for its block, has ended"
        if site == 0:
            return f"thread {thread} has ended, after a branch around it: undefined"
        found = self.program.sites[site - 1]
        return f"thread {thread} waits at {found.call} in line {found.location.line}"
