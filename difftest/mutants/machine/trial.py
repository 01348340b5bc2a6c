"""One mutant tried: in the forms that its line is part of, on the cases that decide soonest first. In a process of its own."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from difftest.cases import Request, generate
from difftest.cases.case import OUT_NONE, Case, row_buffers
from difftest.mutants.checks import check_of, checks_of
from difftest.mutants.machine import child, emulated, torch_references
from difftest.mutants.machine.forms import BLOCK, TEXTBOOK_NORMS, Form, forms_of
from difftest.mutants.machine.install import install
from difftest.mutants.machine.listing import Mutant
from difftest.run import check
from reference.contracts import Contract, contract
from reference.operators import operator
from reference.providers import Provider

KILLED, SURVIVED, SAME, REFUSED, UNREACHED = "killed", "survived", "same code", "does not compile", "in no form"
MOST_FORMS = 5  # of those whose code a mutant changes, in which its cases are run
FIRST = 3  # cases of an operator: most mutants of its formula are found by the first
SEEDS = (1, 2)  # of the emulator's schedule, where order alone has found nothing
STRENGTH, FEW_ROWS = 2, 33  # of the covering array; and which of its cases come first
WIDTHS = (1, 3, 111, 4096)  # of the further cases: the tester's own


@dataclass(slots=True)
class Step:
    """A mutant in one form. `checks`: which spoke, in the case that killed it; `first`: that case, and what was said."""

    form: str
    status: str = SURVIVED
    checks: tuple[str, ...] = ()
    first: str = ""
    cases: int = 0


@dataclass(slots=True)
class Trial:
    """What a mutant came to, and in which forms."""

    status: str
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def deciding(self) -> Step:
        """The last step: the one that killed it, where one did."""
        return self.steps[-1] if self.steps else Step("")


def try_out(mutant: Mutant) -> Trial:
    """Tries a mutant in child processes; what takes one down kills it."""
    began = time.monotonic()
    trial = _try_kernel(mutant) if mutant.source.is_kernel else _try_reference(mutant)
    trial.seconds = time.monotonic() - began
    return trial


def _try_kernel(mutant: Mutant) -> Trial:
    warm_up()
    forms = forms_of(mutant.source.stem, mutant.edit.function.partition(".")[0])
    originals = {form: (original_source(form), original_code(form)) for form in forms}
    trial = _in_child(lambda say: _try_forms(mutant, originals, say))
    if trial.status == SURVIVED:
        left = [form for form in forms if Step(form.name) in [replace(step, cases=0) for step in trial.steps]]
        if _same_ptx(mutant, left) and (len(left) < MOST_FORMS or _same_ptx(mutant, forms)):
            trial.status = SAME
    return trial


def _try_reference(mutant: Mutant) -> Trial:
    for form in torch_references.FORMS:
        _testers_cases(*form)  # drawn once, not in each child
    return _in_child(lambda say: _try_formula(mutant, say))


def _same_ptx(mutant: Mutant, forms: Sequence[Form]) -> bool:
    """Whether the kernels of all these forms are the same to a GPU."""
    answer, exit_code = child.last_answer(lambda say: _say_ptx(mutant, forms, say))
    return not exit_code and answer == [original_ptx(form) for form in forms]


def _in_child(work: Callable[[Callable[[Any], None]], None]) -> Trial:
    """The trial as the child last told it. A child that ends before its time was ended by the mutant."""
    trial, exit_code = child.last_answer(work)
    trial = trial or Trial(UNREACHED, [Step("")])
    if exit_code == -signal.SIGPROF:
        _kill(trial, "does not end")
    elif exit_code < 0:
        _kill(trial, f"the process died (exit code {exit_code})")
    elif exit_code:
        raise RuntimeError(f"the trial itself failed, in {trial.deciding.form}: its process wrote why")
    return trial


def _kill(trial: Trial, first: str, reasons: Sequence[str] = ()) -> None:
    trial.status = trial.deciding.status = KILLED
    trial.deciding.checks, trial.deciding.first = checks_of(reasons or [first]), first


# --- in the child ---------------------------------------------------------------------------------------------------------


def _try_forms(mutant: Mutant, originals: Mapping[Form, tuple[str, str]], say: Callable[[Any], None]) -> None:
    """Each form whose code the mutant changes: its cases, until one finds it; then what takes longer."""
    trial = Trial(UNREACHED)
    emulated.isolate()
    try:
        install(mutant.source.module, mutant.text())
    except Exception as error:
        say(Trial(REFUSED, [Step("", REFUSED, first=f"{type(error).__name__}: {error}")]))
        return
    left: list[tuple[Form, emulated.Emulated]] = []
    for form, (source, code) in originals.items():
        if look(form) == source:
            continue
        trial.steps.append(Step(form.name))
        trial.status = SURVIVED
        with emulated.emulated(form) as running:
            first, *others = cases_of(form)
            if _run(trial, form, [first], say):
                return
            if digest(running.code()) == code:
                trial.deciding.status = SAME
                say(trial)
                continue
            if _run(trial, form, others, say):
                return
        left.append((form, running))
        if len(left) == MOST_FORMS:
            break
    if trial.steps and not left:
        trial.status = SAME
    if left:
        _try_further(trial, left, say)
    say(trial)


def _say_ptx(mutant: Mutant | None, forms: Sequence[Form], say: Callable[[Any], None]) -> None:
    """Digests of the forms' PTX. The emulator's code keeps what lives over a barrier in an order that a mere name decides."""
    emulated.isolate()
    if mutant:
        install(mutant.source.module, mutant.text())
    found = []
    for form in forms:
        with emulated.emulated(form, looks=True) as looking:
            next(_reasons(form, cases_of(form)[:1]))
        found.append(digest(looking.ptx()))
    say(found)


def _try_further(trial: Trial, left: Sequence[tuple[Form, emulated.Emulated]], say: Callable[[Any], None]) -> None:
    """What no case of a form found: other schedules, the emulator's full check, then all of the tester's own cases."""
    for form, running in left:
        for seed in SEEDS:
            running.seed = seed
            trial.steps.append(Step(f"{form.name}, schedule {seed}"))
            with emulated.resumed(running):
                if _run(trial, form, cases_of(form)[:1], say):
                    return
    form = left[0][0]
    trial.steps.append(Step(f"{form.name}, full check"))
    with emulated.emulated(form, "full"):
        if _run(trial, form, cases_of(form)[:1], say):
            return
    usual = [form for form, _ in left if form.usual][:1]
    for form in usual:
        trial.steps.append(Step(f"{form.op} {form.dtype} {form.code}, the default cases"))
        with emulated.emulated(None):
            if _run(trial, form, default_cases(form), say):
                return


def _run(trial: Trial, form: Form, cases: Sequence[Case], say: Callable[[Any], None], provider: Provider | None = None) -> bool:
    """Runs cases in the trial's last step, and says each; whether one decides: it kills the mutant, or shows that none runs.

    What Python or a compiler says of a mutant proves nothing of the tester, so it is not killed by that.
    """
    say(trial)
    for case, reasons in _reasons(form, cases, provider):
        trial.deciding.cases += 1
        first = f"{case} {case.regime}: {reasons[0]}" if reasons else ""
        if reasons and refused(reasons[0]):
            trial.status = trial.deciding.status = REFUSED
            trial.deciding.first = first
        elif reasons:
            _kill(trial, first, reasons)
        say(trial)
        if reasons:
            return True
    return False


def _try_formula(mutant: Mutant, say: Callable[[Any], None]) -> None:
    """A mutant of the plain references, as each operator that it may be part of: a few cases of each, then the others."""
    trial = Trial(SURVIVED)
    try:
        formula = torch_references.formula_of(mutant)
    except Exception as error:
        say(Trial(REFUSED, [Step("", REFUSED, first=f"{type(error).__name__}: {error}")]))
        return
    for which in slice(FIRST), slice(FIRST, None):
        for op, dtype, meant in torch_references.FORMS:
            trial.steps.append(Step(f"{op} {dtype} {meant.code}"))
            cases = _testers_cases(op, dtype, meant)[which]
            if _run(trial, Form(op, dtype, meant.code), cases, say, formula.provider(op, meant)):
                return


def _reasons(form: Form, cases: Sequence[Case], provider: Provider | None = None) -> Iterator[tuple[Case, Sequence[str]]]:
    """Each case that can be run, and what is wrong in it. The first of several rows is called again and in parts, too."""
    provider = provider or form.provider()
    promised, asked = bool(getattr(provider, "batch_invariant", False)), False
    for case in cases:
        function = check.function_of(case, provider)
        if not isinstance(function, str):
            again, asked = not asked and case.rows > 1, asked or case.rows > 1
            yield case, check.observe(case, function, case.inputs(), again=again, batch_invariant=promised).reasons


# --- the originals --------------------------------------------------------------------------------------------------------


def warm_up() -> None:
    """Compiles one kernel of each kind in this process, ahead of its children."""
    for form in (TEXTBOOK_NORMS[0], BLOCK[0]):
        emulated.warm_up(form, cases_of(form)[0])


def look(form: Form) -> str:
    """A form's rewritten source, with what it captures; what was raised on the way, where something was."""
    with emulated.emulated(form, looks=True) as looking:
        case = cases_of(form)[0]
        reasons = next(_reasons(form, [case]))[1]
    try:
        return looking.source() if looking.kernels else "\n".join(reasons)
    except Exception as error:  # what can't be rewritten is said again where it is run
        return str(error)


