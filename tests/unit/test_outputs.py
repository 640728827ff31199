"""Outputs as others find them: whole, packed where wished, with a mark that says that a file is done."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill.engine import Request
from gristmill.outlet import output_paths, write_outputs
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings
from gristmill.testing import FakeEngine, first_example

Drop = Callable[[str, bytes], Path]
BAD = '{"title": "soup", "stars": 9}'
LINES = b'{"id": "x", "text": "t"}\n{"id": "y", "text": "t"}\n{"id": "z"}\n'


def extract(pipeline: Pipeline) -> None:
    """One extract run."""
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    pipeline.run(run_id)


def later(request: Request) -> str:
    """Record y is answered well only under the second preset."""
    return BAD if request.record.id == "y" and request.preset.name == "extract" else first_example(request)


def test_the_mark_comes_last_and_goes_first(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is there if and only if nothing of the file waits, and tells how much there is of what."""
    pipeline = Pipeline(settings, FakeEngine(later))
    drop("note/a.jsonl", LINES)
    extract(pipeline)
    mark = settings.data / "outbox" / "note" / "a.done"
    assert not mark.exists()
    pipeline.run(pipeline.begin("retry"))
    told = json.loads(mark.read_text())
    assert {key: told[key] for key in ("schema", "lines", "accepted", "dead", "outbox", "dead_file")} == {
        "schema": "note",
        "lines": 3,
        "accepted": 2,
        "dead": 1,
        "outbox": "a.jsonl",
        "dead_file": "a.jsonl",
    }
    order: list[str] = []
    replace, unlink = Path.replace, Path.unlink
    monkeypatch.setattr(Path, "replace", lambda self, to: (order.append(f"+{to.name}"), replace(self, to))[1])
    monkeypatch.setattr(Path, "unlink", lambda self, **k: (order.append(f"-{self.name}"), unlink(self, **k))[1])
    pipeline.requeue(record_id="y")
    assert not [name for name in order if name == "-a.done"]
    (file,) = pipeline.ledger.files()
    pipeline.rewrite(file)
    assert [name for name in order if name.startswith("+")][-1] == "+a.done"


def test_a_requeued_file_is_not_done_any_more(drop: Drop, settings: Settings) -> None:
    """Once a dead record is put in again, the mark is gone until it has ended anew."""
    pipeline = Pipeline(settings, FakeEngine(lambda request: BAD))
    drop("note/a.jsonl", b'{"id": "x", "text": "t"}\n')
    extract(pipeline)
    for _ in range(2):
        pipeline.run(pipeline.begin("retry"))
    mark = settings.data / "outbox" / "note" / "a.done"
    assert json.loads(mark.read_text())["dead"] == 1
    pipeline.requeue()
    assert not mark.exists()
    good = Pipeline(settings, FakeEngine())
    good.run(good.begin("retry"))
    assert json.loads(mark.read_text())["accepted"] == 1


def test_packed_outputs(drop: Drop, settings: Settings) -> None:
    """With `compress`, outbox and dead files are gzip, the same lines in the same bytes; the plain ones go."""
    plain = Pipeline(settings, FakeEngine(later))
    drop("note/a.jsonl.gz", gzip.compress(LINES))
    extract(plain)
    outbox, dead = settings.data / "outbox" / "note", settings.data / "dead" / "note"
    lines = (outbox / "a.jsonl").read_bytes()
    packed = Pipeline(settings.model_copy(update={"compress": True}), FakeEngine(later))
    (file,) = packed.ledger.files()
    packed.rewrite(file)
    assert [path.name for path in outbox.iterdir()] == ["a.jsonl.gz"]
    assert [path.name for path in dead.iterdir()] == ["a.jsonl.gz"]
    first = (outbox / "a.jsonl.gz").read_bytes()
    assert gzip.decompress(first) == lines
    packed.rewrite(file)
    assert (outbox / "a.jsonl.gz").read_bytes() == first
    plain.rewrite(file)
    assert [path.name for path in outbox.iterdir()] == ["a.jsonl"]


def test_older_outputs_never_replace_newer(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that prepared outputs before another one published later ones throws its own away."""
    pipeline = Pipeline(settings, FakeEngine(later))
    drop("note/a.jsonl", LINES)
    extract(pipeline)
    (file,) = pipeline.ledger.files()
    publish = pipeline.outputs.publish

    def delayed(file_id: int, version: int, show: Callable[[], None]) -> bool:
        monkeypatch.undo()
        other = Pipeline(settings, FakeEngine())
        other.run(other.begin("retry"))
        return publish(file_id, version, show)

    monkeypatch.setattr(pipeline.outputs, "publish", delayed)
    write_outputs(file, pipeline.outputs, pipeline.outbox, pipeline.dead, compress=False)
    accepted, _, mark = output_paths(file, pipeline.outbox, pipeline.dead, compress=False)
    assert [json.loads(line)["id"] for line in accepted.read_text().splitlines()] == ["x", "y"]
    assert mark.exists()


def test_results_so_far(drop: Drop, settings: Settings) -> None:
    """While a run goes on, what was accepted in the chunks before can be read from the store."""
    seen: list[int] = []

    def looks(request: Request) -> str:
        if request.record.id == "r5":
            other = Pipeline(settings, FakeEngine())
            with other.outputs.ends(1) as ends:
                seen.append(len(list(ends.accepted())))
                assert not ends.complete
        return first_example(request)

    drop("note/a.jsonl", b"".join(b'{"id": "r%d", "text": "t"}\n' % n for n in range(9)))
    extract(Pipeline(settings.model_copy(update={"chunk_records": 2}), FakeEngine(looks)))
    assert seen == [4]


def test_results_of_a_chunk_that_is_not_at_its_end(
    drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results can be had while their chunk is still in the model."""
    monkeypatch.setattr("gristmill.generating._GROUP_SECONDS", 0.0)
    monkeypatch.setattr("gristmill.generating._JUDGE_EVERY_SECONDS", 0.0)
    seen: list[int] = []

    def looks(request: Request) -> str:
        other = Pipeline(settings, FakeEngine())
        with other.outputs.ends(1) as ends:
            seen.append(len(list(ends.accepted())))
        return first_example(request)

    drop("note/a.jsonl", b"".join(b'{"id": "r%d", "text": "t"}\n' % n for n in range(4)))
    extract(Pipeline(settings, FakeEngine(looks, batch=1)))
    assert seen == [0, 1, 2, 3]
