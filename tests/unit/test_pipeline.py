"""A record's way through the store, with a fake engine: nothing is lost, nothing is done twice."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import jsonlines
import pytest
from pydantic import SecretStr

from gristmill import intake
from gristmill.engine import FinishReason, Request
from gristmill.errors import InvariantError
from gristmill.faults import Fault, FaultCode
from gristmill.pipeline import Pipeline
from gristmill.report import Report
from gristmill.settings import Settings
from gristmill.store import RecordState
from gristmill.testing import FakeEngine, first_example

Drop = Callable[[str, bytes], Path]


@pytest.fixture
def settings(settings: Settings, database_url: str) -> Settings:
    """Every test here runs on both databases."""
    return settings.model_copy(update={"database_url": SecretStr(database_url)})


def lines(*records: object) -> bytes:
    """JSONL of these objects."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def extract(pipeline: Pipeline, **options: bool) -> Report:
    """One extract run."""
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id, **options)
    return pipeline.run(run_id)


def retry(pipeline: Pipeline, *, ignore_due: bool = False) -> Report:
    """One retry run."""
    return pipeline.run(pipeline.begin("retry"), ignore_due=ignore_due)


def result_files(settings: Settings) -> list[Path]:
    """The result files in the outbox of schema note, without the marks of completeness."""
    return sorted((settings.data / "outbox" / "note").glob("*.jsonl"))


def outbox(settings: Settings, name: str = "a") -> list[dict[str, object]]:
    """The lines of an outbox file of schema note."""
    with jsonlines.open(settings.data / "outbox" / "note" / f"{name}.jsonl") as reader:
        return list(reader)


def dead(settings: Settings, name: str = "a") -> list[str]:
    """The lines of a dead file of schema note."""
    return (settings.data / "dead" / "note" / f"{name}.jsonl").read_text().splitlines()


