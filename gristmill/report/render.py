"""A report as text for terminals, as Markdown for Prefect, and as files."""

import json
import time
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gristmill.errors import SetupError
from gristmill.outlet import replacing
from gristmill.report.collect import Report
from gristmill.store import RecordState

_SECOND = len("20260131-020000")
COLUMNS = ("schema", "accepted", "queued", "dead", "not reached", "records/s")


def headline(report: Report) -> str:
    """The run in one sentence."""
    states = report.states
    if not report.records:
        return "Nothing was due: no new records, nothing was done."
    accepted, queued, dead = (states[s] for s in (RecordState.ACCEPTED, RecordState.QUEUED, RecordState.DEAD))
    waiting = states[RecordState.WAITING] + states[RecordState.LEASED]
    sentence = f"{accepted} of {report.records} records accepted, {queued} queued for another attempt, {dead} dead"
    return f"{sentence}, {waiting} not reached." if waiting else f"{sentence}."


def schema_rows(report: Report) -> list[dict[str, Any]]:
    """One row per schema with the values of `COLUMNS`."""
    return [
        {
            "schema": name,
            "accepted": s.states[RecordState.ACCEPTED],
            "queued": s.states[RecordState.QUEUED],
            "dead": s.states[RecordState.DEAD],
            "not reached": s.states[RecordState.WAITING] + s.states[RecordState.LEASED],
            "records/s": round(s.records_per_second, 2),
        }
        for name, s in report.schemas.items()
    ]


def as_text(report: Report, reports: Path) -> str:
    """The summary at the end of a run: plain lines, readable in a log."""
    lines = [f"run {report.run_id}: {headline(report)}"]
    if report.schemas:
        width = max(len(name) for name in ("schema", *report.schemas)) + 2
        table = [COLUMNS, *(tuple(str(row[c]) for c in COLUMNS) for row in schema_rows(report))]
        lines += ["  " + f"{first:<{width}}" + "".join(f"{cell:>13}" for cell in rest) for first, *rest in table]
    for name, schema in report.schemas.items():
        if schema.gold_records:
            shares = ", ".join(f"{field} {share:.0%}" for field, share in schema.exact_match.items())
            lines.append(f"  {name}, exact match on {schema.gold_records} records with gold: {shares}")
    if report.repairs:
        lines.append(f"  repaired: {report.repaired} of {report.repairs} attempts that kept valid fields were accepted")
    if report.faults:
        lines.append("  faults: " + ", ".join(f"{code} {count}" for code, count in report.faults.items()))
    lines += [f"  outbox: {file.outbox}" for file in report.files]
    lines += [f"  dead:   {file.dead}" for file in report.files if file.dead]
    lines += [f"  note:   {note}" for note in report.notes]
    queued = sum(states.get(RecordState.QUEUED, 0) for states in report.unfinished_elsewhere.values())
    if queued:
        lines.append(f"  queue:  {queued} records wait for another attempt (the retry flow, or gristmill queue ls)")
    lines.append(f"  report: {html_path(report.run_id, reports)}")
    return "\n".join(lines)


def as_markdown(report: Report, reports: Path) -> str:
    """The summary as Markdown, for a Prefect artifact; it holds no text of records."""
    lines = [f"# {headline(report)}", "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(str(row[column]) for column in COLUMNS) + " |" for row in schema_rows(report)]
    lines += ["", f"Run `{report.run_id}`, model `{report.model}`, preset `{report.preset}`, {report.seconds:.0f} s."]
    if report.faults:
        lines += ["", "Faults: " + ", ".join(f"{code} {count}" for code, count in report.faults.items())]
    lines += ["", *(f"- {note}" for note in report.notes), "", f"Page: `{html_path(report.run_id, reports)}`"]
    return "\n".join(lines)


def html_path(run_id: str, reports: Path) -> Path:
    """Where the run's page lies."""
    return reports / f"{run_id}.html"


def write_report(report: Report, reports: Path) -> None:
    """Write the report as JSON and as a page; the page last, so that where it is, all is.

    Raises:
        StorageError: the folder can't be written.
    """
    from gristmill.report.page import render_page

    with replacing(reports / f"{report.run_id}.json") as file:
        json.dump(report.as_json(), file, ensure_ascii=False, indent=1)
    with replacing(html_path(report.run_id, reports)) as file:
        file.write(render_page(report))


def find_report(run: str, reports: Path) -> Path:
    """The JSON report of a run: its whole id, or the start of one.

    Raises:
        SetupError: there is none, or the start fits several; the message names the nearest.
    """
    known = [path.stem for path in _by_time(reports)]
    fitting = [name for name in known if name.startswith(run)]
    if run in fitting or len(fitting) == 1:
        return reports / f"{run if run in fitting else fitting[0]}.json"
    if fitting:
        raise SetupError(
            f"{run!r} fits {len(fitting)} runs, {fitting[0]} and {fitting[-1]} among them; give more of it"
        )
    near = get_close_matches(run, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the last is {known[-1]}"
    raise SetupError(f"no run {run!r} in {reports}; {hint}")


def latest_report(reports: Path) -> tuple[Path, int]:
    """The JSON report of the latest run that had records, and how many newer runs had none; where no run had any, the
    latest of all.

    Raises:
        SetupError: there is no report.
    """
    known = _by_time(reports)
    for newer, path in enumerate(reversed(known)):
        if json.loads(path.read_text(encoding="utf-8"))["records"]:
            return path, newer
    return known[-1], 0


def list_reports(reports: Path) -> list[dict[str, Any]]:
    """Each run with its kind, its start (UTC) and its counts of records, the latest first.

    Raises:
        SetupError: there is no report.
    """
    rows = []
    for path in reversed(_by_time(reports)):
        report = json.loads(path.read_text(encoding="utf-8"))
        about = {"run": report["run_id"], "kind": report["kind"], "started": as_utc(report["started_at"])}
        states = report["states"]
        waiting = {"not reached": states[RecordState.WAITING] + states[RecordState.LEASED]}
        counts = {state.value: states[state] for state in (RecordState.ACCEPTED, RecordState.QUEUED, RecordState.DEAD)}
        rows.append(about | {"records": report["records"]} | counts | waiting)
    return rows


def _by_time(reports: Path) -> list[Path]:
    """All JSON reports, those of the same second in the order in which they were written.

    Raises:
        SetupError: there is none.
    """
    # A run's id, which is the file's name, begins with the second in which it began.
    found = sorted(reports.glob("*.json"), key=lambda path: (path.stem[:_SECOND], path.stat().st_mtime_ns))
    if not found:
        raise SetupError(f"no reports in {reports} yet; run something first")
    return found


def as_utc(seconds: float) -> str:
    """A time as `2026-01-31 02:00:00Z`."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
