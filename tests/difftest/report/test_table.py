"""One table says the same in a terminal, in Markdown and in HTML."""

from rich.console import Console

from difftest.report.table import Styled, Table, html, markdown, terminal

TIMES = Table("Times <us>", ("call", "ours", "verdict"), (("a|b", Styled("1.5", strong=True), Styled("[fine]", style="green")),))
PLAIN = Table("", ("name", "count"), (("x", "1"),))


def shown(table, **how):
    screen = Console(width=60, highlight=False)
    with screen.capture() as capture:
        screen.print(terminal(table, **how))
    return capture.get()


def test_the_terminal_shows_the_text_as_it_is_and_numbers_to_the_right():
    lines = [line.rstrip() for line in shown(TIMES).splitlines() if line.strip()]
    assert lines[0] == "Times <us>"
    assert lines[1].split() == ["call", "ours", "verdict"]
    assert lines[3].split() == ["a|b", "1.5", "[fine]"]
    assert lines[1].index("ours") == lines[3].index("1.5") - 1


def test_markdown_is_titled_in_bold_and_bars_do_not_end_a_cell():
    assert markdown(TIMES).splitlines() == [
        "**Times <us>**",
        "",
        "| call | ours | verdict |",
        "| --- | ---: | ---: |",
        "| a\\|b | **1.5** | [fine] |",
    ]
    assert markdown(PLAIN).startswith("| name | count |\n")


def test_html_is_escaped_and_a_style_is_a_class():
    page = html(TIMES)
    assert "Times &lt;us&gt;" in page
    assert "<strong>1.5</strong>" in page
    assert '<td class="green">[fine]</td>' in page
    assert '<th class="left">call</th>' in page
    assert "caption" not in html(PLAIN)


def test_columns_that_are_named_stand_to_the_left():
    table = Table("", ("a", "b", "words"), (("1", "2", "3"),), names=1, left=("words",))
    assert [table.is_left(index) for index in range(3)] == [True, False, True]
