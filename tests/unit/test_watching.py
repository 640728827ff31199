"""Watching: complete files are done at once and together, failures are tried again, and nothing turns in a circle."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gristmill.engine import Request
from gristmill.pipeline import Pipeline
from gristmill.report import Report
from gristmill.settings import Settings
from gristmill.testing import FakeEngine, first_example
from gristmill.watching import Watcher

Drop = Callable[[str, bytes], Path]
LINE = b'{"id": "x", "text": "t"}\n'
BAD = '{"title": "soup", "stars": 9}'


def many(lines: int, prefix: str = "r") -> bytes:
    """A file of so many records."""
    return b"".join(b'{"id": "%s%d", "text": "t"}\n' % (prefix.encode(), i) for i in range(lines))


def watcher(settings: Settings, engine: FakeEngine | None = None) -> tuple[Watcher, list[Report]]:
    """A watcher and the reports that it makes."""
    reports: list[Report] = []
    return Watcher(Pipeline(settings, engine or FakeEngine()), None, reports.append), reports


def test_small_files_are_one_batch(settings: Settings, drop: Drop) -> None:
    """Files that are complete at one moment are done in one run; then there is nothing to do."""
    watch, reports = watcher(settings)
    assert not watch.look()
    for number in range(20):
        drop(f"note/{number}.jsonl", b'{"id": "%d", "text": "t"}\n' % number)
    assert watch.look()
    assert [report.states["accepted"] for report in reports] == [20]
    assert not watch.look()


def test_a_file_still_growing_waits(settings: Settings, drop: Drop) -> None:
    """A file is taken once it has been still for as long as the settings say."""
    watch, reports = watcher(settings.model_copy(update={"settle_seconds": 0.3}))
    path = drop("note/a.jsonl", LINE)
    assert not watch.look()
    time.sleep(0.2)
    path.write_bytes(LINE + LINE)
    assert not watch.look()
    time.sleep(0.2)
    assert not watch.look()
    time.sleep(0.15)
    assert watch.look()
    assert reports[0].records == 2


def test_a_file_that_was_still_meanwhile_does_not_wait(settings: Settings, drop: Drop) -> None:
    """A file that has been still for long enough when it is seen first is taken at once."""
    watch, reports = watcher(settings.model_copy(update={"settle_seconds": 0.3}))
    drop("note/a.jsonl", LINE)
    time.sleep(0.4)
    assert watch.look()
    assert reports[0].records == 1


def test_failures_are_tried_again(settings: Settings, drop: Drop) -> None:
    """What failed and is due is tried again at once, under the next presets, until it ends."""
    watch, reports = watcher(settings, FakeEngine(lambda r: BAD if r.attempt < 3 else first_example(r)))
    drop("note/a.jsonl", LINE)
    while watch.look():
        pass
    assert [(report.kind, report.states["accepted"]) for report in reports] == [
        ("extract", 0),
        ("retry", 0),
        ("retry", 1),
    ]


def test_a_refused_file_is_told_once(settings: Settings, drop: Drop, schemas: Path) -> None:
    """A file whose schema is missing is told once, and taken as soon as the schema is there."""
    watch, reports = watcher(settings)
    drop("other/a.jsonl", LINE)
    assert watch.look()
    assert "no schema 'other'" in reports[0].notes[0]
    assert not watch.look()
    (schemas / "other.py").write_text((schemas / "note.py").read_text())
    assert watch.look()
    assert reports[-1].states["accepted"] == 1


def test_records_without_their_schema_do_not_turn_in_a_circle(settings: Settings, drop: Drop, schemas: Path) -> None:
    """Queued records whose schema went away are looked at now and then, not all the time."""
    watch, _ = watcher(settings, FakeEngine(lambda r: BAD))
    drop("note/a.jsonl", LINE)
    assert watch.look()
    (schemas / "note.py").rename(schemas / "note.bak")
    assert watch.look()
    assert not watch.look()


@contextmanager
def in_the_background(watch: Watcher) -> Iterator[None]:
    """The watcher at work until the context ends."""
    ended = threading.Event()
    look = watch.look

    def until_ended() -> bool:
        if ended.is_set():
            raise SystemExit
        return look()

    def run() -> None:
        with suppress(SystemExit):
            watch.run()

    watch.look = until_ended  # type: ignore[method-assign]
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def test_a_database_that_is_away_is_waited_for(
    settings: Settings, drop: Drop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the database is held by somebody the watcher says so and waits; then it goes on."""
    monkeypatch.setattr("gristmill.store.database._BUSY_SECONDS", 0.1)
    monkeypatch.setattr("gristmill.watching._SHORTEST_PAUSE", 0.1)
    watch, reports = watcher(settings)
    holder = sqlite3.connect(settings.data / "gristmill.sqlite3", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    drop("note/a.jsonl", LINE)
    with in_the_background(watch):
        for _ in range(100):
            if "another process holds it" in caplog.text:
                break
            time.sleep(0.05)
        assert not reports
        holder.execute("ROLLBACK")
        for _ in range(200):
            if reports:
                break
            time.sleep(0.05)
    assert [report.states["accepted"] for report in reports] == [1]
    assert "trying again in" in caplog.text


def test_what_comes_meanwhile_is_put_between(settings: Settings, drop: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that comes while a large one is at work is done after the chunk, and reported before the large one;
    of another large one the rest waits with the first."""
    monkeypatch.setattr("gristmill.watching._FIRST_CHUNK", 10)
    monkeypatch.setattr("gristmill.watching._CHUNK_SECONDS", 0.0)
    come = {"r3": ("note/small.jsonl", 3), "r12": ("note/second.jsonl", 30)}
    asked: list[str] = []

    def answers(request: Request) -> str:
        asked.append(request.record.id)
        if request.record.id in come:
            name, lines = come.pop(request.record.id)
            drop(name, many(lines, prefix=Path(name).stem))
        return first_example(request)

    watch, reports = watcher(settings, FakeEngine(answers, batch=1))
    drop("note/large.jsonl", many(40))
    assert watch.look()
    assert [report.records for report in reports] == [3, 30, 62]
    assert [report.states["accepted"] for report in reports] == [3, 8, 62]
    assert asked[10:13] == ["small0", "small1", "small2"]
    assert [name for name in asked[:51] if name.startswith("second")] == [f"second{i}" for i in range(8)]
    assert len(asked) == len(set(asked)) == 73
    assert not watch.look()


def test_what_comes_meanwhile_and_is_refused(settings: Settings, drop: Drop) -> None:
    """A file that can't be taken does not stop the batch that it came into, and is told once."""
    watch, reports = watcher(settings, FakeEngine(lambda r: (drop("other/a.jsonl", LINE), first_example(r))[1]))
    drop("note/a.jsonl", LINE)
    assert watch.look()
    assert [(report.records, len(report.notes)) for report in reports] == [(0, 1), (1, 0)]
    assert not watch.look()


def test_chunks_are_as_long_as_they_last(settings: Settings, drop: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast engine gets chunks as large as the settings allow, a slow one small ones."""
    watch, _ = watcher(settings.model_copy(update={"chunk_records": 500}))
    drop("note/a.jsonl", many(2000))
    sizes: list[int] = []
    chunks = watch._pipeline.chunks

    def seen(*given: object, **options: object) -> Iterator[int]:
        for records in chunks(*given, **options):  # type: ignore[arg-type]
            sizes.append(records)
            yield records

    monkeypatch.setattr(watch._pipeline, "chunks", seen)
    watch.look()
    assert sizes[0] == 64
    assert max(sizes) == 500
    monkeypatch.setattr("gristmill.watching._CHUNK_SECONDS", 0.0)
    sizes.clear()
    drop("note/b.jsonl", many(600))
    watch.look()
    assert sizes[0] == 500
    assert set(sizes[1:]) <= {8, 4}


def test_progress_is_told(settings: Settings, drop: Drop) -> None:
    """While a batch is at work, how many of how many are done is told, up to all of them."""
    told: list[tuple[int, int]] = []
    watch = Watcher(Pipeline(settings, FakeEngine()), None, lambda _: None, lambda *counts: told.append(counts))
    drop("note/a.jsonl", many(600))
    assert watch.look()
    assert told[-1] == (600, 600)
    assert len(told) > 2
    assert {due for _, due in told} == {600}
    assert told == sorted(told)
