"""The Python API over a fake engine."""

import subprocess
import sys

import pytest
from pydantic import BaseModel

import gristmill
from gristmill import Example, Fault, FaultCode, Record, SchemaError, SetupError
from gristmill.api import Batcher
from gristmill.engine import Request
from gristmill.testing import FakeEngine


class Mood(BaseModel):
    """How it sounds."""

    good: bool


EXAMPLES = [Example("lovely", Mood(good=True))]


def test_results_are_instances() -> None:
    """Texts, mappings and records give results with id, position and an instance of the class."""
    batcher = Batcher(FakeEngine())
    results = list(batcher.run(["fine", {"id": "b", "text": "ok"}, Record("c", "nice")], schema=Mood))
    assert [(r.id, r.index, r.output, r.ok) for r in results] == [
        ("0", 0, Mood(good=True), True),
        ("b", 1, Mood(good=True), True),
        ("c", 2, Mood(good=True), True),
    ]


def test_results_come_as_they_finish() -> None:
    """The first result is there before the last record was read."""
    read = 0

    def records():  # type: ignore[no-untyped-def]
        nonlocal read
        for _ in range(1000):
            read += 1
            yield "text"

    next(Batcher(FakeEngine(batch=4)).run(records(), schema=Mood))
    assert read < 10


def test_bad_records_are_faults_among_results() -> None:
    """A record that can't be read is a result with a fault, and its neighbours go on."""
    results = sorted(Batcher(FakeEngine()).run(["a", {"txt": 1}, "", "b"], schema=Mood), key=lambda r: r.index)
    assert [r.fault.code if r.fault else None for r in results] == [
        None,
        FaultCode.MISSING_TEXT,
        FaultCode.EMPTY_TEXT,
        None,
    ]


def test_attempts_follow_the_policy() -> None:
    """With attempts, a failed record is tried under the next preset; without, its fault is the result."""

    def answer(request: Request) -> str:
        return '{"good": true}' if request.attempt == 2 else '{"good": "perhaps"}'

    engine = FakeEngine(answer)
    (once,) = Batcher(engine).run(["x"], schema=Mood)
    assert isinstance(once.fault, Fault)
    (twice,) = Batcher(engine).run(["x"], schema=Mood, attempts=2)
    assert (twice.output, twice.attempts) == (Mood(good=True), 2)
    assert [r.preset.name for r in engine.requests] == ["extract", "extract", "stable"]


def test_all_results_come_however_many_attempts() -> None:
    """Each record has exactly one result, whether it succeeds at once, later, or never."""

    def answer(request: Request) -> str:
        return '{"good": true}' if request.attempt >= int(request.record.id) else "{}"

    results = list(
        Batcher(FakeEngine(answer)).run([{"id": str(i), "text": "t"} for i in range(1, 7)], schema=Mood, attempts=3)
    )
    assert sorted((int(r.id), r.ok) for r in results) == [(i, i <= 3) for i in range(1, 7)]


def test_usage_errors() -> None:
    """What makes no sense is refused before anything is read."""
    with pytest.raises(SetupError, match="attempts=0 would do nothing; use a whole number from 1"):
        Batcher(FakeEngine()).run(["x"], schema=Mood, attempts=0)
    with pytest.raises(SetupError, match="records is one str, not many; put it into a list"):
        Batcher(FakeEngine()).run("one text", schema=Mood)
    with pytest.raises(SchemaError, match="is no Pydantic model class; give the class itself"):
        Batcher(FakeEngine()).run(["x"], schema=Mood(good=True))  # type: ignore[type-var]
    (odd,) = Batcher(FakeEngine()).run([7], schema=Mood)  # type: ignore[list-item]
    assert odd.fault is not None
    assert odd.fault.message == "the record is a int; give a text, a mapping with text, or a Record"
    with pytest.raises(SetupError, match="no preset 'structurd'; did you mean 'structured'"):
        Batcher(FakeEngine()).run(["x"], schema=Mood, preset="structurd")


def test_load_without_a_model_says_what_to_do() -> None:
    """Loading the embedded model before it was fetched names the command."""
    with pytest.raises(gristmill.ModelError, match="run `gristmill model fetch` once"):
        gristmill.load()


@pytest.mark.parametrize("module", ["gristmill", "gristmill.cli.app", "gristmill.pipeline", "gristmill.testing"])
def test_imports_are_light(module: str) -> None:
    """No import loads torch or transformers, or Prefect, or does anything else by itself."""
    code = (
        f"import {module}, sys; "
        "print([m for m in ('torch', 'transformers', 'prefect', 'outlines') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
