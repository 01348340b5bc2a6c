"""The HTML page: what it says, that it needs nothing from outside, and how a browser shows it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from difftest.report.picture import COLOURS

from .chromium import PROGRAM, Chromium

BROKEN = Path(__file__).parents[1] / "broken"
SMALL = (
    "--dtypes",
    "bf16,fp32",
    "--widths",
    "64",
    "--rows",
    4,
    "--regimes",
    "normal,zeros,inf_nan",
    "--cases",
    2,
    "--strength",
    0,
)


class Page(HTMLParser):
    """The tags, the text and the addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.outside, self.said = [], set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        if "id" in found:
            assert found["id"] not in self.ids
            self.ids.add(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        self.outside += [
            value for name, value in attrs if name in ("src", "href", "data", "srcset") and not value.startswith("#")
        ]

    def handle_data(self, data):
        self.said.append(data)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A run that conforms and one that differs: page and JSON of each."""
    from click.testing import CliRunner

    from difftest import cli

    folder, found = tmp_path_factory.mktemp("pages"), {}
    differing = (*SMALL, "--candidate", f"{BROKEN / 'drops_one_element.py'}:rmsnorm")
    conforming = (
        *SMALL,
        "--candidate",
        "torch",
        "--against",
        "torch-rmsnorm,torch,quack",
        "--ops",
        "fused_add_rmsnorm,gelu_and_mul",
    )
    for name, words in (("conforms", conforming), ("differs", differing)):
        files = ("--html", folder / f"{name}.html", "--json", folder / f"{name}.json", "--failures", folder / "failures")
        CliRunner().invoke(cli.main, ["difftest", "--device", "cpu", *map(str, (*words, *files))])
        found[name] = folder / f"{name}.html", json.loads((folder / f"{name}.json").read_text())
        assert found[name][1]["verdict"] == name
    return found


@pytest.fixture
def page(pages, request):
    """The page and the JSON of a run by its verdict."""
    file, document = pages[request.param]
    return Page(file.read_text(encoding="utf-8")), document


BOTH = pytest.mark.parametrize("page", ["conforms", "differs"], indirect=True)


@BOTH
def test_the_page_needs_nothing_from_outside(page, pages):
    assert page[0].outside == []
    for file, _ in pages.values():
        assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)|<link|<iframe", file.read_text())


@BOTH
def test_the_verdict_comes_first_with_its_reason_then_command_date_and_environment(page):
    found, document = page
    text = " ".join(" ".join(found.said).split())
    text = text[text.index(f"{document['verdict']}: {document['request']['candidate']} against") :]
    order = [
        "comparisons",
        "command",
        "date",
        "ml_dtypes",
        "Operator, dtype, inputs",
        "Distances in ULP",
        "What was covered",
        "What was not",
    ]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", text)
    assert all(value in text for value in document["environment"].values())
    if document["verdict"] == "differs":
        worst = next(case for case in document["cases"] if case["reasons"])
        assert places[0] < text.index("the worst:") < places[1] < text.index("Worst case")
        assert any(reason in text for reason in worst["reasons"])


@BOTH
def test_every_operator_dtype_and_regime_is_an_entry_that_leads_to_its_comparisons(page):
    found, document = page
    groups = {f"#{case['op']}-{case['dtype']}-{case['regime']}" for case in document["cases"]}
    assert set(found.links) == groups
    assert {link[1:] for link in found.links} <= found.ids


@pytest.mark.parametrize("page", ["differs"], indirect=True)
def test_the_worst_case_has_its_bits_its_row_and_the_commands(page):
    text = " ".join(" ".join(page[0].said).split())
    assert "correctly rounded" in text
    assert "The row around it" in text
    assert len(re.findall(r"\(0x[0-9a-f]{4,8}\)", text)) > 6
    assert "python cli.py replay " in text
    assert "python cli.py difftest --ops rmsnorm" in text


@pytest.mark.parametrize("page", ["conforms"], indirect=True)
def test_what_was_not_covered_is_said(page):
    text = " ".join(" ".join(page[0].said).split())
    said = text[text.index("What was not") : text.index("Every comparison")]
    assert "Skipped:" in said
    assert "quack runs on CUDA devices only" in said
    assert "a trivial mutant passes too" in said


def test_text_keeps_its_contrast_on_every_ground_of_a_picture():
    for scheme in (0, 1):
        for ground in ("ground", "card", "same", "off", "class"):
            assert contrast(COLOURS["text"][scheme], COLOURS[ground][scheme]) >= 4.5
        for text in ("quiet", "link", "good", "bad", "unsure"):
            assert min(contrast(COLOURS[text][scheme], COLOURS[on][scheme]) for on in ("ground", "card")) >= 4.5


def contrast(one, other):
    """The contrast of two colours, WCAG 2's formula."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_plots_are_pictures_of_their_own_whose_axis_says_what_it_is(difftest, tmp_path):
    difftest("--candidate", f"{BROKEN / 'returns_zeros.py'}:rmsnorm", *SMALL, "--plots", tmp_path / "plots")
    files = sorted((tmp_path / "plots").iterdir())
    assert [file.name for file in files] == ["rmsnorm-bf16-torch.svg", "rmsnorm-fp32-torch.svg"]
    for file in files:
        drawing = ElementTree.parse(file).getroot()
        text = " ".join(each.text or "" for each in drawing.iter() if each.text)
        assert "elements (log scale)" in text
        assert "← smaller" in text
        assert "prefers-color-scheme:dark" in text
        height, width = float(drawing.get("height")), float(drawing.get("width"))
        inside = [each for each in drawing.iter() if each.tag.endswith("rect")]
        assert all(
            float(each.get("x", 0)) >= 0 and float(each.get("x", 0)) + float(each.get("width")) <= width for each in inside
        )
        assert all(float(each.get("y", 0)) < height for each in inside)


# What a browser finds wrong with the page as it is shown: text that does not fit, that has too little contrast, that is cut off.
CHECKS = """(() => {
  const shown = e => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
  document.querySelectorAll("details").forEach(e => e.open = true);
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is wider than the window");
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect(), scrolls = e.closest(".wide");
    if (shown(e) && !scrolls && box.right > innerWidth + 1) wrong.push("too far right: " + e.outerHTML.slice(0, 80));
  }
  for (const e of document.querySelectorAll("details")) if (![...e.children].slice(1).every(shown)) wrong.push("does not open");
  for (const svg of document.querySelectorAll("svg")) for (const t of svg.querySelectorAll("text")) {
    const a = t.getBoundingClientRect(), b = svg.getBoundingClientRect();
    if (a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1) wrong.push("cut off: " + t.textContent);
  }
  const rgb = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const part = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => .2126 * part(c[0]) + .7152 * part(c[1]) + .0722 * part(c[2]);
  const ground = e => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3]) return c; }
    return [255, 255, 255];
  };
  let seen = 0, least = 99;
  for (const e of document.querySelectorAll("body *")) {
    if (!shown(e) || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    const style = getComputedStyle(e), text = rgb(e.closest("svg") ? style.fill : style.color);
    const pair = [light(text), light(ground(e))].sort((a, b) => b - a), ratio = (pair[0] + .05) / (pair[1] + .05);
    seen++; least = Math.min(least, ratio);
    if (ratio < 4.5) wrong.push("contrast " + ratio.toFixed(2) + ": " + e.textContent.slice(0, 40));
  }
  return JSON.stringify({wrong: wrong.slice(0, 5), seen, least});
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if PROGRAM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with Chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.slow
def test_a_browser_shows_all_of_it_at_both_widths_and_in_both_schemes(browser, pages):
    grounds = set()
    for file, _ in pages.values():
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                browser.open(file, width, scheme)
                assert browser.evaluate("innerWidth") == width
                found = json.loads(browser.evaluate(CHECKS))
                assert found["wrong"] == [], (file.name, width, scheme)
                assert found["seen"] > 100
                grounds.add((scheme, browser.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert len(grounds) == 2, "one ground a scheme"


def test_an_entry_opens_its_comparisons(browser, pages):
    file, _ = pages["differs"]
    browser.open(file, 1280, "light")
    browser.evaluate("document.querySelector('.card td a').click()")
    opened = "(() => { const e = document.querySelector(':target'); return e && e.getClientRects().length > 0; })()"
    assert browser.evaluate(f"new Promise(done => setTimeout(() => done({opened}), 200))")