def test_the_way_of_a_good_record(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """A good record appears in the outbox in the documented form, and its file in the archive."""
    source = drop("note/a.jsonl", lines({"id": "x", "text": "one two", "more": 1}))
    report = extract(pipeline)
    assert outbox(settings) == [
        {
            "id": "x",
            "line": 1,
            "schema": "note",
            "format": "json",
            "output": {"title": "pizza", "stars": 5},
            "attempts": 1,
            "preset": "extract",
            "model": "fake",
            "usage": {"prompt_tokens": 33, "completion_tokens": 4},
            "finish_reason": "stop",
        }
    ]
    assert not source.exists()
    assert (settings.data / "archive" / "note" / "a.jsonl").exists()
    assert report.states == {"waiting": 0, "leased": 0, "accepted": 1, "queued": 0, "dead": 0}


def test_input_order(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """Outbox lines stand in input order, whatever order the engine finished in."""

    class Backwards(FakeEngine):
        def generate(self, requests, started):  # type: ignore[no-untyped-def]
            yield from reversed(list(super().generate(requests, started)))

    drop("note/a.jsonl", lines(*({"id": str(i), "text": "t"} for i in range(50))))
    extract(Pipeline(settings, Backwards()))
    assert [line["id"] for line in outbox(settings)] == [str(i) for i in range(50)]


def test_nothing_is_done_twice(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """The same content under another name is recognised, said, and costs no attempt; `again` repeats it."""
    content = lines({"id": "x", "text": "t"})
    drop("note/a.jsonl", content)
    extract(pipeline)
    drop("note/b.jsonl", content)
    report = extract(pipeline)
    assert report.attempts == 0
    assert report.notes == ["already done before, not done again: b.jsonl (the option again repeats it)"]
    assert [file.outbox for file in report.files] == [str(settings.data / "outbox/note/a.jsonl")]
    drop("note/b.jsonl", content)
    assert extract(pipeline, again=True).attempts == 1


@pytest.mark.parametrize("change", ["preset", "model", "schema"])
def test_another_question_is_another_work(
    change: str, pipeline: Pipeline, drop: Drop, settings: Settings, schemas: Path
) -> None:
    """The same content under another preset, model or prompt is done, beside the first result."""
    content = lines({"id": "x", "text": "t"})
    drop("note/a.jsonl", content)
    extract(pipeline)
    if change == "schema":
        path = schemas / "note.py"
        path.write_text(path.read_text().replace("Read the note.", "Read it."))
    drop("note/a.jsonl", content)
    other = Pipeline(
        settings.model_copy(update={"preset": "stable"}) if change == "preset" else settings,
        FakeEngine(name="other" if change == "model" else "fake"),
    )
    assert extract(other).attempts == 1
    assert len(result_files(settings)) == 2


def test_other_content_under_a_taken_name(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """A second file of the same name gets a short hash; neither result replaces the other."""
    drop("note/a.jsonl", lines({"id": "1", "text": "t"}))
    extract(pipeline)
    drop("note/a.jsonl", lines({"id": "2", "text": "t"}))
    extract(pipeline)
    names = [path.name for path in result_files(settings)]
    assert len(names) == 2
    assert names[1] == "a.jsonl" or names[0].startswith("a-")
    assert outbox(settings)[0]["id"] == "1"
    assert sorted(p.name for p in (settings.data / "archive" / "note").iterdir()) == ["a-2.jsonl", "a.jsonl"]


def test_dead_lines_are_as_they_were(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """A dead object is the same bytes with an error added; anything else is shown with its line number."""
    drop("note/a.jsonl", b'{"id":1,  "x": 1.50}\nnonsense\n\n{"text": "caf\xe9"}\n{}\n[1]')
    extract(pipeline)
    found = dead(settings)
    assert found[0].startswith('{"id":1,  "x": 1.50, "error": {"code": "missing_text", "message": ')
    assert [json.loads(line)["error"]["code"] for line in found] == [
        "missing_text",
        "not_json",
        "not_utf8",
        "missing_text",
        "not_object",
    ]
    assert [(json.loads(line).get("line"), json.loads(line).get("raw")) for line in found] == [
        (None, None),
        (2, "nonsense"),
        (4, '{"text": "caf\\xe9"}'),
        (None, None),
        (6, "[1]"),
    ]


def test_a_mended_dead_file_can_be_dropped_again(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """A dead line, mended, is a good record although its old error still stands in it."""
    drop("note/a.jsonl", lines({"id": "x", "txt": "t"}))
    extract(pipeline)
    drop("note/mended.jsonl", dead(settings)[0].replace('"txt"', '"text"').encode())
    extract(pipeline)
    assert outbox(settings, "mended")[0]["id"] == "x"


def always(*answers: str | Fault | tuple[str, FinishReason]) -> Callable[[Request], object]:
    """Answer the n-th attempt of a record with the n-th answer."""
    return lambda request: answers[min(request.attempt, len(answers)) - 1]


BAD = '{"title": "soup", "stars": 9}'
GOOD = '{"title": "soup", "stars": 3}'


def test_failures_climb_the_ladder(drop: Drop, settings: Settings) -> None:
    """An invalid answer is queued and tried under the next presets; the accepted attempt names its preset."""
    pipeline = Pipeline(settings, FakeEngine(always(BAD, BAD, GOOD)))
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    assert extract(pipeline).states["queued"] == 1
    (row,) = pipeline.desk.rows([RecordState.QUEUED])
    assert (row.attempts, row.preset, row.fault and row.fault.code) == (1, "stable", FaultCode.INVALID)
    assert retry(pipeline).states["queued"] == 1
    report = retry(pipeline)
    assert report.states["accepted"] == 1
    assert (outbox(settings)[0]["attempts"], outbox(settings)[0]["preset"]) == (3, "structured")
    assert retry(pipeline).records == 0


def test_used_up_records_are_dead(drop: Drop, settings: Settings) -> None:
    """After its last attempt a record stands in the dead folder with Pydantic's details, and nowhere else."""
    pipeline = Pipeline(settings, FakeEngine(always(BAD)))
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    extract(pipeline)
    retry(pipeline)
    assert retry(pipeline).states["dead"] == 1
    error = json.loads(dead(settings)[0])["error"]
    assert error["code"] == "invalid"
    assert error["details"] == [
        {"loc": ["stars"], "type": "less_than_equal", "msg": "Input should be less than or equal to 5"}
    ]
    assert outbox(settings) == []


def test_a_cut_answer_gets_a_larger_budget(drop: Drop, settings: Settings) -> None:
    """A truncated answer is tried again under the same preset with twice the tokens, never accepted."""
    engine = FakeEngine(always((GOOD, FinishReason.LENGTH), GOOD))
    pipeline = Pipeline(settings, engine)
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    assert extract(pipeline).faults == {"truncated": 1}
    assert retry(pipeline).states["accepted"] == 1
    assert [(r.preset.name, r.max_new_tokens) for r in engine.requests] == [("extract", 256), ("extract", 512)]


def test_waits_are_kept_unless_ignored(drop: Drop, settings: Settings) -> None:
    """A fault of the machine waits its time; a retry run before that leaves the record alone."""
    pipeline = Pipeline(settings, FakeEngine(always(Fault(FaultCode.OUT_OF_MEMORY, "no room"), GOOD)))
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    extract(pipeline)
    assert retry(pipeline).records == 0
    assert retry(pipeline, ignore_due=True).states["accepted"] == 1


class Dies(BaseException):
    """What a killed process is to the code that it ran."""


def test_a_restart_finds_everything(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a process died in the middle, the next run finishes, and no accepted record is generated twice."""

    def dies_at_20(request: Request) -> str:
        if request.record.id == "20":
            raise Dies
        return first_example(request)

    drop("note/a.jsonl", lines(*({"id": str(i), "text": "t"} for i in range(40))))
    first = Pipeline(settings, FakeEngine(dies_at_20))
    # A killed process gives nothing back and writes nothing more.
    monkeypatch.setattr(first.queue, "give_back", lambda lease: 0)
    run_id = first.begin("extract")
    first.take_in(run_id)
    claim = first.next_chunk(run_id)
    with pytest.raises(Dies):
        first.generate(run_id, claim.lease)
    monkeypatch.setattr("gristmill.store.owner.lives", lambda owner: False)

    second_engine = FakeEngine()
    second = Pipeline(settings, second_engine)
    report = extract(second)
    asked_again = {request.record.id for request in second_engine.requests}
    kept = {str(i) for i in range(20)}
    assert not asked_again & kept
    # The record in hand and those of its batch behind it were interrupted: they wait a minute.
    interrupted = report.states["queued"]
    assert len(second.desk.rows([RecordState.ACCEPTED])) == 40 - interrupted
    assert 1 <= interrupted <= 8
    assert retry(second, ignore_due=True).states["accepted"] == interrupted
    assert [line["id"] for line in outbox(settings)] == [str(i) for i in range(40)]


def test_a_record_that_kills_the_process_dies(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that kills the process each time is dead after its attempts; it can't do so for ever."""

    def deadly(request: Request) -> str:
        raise Dies

    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    monkeypatch.setattr("gristmill.store.owner.lives", lambda owner: False)
    engine = FakeEngine(deadly)
    for kind in ("extract", *["retry"] * 5):
        pipeline = Pipeline(settings, engine)
        monkeypatch.setattr(pipeline.queue, "give_back", lambda lease: 0)
        run_id = pipeline.begin(kind)
        pipeline.take_in(run_id)
        with suppress(Dies):
            pipeline.run(run_id, ignore_due=True)
    assert len(engine.requests) == 3
    assert json.loads(dead(settings)[0])["error"]["code"] == "interrupted"


def test_an_exception_gives_work_back(drop: Drop, settings: Settings) -> None:
    """When the engine raises, finished candidates are kept, the rest is given back uncounted, the error is raised."""

    def breaks(request: Request) -> str:
        if request.record.id == "5":
            raise RuntimeError("broken engine")
        return first_example(request)

    drop("note/a.jsonl", lines(*({"id": str(i), "text": "t"} for i in range(8))))
    pipeline = Pipeline(settings, FakeEngine(breaks, batch=1))
    with pytest.raises(RuntimeError, match="broken engine"):
        extract(pipeline)
    counts = pipeline.ledger.unfinished()["note"]
    # What was done is accepted; the record that broke the engine has an attempt that tells of it, those behind it none.
    assert counts == {RecordState.LEASED: 1, RecordState.WAITING: 2}
    assert len(pipeline.desk.rows([RecordState.ACCEPTED])) == 5


def test_two_runs_share_without_overlap(drop: Drop, settings: Settings) -> None:
    """Chunks claimed by two pipelines on one database never hold the same record."""
    small = settings.model_copy(update={"chunk_records": 3})
    one, two = Pipeline(small, FakeEngine()), Pipeline(small, FakeEngine())
    drop("note/a.jsonl", lines(*({"id": str(i), "text": "t"} for i in range(9))))
    run_one = one.begin("extract")
    one.take_in(run_one)
    run_two = two.begin("extract")
    leases = [one.next_chunk(run_one).lease, two.next_chunk(run_two).lease, one.next_chunk(run_one).lease]
    ids = [held.record_id for lease in leases for held in one.queue.to_generate(lease, suspect=False)]
    assert sorted(ids) == [str(i) for i in range(9)]
    assert two.next_chunk(run_two).records == 0


def test_requeue_and_drop(drop: Drop, settings: Settings) -> None:
    """A dead record requeued by hand starts afresh and may be accepted; a dropped one is dead and kept."""
    pipeline = Pipeline(settings, FakeEngine(always(BAD)))
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}, {"id": "y", "text": "t"}, {"id": "z"}))
    extract(pipeline)
    assert pipeline.drop(record_id="y") == 1
    retry(pipeline)
    retry(pipeline)
    assert len(dead(settings)) == 3
    assert pipeline.requeue() == 2
    assert [json.loads(line)["error"]["code"] for line in dead(settings)] == ["missing_text"]
    assert retry(Pipeline(settings, FakeEngine())).states["accepted"] == 2


def test_duplicate_ids_keep_their_own_lines(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """Two lines of one id are two results, and the report says so."""
    drop("note/a.jsonl", lines({"id": "x", "text": "1"}, {"id": "x", "text": "2"}))
    report = extract(pipeline)
    assert [line["line"] for line in outbox(settings)] == [1, 2]
    assert report.notes == ["a.jsonl has 1 lines whose id stood before in it; each keeps its own line"]


def test_records_wait_for_a_schema_that_went_away(pipeline: Pipeline, drop: Drop, schemas: Path) -> None:
    """Records whose schema file is broken or gone wait, and the report says why; mending it sets them going."""
    drop("note/a.jsonl", lines({"id": "x", "text": "1"}))
    pipeline.take_in(pipeline.begin("extract"))
    (schemas / "note.py").rename(schemas / "note.bak")
    report = pipeline.run(pipeline.begin("extract"))
    assert report.unfinished_elsewhere == {"note": {"waiting": 1}}
    assert report.notes[0].startswith("1 records of schema 'note' wait: no schema 'note'")
    (schemas / "note.bak").rename(schemas / "note.py")
    assert pipeline.run(pipeline.begin("extract")).states["accepted"] == 1


def test_counts_that_do_not_add_up_fail_loudly(pipeline: Pipeline, drop: Drop) -> None:
    """A file whose records are fewer than its lines is an error, not a report."""
    from sqlalchemy import delete

    from gristmill.store.tables import records

    drop("note/a.jsonl", lines({"id": "x", "text": "1"}, {"id": "y", "text": "1"}))
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    with pipeline.ledger._writing() as db:
        db.execute(delete(records).where(records.c.record_id == "y"))
    with pytest.raises(InvariantError, match="has 2 lines but 1 records"):
        pipeline.run(run_id)


def test_exact_match_against_gold(drop: Drop, settings: Settings) -> None:
    """Accuracy counts every field of every record with gold; a record without an accepted output is wrong."""
    pipeline = Pipeline(settings, FakeEngine(lambda r: GOOD if r.record.id != "c" else BAD))
    gold = {"title": "soup", "stars": 5}
    drop("note/a.jsonl", lines(*({"id": i, "text": "t", "gold": gold} for i in "abc"), {"id": "d", "text": "t"}))
    schema = extract(pipeline).schemas["note"]
    assert schema.gold_records == 3
    assert schema.exact_match == {"title": pytest.approx(2 / 3), "stars": 0.0}


def test_two_processes_take_in_one_file(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one process reads a file, another leaves it alone; after that it is known, whole."""
    one, two = Pipeline(settings, FakeEngine()), Pipeline(settings, FakeEngine())
    path = drop("note/a.jsonl", lines(*({"id": str(i), "text": "t"} for i in range(5000))))
    schema = one.schema("note")
    run_one, run_two = one.begin("extract"), two.begin("extract")
    seen = []

    class Slow:
        """The file as it is read by the first process, with the second at work in the middle."""

        def __init__(self, source):  # type: ignore[no-untyped-def]
            self._source = source

        def __iter__(self):  # type: ignore[no-untyped-def]
            for number, line in enumerate(self._source):
                if number == 4500:
                    with monkeypatch.context() as other:
                        other.setattr("gristmill.store.owner.owner", lambda: "elsewhere:1:2.00")
                        other.setattr("gristmill.intake.bounded_lines", original)
                        seen.append(two.take_file(run_two, path, schema, again=False))
                yield line

    original = intake.bounded_lines
    monkeypatch.setattr("gristmill.intake.bounded_lines", lambda source, most: Slow(original(source, most)))
    taken = one.take_file(run_one, path, schema, again=False)
    assert seen == [None]
    assert taken is not None
    assert taken.file.lines == 5000
    assert sum(one.figures.states_of_file(taken.file.id).values()) == 5000
    again = two.take_file(run_two, path, schema, again=False)
    assert again is not None
    assert again.known


def test_a_file_that_grows_while_it_is_read(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content that is not what was hashed is not kept; the file stays and is taken whole by the next run."""
    pipeline = Pipeline(settings, FakeEngine())
    path = drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    digest = intake._digest

    def grows(path: Path) -> str:
        found = digest(path)
        path.write_bytes(path.read_bytes() + lines({"id": "y", "text": "t"}))
        return found

    monkeypatch.setattr("gristmill.intake._digest", grows)
    run_id = pipeline.begin("extract")
    assert pipeline.take_in(run_id) == []
    assert pipeline.report(run_id).notes == [
        "note/a.jsonl stays in the inbox: a changed while it was read; it is taken by the next run"
    ]
    monkeypatch.setattr("gristmill.intake._digest", digest)
    assert path.exists()
    assert extract(pipeline).states["accepted"] == 2


def test_a_lapsed_lease_changes_nothing_any_more(drop: Drop, settings: Settings) -> None:
    """A run whose lease was taken over while it slept writes nothing over what the other run did."""
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}, {"id": "y", "text": "t"}))
    sleeper, other = Pipeline(settings, FakeEngine()), Pipeline(settings, FakeEngine())
    run_id = sleeper.begin("extract")
    sleeper.take_in(run_id)
    claim = sleeper.next_chunk(run_id)

    def taken_over(request: Request) -> str:
        if request.record.id == "y":
            return BAD
        sleeper.queue.renew(claim.lease, -1)
        assert extract(other).states["queued"] == 2
        assert retry(other, ignore_due=True).states["accepted"] == 2
        return BAD

    sleeper._engine = FakeEngine(taken_over)
    sleeper.generate(run_id, claim.lease)
    sleeper.check(claim.lease)
    sleeper.route(claim.lease)
    assert [line["attempts"] for line in outbox(settings)] == [2, 2]
    assert extract(Pipeline(settings, FakeEngine())).records == 0


def test_a_retry_run_tries_once(drop: Drop, settings: Settings) -> None:
    """A retry run makes one attempt per record, also when it does not wait."""
    engine = FakeEngine(always(BAD))
    pipeline = Pipeline(settings, engine)
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    extract(pipeline)
    assert retry(pipeline, ignore_due=True).attempts == 1
    assert len(engine.requests) == 2


def test_again_before_the_first_time(pipeline: Pipeline, drop: Drop) -> None:
    """`again` on a file that was never done is its first time; the plain run after it finds it done."""
    content = lines({"id": "x", "text": "t"})
    drop("note/a.jsonl", content)
    assert extract(pipeline, again=True).attempts == 1
    drop("note/a.jsonl", content)
    assert extract(pipeline).attempts == 0


def test_names_from_other_systems(pipeline: Pipeline, drop: Drop, settings: Settings) -> None:
    """Names that are no UTF-8, very long, or hold control characters neither stop a run nor leave the data folder."""
    inbox = settings.data / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    (inbox / os.fsdecode(b"caf\xe9.jsonl")).write_bytes(lines({"text": "t"}))
    (inbox / f"{'漢' * 80}.jsonl").write_bytes(lines({"id": "long", "text": "t"}))
    (inbox / "a\n\x1b[31m.jsonl").write_bytes(lines({"id": "odd", "text": "t"}))
    report = extract(pipeline)
    assert report.states["accepted"] == 3
    assert report.notes[0].startswith("note/caf\\xe9.txt stays in the inbox")
    names = [path.name for path in result_files(settings)]
    assert len(names) == 3
    assert all(name.isprintable() for name in names)


def test_schemas_that_can_not_be_used_hold_up_nobody(pipeline: Pipeline, drop: Drop, schemas: Path) -> None:
    """A schema without a grammar or with a bad template keeps its files in the inbox, and the others are done."""
    head = "from typing import Callable\nfrom pydantic import BaseModel\n"
    (schemas / "nothing.py").write_text(head + "class Nothing(BaseModel):\n    x: Callable\n")
    (schemas / "styled.py").write_text(head + "class Styled(BaseModel):\n    x: int\nPROMPT = '{text} {price:.2f}'\n")
    (schemas / "exits.py").write_text("import sys\nsys.exit(3)\n")
    for name in ("nothing", "styled", "exits", "note"):
        drop(f"{name}/a.jsonl", lines({"id": "x", "text": "t"}))
    report = extract(pipeline)
    assert report.states["accepted"] == 1
    assert [note.split(":")[0] for note in report.notes] == [
        f"{name}/a.jsonl stays in the inbox" for name in ("exits", "nothing", "styled")
    ]
    assert "PROMPT uses {price:.2f}; only plain fields of the record such as {text} can stand there" in report.notes[2]


def test_candidates_of_a_broken_schema_wait(drop: Drop, settings: Settings, schemas: Path) -> None:
    """Candidates whose schema broke before they were judged wait, hold up nobody, and are judged once it is mended."""
    pipeline = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", lines({"id": "x", "text": "t"}))
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    claim = pipeline.next_chunk(run_id)
    pipeline.generate(run_id, claim.lease)
    good = (schemas / "note.py").read_text()
    (schemas / "note.py").write_text("broken(")
    assert pipeline.check(claim.lease).judged == 0
    pipeline.route(claim.lease)
    (schemas / "note.py").write_text(good)
    assert pipeline.run(pipeline.begin("extract")).states["accepted"] == 1


def test_a_half_read_file_of_a_dead_process_is_forgotten(
    drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process had read of a file when it died is dropped; the file, mended meanwhile, is taken as it is."""
    pipeline = Pipeline(settings, FakeEngine())
    path = drop("note/a.jsonl", lines(*({"id": str(i), "text": "t"} for i in range(5000))))

    original = intake.bounded_lines

    def dies(source, most):  # type: ignore[no-untyped-def]
        for number, line in enumerate(original(source, most)):
            if number == 4500:
                raise Dies
            yield line

    with monkeypatch.context() as patch:
        patch.setattr("gristmill.intake.bounded_lines", dies)
        with pytest.raises(Dies):
            pipeline.take_in(pipeline.begin("extract"))
    monkeypatch.setattr("gristmill.store.owner.lives", lambda owner: False)
    path.write_bytes(lines({"id": "x", "text": "t"}))
    report = extract(Pipeline(settings, FakeEngine()))
    assert report.states["accepted"] == 1
    assert report.unfinished_elsewhere == {}
    assert [file.name for file in report.files] == ["a"]


def test_a_schema_whose_output_is_a_list(drop: Drop, settings: Settings, schemas: Path) -> None:
    """A root model's outputs are lists; `gold`, which names fields, does not fit them, and the report is made."""
    (schemas / "words.py").write_text(
        "from pydantic import RootModel\nclass Words(RootModel[list[str]]):\n    'List the words.'\n"
    )
    drop("words/a.jsonl", lines({"id": "x", "text": "t", "gold": {"root": ["t"]}}))
    report = extract(Pipeline(settings, FakeEngine(lambda request: '["t"]')))
    assert report.states["accepted"] == 1
