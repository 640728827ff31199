"""The command line: what it prints, and its exit status."""

import json
import sqlite3
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gristmill.cli.app import app
from gristmill.errors import GristmillError
from gristmill.faults import FaultCode
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings
from gristmill.testing import FakeEngine, first_example

Drop = Callable[[str, bytes], Path]
Run = Callable[..., tuple[int, str]]
BAD = '{"title": "soup", "stars": 9}'


@pytest.fixture
def run(settings: Settings, schemas: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command over the test's data folder; exit status and output, an error's line included."""
    monkeypatch.setenv("GRISTMILL_DATA", str(settings.data))
    monkeypatch.setenv("GRISTMILL_SCHEMAS", str(schemas))

    def call(*arguments: str, engine: FakeEngine | None = None) -> tuple[int, str]:
        if engine is not None:
            original = Pipeline.__init__
            monkeypatch.setattr(Pipeline, "__init__", lambda self, s, e=None: original(self, s, engine))
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, GristmillError):
            return 2, f"gristmill: {result.exception}"
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return call


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of two good records."""
    path = tmp_path / "day.jsonl"
    path.write_text('{"id": "x", "text": "t"}\n{"id": "y", "text": "t"}\n')
    return str(path)


def test_run_exit_status_0(run: Run, file: str) -> None:
    """All accepted: 0, with counts and paths; a second time it says that nothing was done."""
    status, output = run("run", file, "--schema", "note", engine=FakeEngine())
    assert status == 0
    assert "2 of 2 records accepted, 0 queued for another attempt, 0 dead." in output
    assert "outbox: " in output
    assert "report: " in output
    status, output = run("run", file, "--schema", "note")
    assert status == 0
    assert "Nothing was due: no new records, nothing was done." in output
    assert "day.jsonl was taken in before; what was done is not repeated (--again does)" in output


def test_run_exit_status_1(run: Run, file: str) -> None:
    """Some queued or dead: 1."""
    status, output = run(
        "run", file, "--schema", "note", engine=FakeEngine(lambda r: BAD if r.record.id == "x" else "{}")
    )
    assert status == 1
    assert "0 of 2 records accepted, 2 queued for another attempt, 0 dead." in output
    assert run("run", file, "--schema", "note")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.jsonl", "--schema", "note"], "no file 'missing.jsonl'; give the path of a .jsonl"),
        (["run", "FILE", "--schema", "nte"], "gristmill: no schema 'nte' in"),
        (["run", "FILE", "--schema", "note", "--preset", "x"], "gristmill: no preset 'x'; known: brainstorm, chat"),
        (["run", "FILE", "--schema", "note"], "gristmill: the embedded model is not in"),
        (["run", "FILE"], "Missing option '--schema'"),
        (["queue", "ls"], "gristmill: no queue in"),
        (["queue", "show", "x"], "gristmill: no queue in"),
        (["queue", "requeue"], "gristmill: nothing selected, nothing done; give an id, --schema, --fault or --all"),
        (["report"], "gristmill: no reports in"),
        (["model", "inspect", "nowhere"], "gristmill: no model directory"),
        (["schema", "check", "nte"], "nte: no schema 'nte' in"),
    ],
)
def test_run_exit_status_2(run: Run, file: str, settings: Settings, arguments: list[str], message: str) -> None:
    """A usage or set-up error: 2 and one line that says what to do; nothing was done."""
    status, output = run(*(file if a == "FILE" else a for a in arguments))
    assert status == (1 if arguments[0] == "schema" else 2)
    assert message in output
    assert not (settings.data / "gristmill.sqlite3").exists() or arguments[0] == "run"


def test_json_for_programs(run: Run, file: str) -> None:
    """With --json, standard output is one JSON value."""
    status, output = run("run", file, "--schema", "note", "--json", engine=FakeEngine(lambda r: BAD))
    assert status == 1
    assert json.loads(output)["states"]["queued"] == 2
    assert json.loads(run("queue", "ls", "--json")[1])[0]["error"]["code"] == "invalid"
    assert json.loads(run("report", "--json")[1])["records"] == 2
    assert json.loads(run("schema", "ls", "--json")[1])[0]["name"] == "note"
    assert json.loads(run("queue", "show", "x", "--json")[1])[0]["input"] == '{"id": "x", "text": "t"}'


def test_the_queue_by_hand(run: Run, file: str, settings: Settings) -> None:
    """What waits can be listed, shown, given up and requeued."""
    run("run", file, "--schema", "note", engine=FakeEngine(lambda r: BAD))
    status, output = run("queue", "ls", "--fault", "invalid")
    assert status == 0
    assert output.splitlines()[0].split() == ["id", "schema", "file:line", "tries", "fault", "next", "due"]
    assert output.splitlines()[1].split() == ["x", "note", "day:1", "1", "invalid", "stable", "now"]
    assert run("queue", "drop", "x") == (0, "1 records are dead now; their lines stand in the dead folder\n")
    assert '"id": "x"' in (settings.data / "dead/note/day.jsonl").read_text()
    assert "dropped" in run("queue", "ls", "--dead")[1]
    assert run("queue", "requeue", "--all")[1].startswith("2 records are due now")
    assert not (settings.data / "dead/note/day.jsonl").exists()
    assert run("queue", "ls", "--schema", "other") == (0, "no queued records\n")


