"""The HTML page of a run's report."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from gristmill.report.collect import Failure, FileReport, Report, SchemaReport
from gristmill.report.page import ROWS, duration, grouped, rate, render_page, segments, share, ticks

HOSTILE = (
    "<script>alert('1')</script> \"&amp;\" \x00\x1b[31m\x7f\x85\r\ud800\u202e שלום العربية \U0001f600 "
    "</pre></main>\n\t."
)
SHOWN = (
    "<script>alert('1')</script> \"&amp;\" \u2400\u241b[31m\u2421\ufffd\u240d\ufffd\u202e שלום العربية \U0001f600 "
    "</pre></main>\n\t."
)
VOID = {"meta", "wbr"}


def states(accepted: int = 0, queued: int = 0, dead: int = 0, waiting: int = 0, leased: int = 0) -> dict[str, int]:
    """Counts by state, as a report holds them."""
    return {"waiting": waiting, "leased": leased, "accepted": accepted, "queued": queued, "dead": dead}


def failure(text: str) -> Failure:
    """A failure whose every text is `text`."""
    details = [{"loc": ["items", 0, text], "type": text, "msg": text}]
    return Failure(text, text, 7, text, "dead", "invalid", text, details, text, text)


EMPTY = Report(
    run_id="20260731-050000-extract-ab12",
    kind="extract",
    started_at=1785474000.0,
    seconds=0.2,
    model_seconds=0.0,
    model="embedded",
    preset="extract",
    parameters={},
    states=states(),
    attempts=0,
    accepted_at_first=0,
    records_per_second=0.0,
    prompt_tokens=0,
    completion_tokens=0,
    schemas={},
    faults={},
    field_faults=[],
    completion_histogram=[],
    failures=[],
    files=[],
    unfinished_elsewhere={},
    notes=[],
)

FULL = replace(
    EMPTY,
    seconds=754.6,
    model_seconds=700.0,
    parameters={"seed": 17, "device": "cpu", "nothing": None},
    states=states(1201, 31, 12, 4, 5),
    attempts=1406,
    accepted_at_first=1102,
    records_per_second=2.0086,
    prompt_tokens=1234567,
    completion_tokens=98765,
    schemas={
        "invoice": SchemaReport(states(901, 30, 11, 4, 5), 1083, 822, 500.0, 2.166, 64, {"number": 0.98, "total": 0.5}),
        "ticket": SchemaReport(states(300, 1, 1), 323, 280, 200.0, 1.615),
    },
    faults={"invalid": 150, "truncated": 50},
    field_faults=[{"schema": "invoice", "field": "items.*.unit_price", "type": "decimal_type", "count": 77}],
    completion_histogram=[(16, 4), (32, 1300), (48, 0), (64, 102)],
    failures=[failure("the text")],
    files=[
        FileReport("contact", "all-done.jsonl", 300, states(300), 0, "/out/all-done.jsonl", None, True),
        FileReport("invoice", "a.jsonl", 944, states(901, 30, 11, 2), 3, "/out/a.jsonl", "/dead/a.jsonl", False),
    ],
    unfinished_elsewhere={"contact": {"queued": 1015, "leased": 2}},
    notes=["orders.csv stays in the inbox: only .jsonl files are taken"],
    repairs=44,
    repaired=31,
)

HARMED = replace(
    FULL,
    run_id=HOSTILE,
    kind=HOSTILE,
    model=HOSTILE,
    preset=HOSTILE,
    parameters={HOSTILE: HOSTILE, "nested": [HOSTILE]},
    schemas={HOSTILE: SchemaReport(states(1, 1, 1, 1), 4, 1, 1.0, 4.0, 2, {HOSTILE: 0.5})},
    faults={HOSTILE: 3},
    field_faults=[{"schema": HOSTILE, "field": HOSTILE, "type": HOSTILE, "count": 1}],
    failures=[failure(HOSTILE)],
    files=[FileReport(HOSTILE, HOSTILE, 4, states(1, 1, 1, 1), 0, HOSTILE, HOSTILE, False)],
    unfinished_elsewhere={HOSTILE: {"queued": 1}},
    notes=[HOSTILE],
)


class Page(HTMLParser):
    """What a reader of the page's markup meets: tags with their attributes, text by tag, and whatever is unbalanced."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and begin its text."""
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that has no content."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Note an end that has no beginning."""
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag} at {self.getpos()}")
        if tag in {"td", "th"}:
            self.rows[-1].append(self.texts[tag][-1].strip())

    def handle_data(self, data: str) -> None:
        """Add to the text of every element around."""
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def all(self, tag: str) -> list[str]:
        """The text of each element of that name, with its spaces and newlines as single spaces."""
        return [re.sub(r"[ \n\t]+", " ", text).strip() for text in self.texts.get(tag, [])]

    def values(self, name: str) -> list[str]:
        """The values of that attribute, of all elements."""
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@pytest.fixture(params=[EMPTY, FULL, HARMED], ids=["empty", "full", "hostile"])
def page(request: pytest.FixtureRequest) -> str:
    """The page of an empty, of a usual and of a hostile report."""
    return render_page(request.param)


