"""The command `docs`: writes every generated page and block, or says which are stale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from difftest import errors
from difftest.errors import UsageError
from difftest.matrix import file, page
from difftest.pages import speed
from difftest.pages.blocks import filled
from difftest.pages.sources import MATRIX, ROOT, need_pages
from difftest.report import files

WHO_ROUNDS_WHERE = ROOT / "docs" / "who-rounds-where.md"


def pages() -> Iterator[tuple[Path, str]]:
    """Every page of the repository's own with the text that it should have. ValueError for marks that make no sense."""
    yield WHO_ROUNDS_WHERE, page.page(file.read("docs", MATRIX), MATRIX.relative_to(ROOT).as_posix())
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))):
        if path != WHO_ROUNDS_WHERE:
            yield path, filled(path, path.read_text(encoding="utf-8"))


def stale() -> list[tuple[Path, str]]:
    """The pages that hold something else than they should, with the right text."""
    return [(path, text) for path, text in pages() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def docs(*, check: bool) -> int:
    """Writes what is stale, or with `check` only says so. Returns the exit status: 1 where a check finds something stale.

    UsageError for a page with marks of no block, LackingError outside of a clone.
    """
    need_pages()
    try:
        wrong = stale()
    except ValueError as error:
        raise UsageError(f"docs: {error}") from None
    drawings = speed.stale_plots()
    if not check:
        if drawings:
            files.need("docs", "matplotlib")
            speed.draw_plots()
        for path, text in wrong:
            files.write_text(path, text)
    said = "not what the data says; run python cli.py docs" if check else "written"
    for path in (*(path for path, _ in wrong), *drawings):
        click.echo(f"{path.relative_to(ROOT)}: {said}")
    return errors.DIFFERS if check and (wrong or drawings) else errors.CONFORMS