def test_reports_by_id(run: Run, file: str) -> None:
    """A report is found by its id, the start of it, or as the latest; another id gets a suggestion."""
    output = run("run", file, "--schema", "note", engine=FakeEngine())[1]
    run_id = output.split()[1].rstrip(":")
    assert run("report", run_id)[1] == output
    assert run("report", run_id[:12])[1] == output
    assert run("report")[1] == output
    assert "did you mean" in run("report", run_id[:-4] + "zzzz")[1]


def test_the_latest_report_is_one_with_records(run: Run, file: str) -> None:
    """Runs that had nothing to do don't hide the last one that had; that there are newer ones is said, and all are
    listed, the latest first."""
    output = run("run", file, "--schema", "note", engine=FakeEngine(lambda r: BAD if r.record.id == "x" else "{}"))[1]
    for _ in range(2):
        run("run", file, "--schema", "note")
    assert run("report")[1] == f"{output}newer runs that had no records: 2 (gristmill report --list)\n"
    rows = json.loads(run("report", "--list", "--json")[1])
    assert [(row["kind"], row["records"], row["queued"]) for row in rows] == [("file", 0, 0)] * 2 + [("file", 2, 2)]
    head, *lines = run("report", "--list")[1].splitlines()
    assert head.split() == ["run", "kind", "started", "records", "accepted", "queued", "dead", "not", "reached"]
    assert lines[2].split()[-5:] == ["2", "0", "2", "0", "0"]
    assert lines[2].split()[0] == output.split()[1].rstrip(":")


def test_the_version(run: Run) -> None:
    """The version is the package's."""
    assert run("--version") == (0, f"gristmill {version('gristmill')}\n")


def test_codes_of_faults_stand_in_one_place(run: Run) -> None:
    """The help of a command with --fault names the place where all the codes are listed."""
    for command in ("ls", "export", "requeue", "drop"):
        output = " ".join(run("queue", command, "--help")[1].split())
        assert "--fault CODE" in output
        assert "`gristmill queue --help` lists them" in output
        assert "degenerate" not in output
    output = run("queue", "--help")[1]
    assert all(code.value in output for code in FaultCode)


def test_schema_check(run: Run, schemas: Path) -> None:
    """The check names what is unbounded and examples that break their own schema, with exit status 1."""
    assert run("schema", "check") == (
        0,
        "note: class Note, grammar compiled, 1 worked example tried\n"
        "  longest answer as JSON: 28 tokens, at 2.4 characters a token (assumed; --model MODEL measures it):\n"
        "    title       22\n"
        "    stars        5\n"
        "  preset extract: its 256 tokens suffice\n",
    )
    (schemas / "loose.py").write_text(
        "from pydantic import BaseModel\nfrom gristmill import Example\n"
        "class Loose(BaseModel):\n    name: str\n    sizes: list[int] = []\n"
        "EXAMPLES = [Example('x', Loose.model_construct(name=3))]\n"
    )
    status, output = run("schema", "check", "loose")
    assert status == 1
    assert "example 1, by grammar: after '{\"name\": ' it does not allow '3}'" in output
    assert "example 1, by validation: name: Input should be a valid string" in output
    assert "a part without an end (below) could need any number" in " ".join(output.split())
    assert "an answer may run to its token budget:\n    $.sizes: list without max_length\n" in output
    assert "ended by max_string alone, at 500 characters:\n    $.name\n" in output
    data = json.loads(run("schema", "check", "loose", "--json")[1])[0]
    assert (data["name"], data["endless"][0], data["capped"]) == (
        "loose",
        "$.sizes: list without max_length",
        ["$.name"],
    )
    assert [each["endless"] for each in data["fields"]] == [False, True]


def test_export_writes_lines_as_they_were(run: Run, tmp_path: Path) -> None:
    """Queued and dead input lines come out byte for byte, in the order of the files, to standard output or a file."""
    source = tmp_path / "day.jsonl"
    source.write_bytes(b'{"id":"x",  "text": "t"}\n{"text": "caf\xe9"}\n{"id": "y", "text": "t"}\n')
    run("run", str(source), "--schema", "note", engine=FakeEngine(lambda r: BAD))
    target = tmp_path / "out.jsonl"
    assert run("queue", "export", "--output", str(target)) == (0, "2 lines written\n")
    assert target.read_bytes() == b'{"id":"x",  "text": "t"}\n{"id": "y", "text": "t"}\n'
    run("queue", "export", "--dead", "--output", str(target))
    assert target.read_bytes() == b'{"text": "caf\xe9"}\n'
    assert (
        run("queue", "export", "--schema", "note", "--fault", "invalid")[1]
        == '{"id":"x",  "text": "t"}\n{"id": "y", "text": "t"}\n2 lines written\n'
    )