def test_tags_are_balanced(page: str) -> None:
    """Every tag that is opened is closed, in order."""
    assert Page(page).wrong == []


def test_nothing_is_loaded(page: str) -> None:
    """The page asks for no other file and runs nothing."""
    assert not re.search(r"http://|https://|//[a-z]+\.|src=|href=|@import|<script|<link|url\((?!#)", page)


def test_structure_is_accessible(page: str) -> None:
    """Language, one main heading, levels without gaps, named tables and plots, and ids that are unique."""
    read = Page(page)
    names = [tag for tag, _ in read.tags]
    ids = read.values("id")
    assert ("html", {"lang": "en"}) in read.tags
    assert {"header", "main", "title"} <= set(names)
    assert names.count("h1") == 1
    assert names.count("table") == names.count("caption")
    assert all(attributes.get("scope") for tag, attributes in read.tags if tag == "th")
    for tag, attributes in read.tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") or attributes.get("role") == "img"
            assert attributes.get("aria-hidden") or attributes.get("aria-label") or attributes.get("aria-labelledby")
    assert len(ids) == len(set(ids))
    assert set(" ".join(read.values("aria-labelledby")).split()) <= set(ids)


def test_hostile_text_is_only_text() -> None:
    """Text of records makes no element or attribute, and stands in the page as it is."""
    read, plain = Page(render_page(HARMED)), Page(render_page(FULL))
    assert {tag for tag, _ in read.tags} <= {tag for tag, _ in plain.tags}
    assert {name for _, a in read.tags for name in a} <= {name for _, a in plain.tags for name in a}
    assert read.texts["pre"] == [SHOWN, SHOWN]
    assert re.sub(r"\s+", " ", SHOWN) in read.all("li")
    assert any(value.startswith(SHOWN) for value in read.values("aria-label"))


def test_control_characters_are_made_visible() -> None:
    """No character that HTML forbids is left, the page can be encoded, and tab and newline stay."""
    page = render_page(HARMED)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", page)
    assert page.encode("utf-8").decode("utf-8") == page
    assert "\n\t." in page


def test_numbers_stand_in_the_page() -> None:
    """The headline, the key numbers and the rows of the tables are those of the report."""
    read = Page(render_page(FULL))
    rows, main = [" | ".join(row) for row in read.rows], read.all("main")[0]
    assert read.all("h1") == ["1201 of 1253 records accepted, 31 queued for another attempt, 12 dead, 9 not reached."]
    assert read.values("datetime") == ["2026-07-31T05:00:00Z"]
    assert {"1\u202f253", "95.8%", "87.9%", "1\u202f406", "2.01", "11 min 40 s", "1\u202f234\u202f567"} <= set(
        read.all("strong")
    )
    for words in ("54.6 s elsewhere", "orders.csv stays in the inbox", "64 records with gold", "1\u202f015 queued"):
        assert words in main
    for row in (
        "invoice | 901 | 30 | 11 | 9 | 951 | 1\u202f083 | 822 | 2.17",
        "All | 1\u202f201 | 31 | 12 | 9 | 1\u202f253 | 1\u202f406 | 1\u202f102 | 2.01",
        "invalid | 150 (75.0%) | ",
        "invoice | items.*.unit_price | decimal_type | 77",
        "total | 50.0% | ",
        "invoice | a.jsonl | 944 | 901 | 30 | 11 | 2 | 3 | no | /out/a.jsonl | /dead/a.jsonl",
        "contact | all-done.jsonl | 300 | 300 | 0 | 0 | 0 | 0 | yes | /out/all-done.jsonl | none",
        "seed | 17",
        "nothing | null",
    ):
        assert row in rows


