"""A report as one HTML page that needs nothing but itself: no script, no network, no other file."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from gristmill.report.collect import FileReport, Report
from gristmill.report.render import as_utc, headline
from gristmill.store import RecordState

ROWS = 100
"""How many files and how many notes the page shows; the JSON report holds all of them."""

_THIN = "\u202f"
_SLIVER = 1.5

# Code points that HTML forbids or that UTF-8 can't carry. C0 and DEL have pictures of their own.
_PICTURES = (
    {code: 0xFFFD for span in ((0x80, 0xA0), (0xD800, 0xE000), (0xFDD0, 0xFDF0)) for code in range(*span)}
    | {plane + low: 0xFFFD for plane in range(0, 0x110000, 0x10000) for low in (0xFFFE, 0xFFFF)}
    | {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
)


def render_page(report: Report) -> str:
    """The whole page. Text of records stands in it escaped, with control characters made visible."""
    return _template().render(
        report=report,
        headline=headline(report),
        started=as_utc(report.started_at),
        states=shown_states(report.states),
        files=sorted(report.files, key=_is_done),
        rows=ROWS,
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )
    environment.filters |= {
        "n": grouped,
        "rate": rate,
        "duration": duration,
        "clip": clip,
        "place": place,
        "setting": setting,
    }
    environment.globals |= {"share": share, "shown_states": shown_states, "segments": segments, "ticks": ticks}
    return environment.get_template("page.html.j2")


def visible(value: Any) -> Any:
    """Text with the characters that a page can't hold replaced by ones that can be seen; other values as they are."""
    return value.translate(_PICTURES) if isinstance(value, str) else value


def grouped(number: int) -> str:
    """A whole number in groups of three digits."""
    return f"{number:,}".replace(",", _THIN)


def rate(number: float) -> str:
    """A measured number with three digits or so."""
    return grouped(round(number)) if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def share(part: float, whole: float) -> str:
    """A percentage; 0% and 100% mean none and all, never almost."""
    if not whole or not part:
        return "0%"
    if part >= whole:
        return "100%"
    percent = 100 * part / whole
    return "<0.1%" if percent < 0.1 else f"{min(percent, 99.9):.1f}%"


def duration(seconds: float) -> str:
    """A duration for people: `7.4 s`, `12 min 05 s`, `3 h 20 min`."""
    if seconds < 59.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{grouped(minutes // 60)} h {minutes % 60:02} min"


def clip(text: str, limit: int) -> str:
    """The start of a text that is longer than the page should carry."""
    return text if len(text) <= limit else f"{text[:limit]} ... ({grouped(len(text) - limit)} more characters)"


def place(loc: Sequence[int | str]) -> str:
    """A place in a record as a dotted path."""
    return ".".join(map(str, loc)) or "(whole)"


def setting(value: Any) -> str:
    """A parameter's value as text."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


def shown_states(states: Mapping[str, int]) -> dict[str, int]:
    """The four states that the page tells apart: what another run has in hand counts as waiting."""
    waiting = states.get(RecordState.WAITING, 0) + states.get(RecordState.LEASED, 0)
    done = {state.value: states.get(state, 0) for state in (RecordState.ACCEPTED, RecordState.QUEUED, RecordState.DEAD)}
    return done | {RecordState.WAITING.value: waiting}


def segments(states: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """State, start and width (in percent) of each part of a stacked bar; a part that is not empty can be seen."""
    total = sum(states.values())
    widths = {state: max(100 * count / total, _SLIVER) for state, count in states.items() if count}
    parts, start = [], 0.0
    for state, width in widths.items():
        width *= 100 / sum(widths.values())
        parts.append((state, round(start, 2), round(width, 2)))
        start += width
    return parts


def ticks(histogram: Sequence[tuple[int, int]]) -> list[tuple[float, int]]:
    """Position (in percent) and value of at most five marks on a histogram's axis."""
    bins = len(histogram)
    edges = [0, *(upper for upper, _ in histogram)]
    return [(round(100 * i / bins, 2), edges[i]) for i in sorted({round(bins * q / 4) for q in range(5)})]


def _is_done(file: FileReport) -> bool:
    """Files with something left to look at come first."""
    return file.states[RecordState.ACCEPTED] == file.lines
