"""Pruning: it says first what it would remove, and never touches what is unfinished, young, or the outbox."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from gristmill import pruning
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings
from gristmill.store import RecordState
from gristmill.testing import FakeEngine

Drop = Callable[[str, bytes], Path]
BAD = '{"title": "soup", "stars": 9}'
LINES = b'{"id": "x", "text": "t"}\n{"id": "z"}\n'


@pytest.fixture
def settings(settings: Settings, database_url: str) -> Settings:
    """Every test here runs on both databases."""
    return settings.model_copy(update={"database_url": SecretStr(database_url)})


def extract(pipeline: Pipeline) -> list[str]:
    """One extract run; its notes."""
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    return pipeline.run(run_id).notes


def age(folder: Path, days: float) -> None:
    """Make reports look old."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - days * 86400,) * 2)


def test_what_is_old_goes(drop: Drop, settings: Settings) -> None:
    """Rows, archived input, dead file and reports of a finished file go; its outbox, mark and identity stay."""
    pipeline = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", LINES)
    extract(pipeline)
    drop("note/copy.jsonl", LINES)
    extract(pipeline)
    age(pipeline.reports, 2)
    plan = pruning.plan(pipeline, time.time() + 1)
    assert [going.old.file.output_name for going in plan.files] == ["a"]
    assert plan.records == 2
    assert sorted(path.name for path in plan.files[0].archived) == ["a.jsonl", "copy.jsonl"]
    assert [path.name for path in plan.files[0].dead] == ["a.jsonl"]
    assert len(plan.reports) == 4
    assert all(path.exists() for path in plan.paths)

    pruning.prune(pipeline, plan)
    assert not any(path.exists() for path in plan.paths)
    assert (settings.data / "outbox" / "note" / "a.jsonl").read_text().count("\n") == 1
    assert (settings.data / "outbox" / "note" / "a.done").exists()
    assert pipeline.desk.rows(list(RecordState)) == []
    assert pruning.plan(pipeline, time.time() + 1).files == ()

    drop("note/again.jsonl", LINES)
    assert extract(pipeline) == [
        "already done before, not done again: again.jsonl (its rows were pruned, its outbox file is as it was) "
        "(the option again repeats it)"
    ]
    assert (settings.data / "outbox" / "note" / "a.jsonl").read_text().count("\n") == 1
    drop("note/a.jsonl", b'{"id": "new", "text": "t"}\n')
    extract(pipeline)
    assert len(list((settings.data / "outbox" / "note").glob("a-*.jsonl"))) == 1
    assert list(pipeline.invariants.broken()) == []


def test_what_is_young_or_unfinished_stays(drop: Drop, settings: Settings) -> None:
    """A file with one record still queued keeps everything, however old; so does one that ended just now."""
    pipeline = Pipeline(settings, FakeEngine(lambda request: BAD))
    drop("note/queued.jsonl", LINES)
    extract(pipeline)
    assert pruning.plan(pipeline, time.time() + 1).files == ()
    good = Pipeline(settings, FakeEngine())
    good.run(good.begin("retry"))
    assert [going.old.file.output_name for going in pruning.plan(pipeline, time.time() + 1).files] == ["queued"]
    assert pruning.plan(pipeline, time.time() - 60).files == ()
    assert pruning.plan(pipeline, time.time() - 60).reports == ()


def test_broken_off_in_the_middle(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pruning that is killed leaves nothing that counts as damage, and the next one removes the rest."""
    pipeline = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", b"".join(b'{"id": "%d", "text": "t"}\n' % n for n in range(50)))
    extract(pipeline)
    monkeypatch.setattr("gristmill.store.retention._PAGE", 10)
    writing, count = pipeline.retention._writing, 0

    def dies(**options: bool):  # type: ignore[no-untyped-def]
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return writing(**options)

    monkeypatch.setattr(pipeline.retention, "_writing", dies)
    with pytest.raises(KeyboardInterrupt):
        pruning.prune(pipeline, pruning.plan(pipeline, time.time() + 1))
    monkeypatch.setattr(pipeline.retention, "_writing", writing)
    assert list(pipeline.invariants.broken()) == []
    rest = pruning.plan(pipeline, time.time() + 1)
    assert rest.records == 30
    pruning.prune(pipeline, rest)
    assert pipeline.desk.rows(list(RecordState)) == []