@cache
def original_source(form: Form) -> str:
    """That of the unchanged kernel."""

    def work(say: Callable[[Any], None]) -> None:
        emulated.isolate()
        say(look(form))

    return _of_original(form, work)


@cache
def original_code(form: Form) -> str:
    """A digest of the unchanged kernel's optimised code."""

    def work(say: Callable[[Any], None]) -> None:
        emulated.isolate()
        with emulated.emulated(form) as running:
            _, reasons = next(_reasons(form, cases_of(form)))
            assert not reasons, reasons
            say(digest(running.code()))

    return _of_original(form, work)


@cache
def original_ptx(form: Form) -> str:
    """A digest of the unchanged kernel's PTX."""
    return _of_original(form, lambda say: _say_ptx(None, [form], say))[0]


def _of_original(form: Form, work: Callable[[Callable[[Any], None]], None]) -> Any:
    answer, exit_code = child.last_answer(work)
    if answer is None or exit_code:
        raise RuntimeError(f"the original does not run as {form.name}")
    return answer


# --- cases, and what is said of them --------------------------------------------------------------------------------------


@cache
def cases_of(form: Form) -> list[Case]:
    """The form's cases, which one compiled kernel runs: those of a few rows first, a plain and an odd layout ahead of them."""
    asked = Request({form.op: contract(form.op, form.code)}, [form.dtype], form.widths, strength=STRENGTH)
    found = [case for case in generate(asked) if case.width in form.widths and case.weight_dtype == form.weight_dtype]
    found.sort(key=lambda case: (case.rows < 2, case.rows > FEW_ROWS))
    plain = Case(form.op, form.dtype, (3,), form.widths[0], "normal", 0, asked.contracts[form.op], weight_dtype=form.weight_dtype)
    paddings = tuple((name, 3 + 8 * k) for k, name in enumerate(row_buffers(operator(form.op), OUT_NONE)))
    return [plain, replace(plain, padding=paddings), *found]  # the second: no two buffers with one stride


@cache
def default_cases(form: Form) -> list[Case]:
    """The tester's own cases for a form, with a weight of the rows' dtype: few kernels run them."""
    return [case for case in _testers_cases(form.op, form.dtype, contract(form.op, form.code)) if case.weight_dtype is None]


@cache
def _testers_cases(op: str, dtype: str, meant: Contract) -> list[Case]:
    """Of what the tester runs of the operator in that dtype by itself, the widths that are asked for."""
    asked = Request({op: meant}, [dtype], WIDTHS, strength=STRENGTH)
    return [case for case in generate(asked) if case.width in WIDTHS]


def refused(reason: str) -> bool:
    """Whether it never came to a launch: an error of Python's, the emulator's compiler or Numba's."""
    return reason.rpartition("alone: ")[2].startswith("raised ") and check_of(reason) != "emulator"


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
