"""Fills the marked places of README.md and docs/kernels.md from data, so that no number in them is typed by hand, and draws the
README's plots.

    python benchmarks/readme_tables.py             write the pages
    python benchmarks/readme_tables.py --check     exit status 1 where a page holds something else

A place is what stands between `<!-- NAME:start -->` and `<!-- NAME:end -->`. What was measured comes from the result files in
benchmarks/results/: those of `python cli.py bench --json`, put together by date, and the latest of benchmarks/contracts.py and
benchmarks/first_call.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.bench import plots, results, tables
from difftest.bench.run import SCHEMA
from numba_kernels import tuning
from reference.claims import CLAIMS, Claim, libraries
from reference.operators import OPERATORS, Operator

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/kernels.md")
RESULTS = ROOT / "benchmarks" / "results"
PLOTS = ROOT / "docs" / "plots"
OP, DTYPE = "fused_add_rmsnorm", "bf16"  # of the plots
NOT_YET = "No result file is in `benchmarks/results/` yet.\n"
FORM_WIDTHS = (3, 111, 128, 1024, 4096, 16384, 33333, 65536, 131072, 262144, 1048576)
FORM_ROWS = 4096
H200 = tuning.Target("sm_90", shared_bytes=232448, processors=132, clusters=16, pdl=True, bulk_prefetch=True)
WHERE_TESTED = {"cpu": "its outputs, on a CPU", "gpu": "its outputs, on a GPU", "": "-"}


def benchmark() -> dict[str, Any] | None:
    """The result files of `python cli.py bench --json`, put together by date."""
    found = [document for document in _results() if document.get("schema") == SCHEMA]
    return results.merged(sorted(found, key=lambda document: document["date"])) if found else None


def bench_tables() -> str:
    """What `python cli.py bench --summary FILE… --markdown` prints for the result files."""
    document = benchmark()
    return tables.markdown(document) if document else NOT_YET


def bench_plots() -> str:
    """The plots that draw_plots makes."""
    files = {axis: (PLOTS / f"{OP}-{DTYPE}-{axis}.svg").relative_to(ROOT) for axis in ("width", "rows")}
    return "".join(f"![GB/s of every provider against {axis}]({file})\n" for axis, file in files.items())


def draw_plots() -> None:
    """What `python cli.py bench --summary FILE… --plots docs/plots` draws of one operator and dtype."""
    document = benchmark()
    if document:
        points = [point for point in document["points"] if (point["op"], point["dtype"]) == (OP, DTYPE)]
        PLOTS.mkdir(exist_ok=True)
        plots.write(PLOTS, {**document, "points": points})


def contract_costs() -> str:
    """GPU time of every contract over the default's, from the result file of benchmarks/contracts.py."""
    found = [d for d in _results() if any("ratio_to_default" in point for point in d.get("points", ()))]
    if not found:
        return NOT_YET
    document = found[-1]
    rows = []
    for point in document["points"]:
        default, *others = point["us"]
        ratios = ", ".join(f"{code} {point['ratio_to_default'][code]:.3f}" for code in others)
        shape = f"{point['rows']} x {point['width']}"
        rows.append((point["op"], point["dtype"], shape, f"{default} {point['us'][default]:.2f}", ratios))
    machine = f"{document['card']['name']}, driver {document['clocks']['driver']}, torch {document['environment']['torch']}.\n\n"
    return machine + _table(("operator", "dtype", "rows x width", "default, microseconds", "others, times that"), rows)


def first_calls() -> str:
    """Seconds of the first call in a process, from the result file of benchmarks/first_call.py."""
    found = [document for document in _results() if "first_calls" in document]
    if not found:
        return NOT_YET
    rows = [
        (each["op"], *(f"{each[state]['first_call']:.2f}" for state in ("compiled", "cached")))
        for each in found[-1]["first_calls"]
    ]
    return _table(("first call in a process, seconds", "kernel compiled", "machine code from the disk cache"), rows)