def test_results_and_rewrite(run: Run, file: str, settings: Settings) -> None:
    """A file's accepted lines can be had from the store, and its outputs be written anew."""
    run("run", file, "--schema", "note", engine=FakeEngine(lambda r: BAD if r.record.id == "x" else first_example(r)))
    outbox = settings.data / "outbox" / "note" / "day.jsonl"
    written = outbox.read_text()
    assert run("results", "day", "--schema", "note") == (0, written + "2 lines: 1 accepted, 1 queued\n")
    outbox.unlink()
    assert run("rewrite", "day", "--schema", "note") == (0, f"written: {outbox}\n")
    assert outbox.read_text() == written
    status, output = run("results", "dya", "--schema", "note")
    assert (status, output) == (2, "gristmill: no file 'dya' of schema 'note' was taken in; did you mean 'day'?")


def test_the_doctor(run: Run, file: str, settings: Settings) -> None:
    """Where all is well it says so; what is off is named with the way out, and exit status 1 where it is broken."""
    run("run", file, "--schema", "note", engine=FakeEngine())
    assert run("doctor") == (0, "all is well\n")
    (settings.data / "inbox" / "notes.txt").write_text("x")
    assert run("doctor") == (
        0,
        "note: notes.txt lies in the inbox and is never taken; name it .jsonl, in a schema's folder\n",
    )
    outbox = settings.data / "outbox" / "note" / "day.jsonl"
    outbox.write_text(outbox.read_text().splitlines()[0] + "\n")
    status, output = run("doctor")
    assert status == 1
    assert (
        f"BROKEN: {outbox} differs in line 2 from what it should hold; the database has 2 accepted records; "
        "`gristmill rewrite day --schema note` puts it right\n"
    ) in output
    assert json.loads(run("doctor", "--json")[1])[0]["broken"]
    run("rewrite", "day", "--schema", "note")
    assert run("doctor")[0] == 0


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM records WHERE record_id = 'y'", "files whose records are not as many as their lines"),
        ("UPDATE attempts SET number = 2", "records whose attempts are not as many as they count"),
        ("UPDATE attempts SET verdict = 'invalid'", "accepted records whose last attempt was not"),
        (
            "UPDATE records SET state = 'leased', lease = 'nobody'",
            "leased records whose lease is gone",
        ),
    ],
)
def test_the_doctor_sees_damage(run: Run, file: str, settings: Settings, damage: str, said: str) -> None:
    """Rows changed behind the program's back are found."""
    run("run", file, "--schema", "note", engine=FakeEngine())
    with sqlite3.connect(settings.data / "gristmill.sqlite3") as db:
        db.execute(damage)
    status, output = run("doctor")
    assert status == 1
    assert said in output


def test_the_database_refuses_impossible_rows(run: Run, file: str, settings: Settings) -> None:
    """An accepted record without output, a dead one without fault, a lease without its state: nothing makes them."""
    run("run", file, "--schema", "note", engine=FakeEngine())
    with sqlite3.connect(settings.data / "gristmill.sqlite3") as db:
        for change in ("output = NULL", "state = 'dead'", "lease = 'x'", "state = 'lost'", "settled = 0"):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(f"UPDATE records SET {change}")


def test_prune(run: Run, file: str, settings: Settings) -> None:
    """It says what it would remove and removes nothing; with --yes it does."""
    run("run", file, "--schema", "note", engine=FakeEngine(lambda r: BAD))
    run("queue", "drop", "--all")
    dead = settings.data / "dead" / "note" / "day.jsonl"
    status, output = run("prune", "--older-than", "0")
    assert status == 0
    assert "ended more than 0 days ago: 1 files with 2 records\n  note/day: 2 records\n" in output
    assert f"    dead      {dead}\n" in output
    assert output.endswith("nothing was removed; --yes removes it\n")
    assert dead.exists()
    assert run("prune")[1].startswith("ended more than 90 days ago: 0 files with 0 records\n")
    assert json.loads(run("prune", "--older-than", "0", "--json")[1].rsplit("\n", 2)[0])["records"] == 2
    assert "removed; the database file keeps its size" in run("prune", "--older-than", "0", "--yes")[1]
    assert not dead.exists()
    assert (settings.data / "outbox" / "note" / "day.jsonl").exists()
    status, output = run("results", "day", "--schema", "note")
    assert (status, output.split(";")[0]) == (2, "gristmill: the rows of note/day were pruned")
    assert run("doctor") == (0, "all is well\n")
