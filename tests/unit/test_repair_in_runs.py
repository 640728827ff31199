"""Repair through the queue: the attempt after a refused one keeps what was valid, and the report counts it."""

import json
from pathlib import Path

from gristmill.engine import Request
from gristmill.grammar.rules import Fixed
from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.testing import FakeEngine


def test_a_refused_answer_is_repaired_by_the_next_attempt(tmp_path: Path, schemas: Path) -> None:
    """The second attempt knows the valid field, is told what was wrong, and is counted as a repair that helped."""

    def answer(request: Request) -> str:
        return json.dumps({"title": "soup", "stars": 9 if request.attempt == 1 else 4})

    engine = FakeEngine(answer)
    settings = load_settings(data=tmp_path / "data", schemas=schemas, settle_seconds=0.0)
    pipeline = Pipeline(settings, engine)
    inbox = settings.data / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text('{"id": "a", "text": "soup"}\n')
    first = pipeline.begin("extract")
    pipeline.take_in(first)
    assert pipeline.run(first).repairs == 0
    second = pipeline.begin("retry")
    report = pipeline.run(second, ignore_due=True)
    assert [(r.attempt, r.known, r.repair is not None) for r in engine.requests] == [
        (1, None, False),
        (2, {"title": Fixed("soup"), "stars": None}, True),
    ]
    assert "stars: Input should be less than or equal to 5" in (engine.requests[1].repair or first).complaint
    assert (report.repairs, report.repaired) == (1, 1)
    pipeline.close()


def test_spans_of_a_line_without_an_id(tmp_path: Path) -> None:
    """The outbox says where values stand, whether the line had an id or not."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "town.py").write_text(
        "from typing import Annotated\nfrom pydantic import BaseModel\nfrom gristmill import Verbatim\n\n\n"
        "class Town(BaseModel):\n    name: Annotated[str, Verbatim()]\n"
    )
    settings = load_settings(data=tmp_path / "data", schemas=folder, settle_seconds=0.0)
    pipeline = Pipeline(settings, FakeEngine(lambda _: '{"name": "Ulm"}'))
    inbox = settings.data / "inbox" / "town"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text('{"text": "in Ulm"}\n{"id": "b", "text": "Ulm, Ulm"}\n')
    run = pipeline.begin("extract")
    pipeline.take_in(run)
    pipeline.run(run)
    lines = [json.loads(line) for line in (settings.data / "outbox" / "town" / "a.jsonl").read_text().splitlines()]
    assert [(line["id"], line["spans"], line["ambiguous"]) for line in lines] == [
        ("a:1", {"name": [3, 6]}, []),
        ("b", {"name": [0, 3]}, ["name"]),
    ]
    pipeline.close()
