"""Evaluation: what counts as right, and what is asked of labelled files."""

import datetime
import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from gristmill import Example, Options, SetupError, Verbatim
from gristmill.api import Batcher
from gristmill.evaluation import Score, evaluate, examples_from, read_labelled
from gristmill.evaluation.show import as_page, as_table, doubts, how
from gristmill.grammar.constraint import constraint_for
from gristmill.records import Record
from gristmill.schema import Schema, schema_of
from gristmill.testing import FakeEngine


class Place(BaseModel):
    """A place."""

    city: Annotated[str, Verbatim()] | None = None
    tags: list[str] = []


TREE = constraint_for(schema_of(Place)).tree


def test_pairs_are_counted_over_all_records() -> None:
    """Micro-averaged: right 2, wrong 1, missed 1 give precision and recall 2/3; case and order do not matter."""
    score = Score()
    score.add({"city": "ULM", "tags": ["b", "a"]}, {"city": "Ulm", "tags": ["a"]}, TREE, "in Ulm")
    score.add({"city": None}, {"city": "Bonn"}, TREE, "in Bonn")
    assert (score.all.right, score.all.wrong, score.all.missed) == (2, 1, 1)
    assert score.all.f1 == pytest.approx(2 / 3)
    assert score.exact_share("city") == 0.5
    assert score.exact_share("tags") == 0.5
    assert (score.placed, score.to_place) == (0, 2)


def test_a_field_that_appears_late_was_right_before() -> None:
    """Absence in answer and gold is agreement, also for records before the field was first seen."""
    score = Score()
    score.add({}, {}, TREE, "")
    score.add({"city": "Ulm"}, {"city": "Ulm"}, TREE, "Ulm")
    assert score.exact_share("city") == 1.0
    assert (score.placed, score.to_place) == (1, 1)


def test_an_evaluation_by_folds(tmp_path: Path) -> None:
    """Each record is asked with the others' answers for examples, never with its own, and gold is not shown."""
    file = tmp_path / "places.jsonl"
    rows = [{"id": str(i), "text": f"in Town{i}", "gold": {"city": f"Town{i}", "tags": "a"}} for i in range(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = FakeEngine(lambda request: json.dumps({"city": request.record.text[3:], "tags": ["b"]}))
    found = evaluate(Batcher(engine), Schema("place", Place), read_labelled(file)[0], folds=3).as_json()
    assert found["records"] == 6
    assert found["fields"]["city"]["f1"] == 1.0
    assert found["fields"]["tags"] == {"exact": 0.0, "f1": 0.0, "right": 0, "wrong": 6, "missed": 6}
    assert found["offsets"] == 1.0
    for request in engine.requests:
        assert len(request.schema.examples) == 4
        assert request.record.text not in [example.text for example in request.schema.examples]
        assert "gold" not in request.record.fields
    assert "place" in as_table({"place": found})
    assert '<td class="num">6</td>' in as_page("<b>", {"<i>": found})
    assert "&lt;i&gt;" in as_page("<b>", {"<i>": found})


def test_a_file_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    """No file, no gold, and gold that does not fit are errors with the line or the field in them."""
    with pytest.raises(SetupError, match="no file"):
        read_labelled(tmp_path / "none.jsonl")
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\nno json\n')
    with pytest.raises(SetupError, match=r"none of the 2 lines of a.jsonl has text and a gold object"):
        read_labelled(file)
    file.write_text('{"text": "a"}\n{"text": "b", "gold": {}}\n')
    records, left_out = read_labelled(file)
    assert ([record.text for record in records], left_out) == (["b"], 1)
    file.write_text('{"text": "a", "gold": {"tags": {"x": 1}}}\n')
    with pytest.raises(SetupError, match=r"gold of record 'a:1' does not fit schema 'place': tags"):
        examples_from(read_labelled(file)[0], Schema("place", Place))


def test_gold_is_compared_as_an_answer_shows_it() -> None:
    """5 and 5.0 are one price, and two spellings of a time one time."""

    class Priced(BaseModel):
        price: float
        at: datetime.datetime

    records = [Record("a", "t", {"gold": {"price": 5, "at": "2024-01-02T03:04:05+00:00"}})]
    engine = FakeEngine(lambda _: '{"price": 5.0, "at": "2024-01-02T03:04:05Z"}')
    assert evaluate(Batcher(engine), Schema("priced", Priced), records).as_json()["f1"] == 1.0


def test_what_speaks_against_the_figures_is_said() -> None:
    """Records that stand among the examples, and gold that no answer can reach, are counted and told."""
    examples = (Example("in Ulm", Place(city="Ulm")),)
    records = [
        Record("a", "in Ulm", {"gold": {"city": "Ulm"}}),
        Record("b", "in Bonn", {"gold": {"city": "Bonn", "tags": "x"}}),
        Record("c", "in Rome", {"gold": {"city": ["Rome", "Nice"]}}),
    ]
    engine = FakeEngine(lambda request: json.dumps({"city": request.record.text[3:], "tags": []}))
    schema = Schema("place", Place, examples, options=Options(reading="off"))
    found = evaluate(Batcher(engine), schema, records, preset="stable", attempts=2).as_json()
    assert (found["seen"], found["unfit"]) == (1, 1)
    said = doubts(found)
    assert "1 of the 3 records are among the worked examples" in said[0]
    assert "the gold of 1 of the 3 records does not fit" in said[1]
    assert how(found) == (
        "3 records; fake; preset stable; 1 worked examples to choose from; up to 2 attempts; reading='off'"
    )
    page = as_page("places.jsonl", {"place": found})
    assert "among the worked examples" in page
    assert "reading=&#39;off&#39;" in page


@pytest.mark.parametrize(("folds", "said"), [(1, "folds=1 leaves no other part"), (5, "folds=5 of 2 records")])
def test_folds_that_are_none(folds: int, said: str) -> None:
    """One part has no other to learn from, and there can't be more parts than records."""
    records = [Record(str(i), f"in Town{i}", {"gold": {"city": f"Town{i}"}}) for i in range(2)]
    with pytest.raises(SetupError, match=said):
        evaluate(Batcher(FakeEngine(lambda _: "{}")), Schema("place", Place), records, folds=folds)