def claims() -> str:
    """The contract of every library for every operator, one column for each group of operators that always agree."""
    groups = _groups_that_agree()
    heads = ("library", *(", ".join(f"`{op}`" for op in group) for group in groups), "held against")
    rows = []
    for library in dict.fromkeys(claim.library for claim in CLAIMS):
        mine = [claim for claim in CLAIMS if claim.library == library]
        rows.append((library, *(_codes(mine, group) for group in groups), _tested(mine)))
    return _table(heads, rows)


def forms() -> str:
    """The kernel that the add-norms get at some widths: bf16, contiguous and aligned, on an H200."""
    rows = []
    for width in FORM_WIDTHS:
        tree = tuning.row_tree(width, 2)
        spec = tuning.norm_spec(
            width,
            FORM_ROWS,
            H200,
            adds_residual=True,
            storage="bf16",
            weight="bf16",
            access=tuning.access_bytes(tree.leaf, 2),
            weight_access=tuning.access_bytes(tree.leaf, 2),
            pdl=True,
        )
        where = {"memory": "read twice", "shared": "shared memory"}.get(spec.row_in, spec.row_in)
        share = f"{spec.rows} rows a block" if spec.rows > 1 else f"{spec.cluster} block{'s' if spec.cluster > 1 else ''} a row"
        tree_size = f"{tree.leaf} x {tree.chain} x 32 x {tree.segments}"
        rows.append((f"{width:,}", tree_size, where, share, f"{spec.threads}", f"{spec.access}"))
    heads = ("width", "leaf x chain x lanes x segments", "the row waits in", "share", "threads a block", "bytes an access")
    return _table(heads, rows)


PLACES: dict[str, Callable[[], str]] = {
    "bench": bench_tables,
    "bench-plots": bench_plots,
    "contract-cost": contract_costs,
    "first-call": first_calls,
    "claims": claims,
    "forms": forms,
}


def filled(page: str) -> str:
    """The page with every marked place filled. ValueError for a place of unknown name, or one that has no end."""
    for name in re.findall(r"<!-- ([\w-]+):start -->", page):
        if name not in PLACES:
            raise ValueError(f"no table is named {name}; there are {', '.join(PLACES)}")
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        head, _, rest = page.partition(start)
        _, found, tail = rest.partition(end)
        if not found:
            raise ValueError(f"{start} has no {end}")
        page = f"{head}{start}\n{PLACES[name]()}{end}{tail}"
    return page


def _results() -> Iterator[dict[str, Any]]:
    for file in sorted(RESULTS.glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(document, dict):
            yield document


def _groups_that_agree() -> list[tuple[str, ...]]:
    """The operators, those for which the same libraries claim the same codes put together."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name, op in OPERATORS.items():
        found.setdefault((op.family, *((lib, _code(lib, op)) for lib in libraries(op))), []).append(name)
    return [tuple(group) for group in found.values()]


def _code(library: str, op: Operator) -> str:
    return next(claim.code for claim in CLAIMS if claim.library == library and op.name in claim.ops)


def _codes(mine: list[Claim], group: tuple[str, ...]) -> str:
    return ", ".join(dict.fromkeys(claim.code for claim in mine if set(group) & set(claim.ops))) or "-"


def _tested(mine: list[Claim]) -> str:
    return ", ".join(WHERE_TESTED[where] for where in dict.fromkeys(claim.tested for claim in mine))


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Write nothing; say which pages would change.")
def main(check: bool) -> None:
    stale = []
    for name in PAGES:
        path = ROOT / name
        page = path.read_text(encoding="utf-8")
        new = filled(page)
        if new != page:
            stale.append(name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if not check:
        draw_plots()
    for name in stale:
        click.echo(f"{name}: {'not what the data says; run python benchmarks/readme_tables.py' if check else 'written'}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