def test_plots_name_their_numbers() -> None:
    """Each plot says in words what it shows."""
    read = Page(render_page(FULL))
    assert {
        "ticket: 300 accepted, 1 queued, 1 dead of 302 records",
        "truncated: 50 (25.0%)",
        "number: 98.0%",
    } <= set(read.values("aria-label"))
    assert read.all("desc")[0] == "up to 16: 4; up to 32: 1\u202f300; up to 48: 0; up to 64: 102;"


def test_files_with_work_left_come_first() -> None:
    """Files whose records are not all accepted come before the others."""
    page = render_page(FULL)
    assert page.index(">a.jsonl<") < page.index(">all-done.jsonl<")


def test_an_empty_run_says_so() -> None:
    """A run that had nothing to do is told in a friendly way, without empty sections."""
    read = Page(render_page(EMPTY))
    assert read.all("h1") == ["Nothing was due: no new records, nothing was done."]
    assert "The next extract run takes in what then lies in the inbox" in read.texts["main"][0]
    assert "section" not in read.texts
    assert "table" not in read.texts


@pytest.mark.parametrize(
    ("absent", "heading"),
    [
        ({"notes": []}, "Notes"),
        ({"faults": {}}, "Faults by code"),
        ({"field_faults": []}, "Faults by field"),
        ({"schemas": {"ticket": FULL.schemas["ticket"]}}, "Exact match with gold"),
        ({"completion_histogram": []}, "Completion tokens"),
        ({"files": []}, "Files"),
        ({"failures": []}, "Examples of failures"),
        ({"parameters": {}}, "Parameters"),
        ({"unfinished_elsewhere": {}}, "Still unfinished in the store"),
    ],
)
def test_empty_sections_are_left_out(absent: dict[str, Any], heading: str) -> None:
    """A section stands in the page exactly when there is something in it."""
    assert heading in Page(render_page(FULL)).all("h2")
    assert heading not in Page(render_page(replace(FULL, **absent))).all("h2")


def test_page_stays_small() -> None:
    """Long messages are cut, and the page says how much is left out."""
    long = "<" * 5000
    failures = [replace(failure(long), schema="invoice", file="a.jsonl")] * 20
    page = render_page(replace(FULL, failures=failures))
    assert len(page.encode()) < 500_000
    assert Page(page).all("dd").count("<" * 1000 + f" ... ({grouped(4000)} more characters)") == 20


def test_many_files_are_counted() -> None:
    """Files and notes beyond the limit are not shown but counted."""
    read = Page(render_page(replace(FULL, files=FULL.files[:1] * (ROWS + 1234), notes=["note"] * (ROWS + 1))))
    assert sum("all-done.jsonl" in row for row in read.rows) == ROWS
    assert read.all("li").count("note") == ROWS
    assert f"The first {ROWS} of {ROWS + 1} notes; the JSON report holds all." in read.all("p")
    assert f"The first {ROWS} of {grouped(ROWS + 1234)} files; the JSON report holds all." in read.all("p")


def test_segments_fill_the_bar() -> None:
    """A stacked bar is full, in order, and even one record among thousands can be seen."""
    parts = segments({"accepted": 9999, "queued": 0, "dead": 1})
    assert [state for state, _, _ in parts] == ["accepted", "dead"]
    assert parts[1][1] == parts[0][2]
    assert sum(width for _, _, width in parts) == pytest.approx(100, abs=0.02)
    assert parts[1][2] > 1
    assert segments({"accepted": 0}) == []


def test_ticks_end_with_the_last_bin() -> None:
    """An axis has marks from zero to the end of the last bin, also where there are few bins."""
    assert ticks([(44, 1)]) == [(0.0, 0), (100.0, 44)]
    assert ticks([(8 * i, 1) for i in range(1, 17)]) == [(0, 0), (25, 32), (50, 64), (75, 96), (100, 128)]


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "0%"), (0, 5, "0%"), (5, 5, "100%"), (9999, 10000, "99.9%"), (1, 10000, "<0.1%"), (1, 3, "33.3%")],
)
def test_share_keeps_all_and_none_apart(part: int, whole: int, text: str) -> None:
    """Almost all is never shown as 100%, almost none never as 0%."""
    assert share(part, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (7.44, "7.4 s"), (59.97, "1 min 00 s"), (3599.7, "1 h 00 min"), (12_000, "3 h 20 min")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    """Durations carry over at the minute and at the hour."""
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0.0, "0.00"), (9.994, "9.99"), (12.34, "12.3"), (1234.5, "1\u202f234")])
def test_rates_have_three_digits(number: float, text: str) -> None:
    """Measured numbers are shown with about three digits."""
    assert rate(number) == text
