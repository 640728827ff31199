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
