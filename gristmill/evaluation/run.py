"""Running an evaluation: labelled records through an engine, with examples from elsewhere or from the other folds."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gristmill.api import Batcher
from gristmill.errors import SetupError
from gristmill.evaluation.score import Score
from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.json_spelling import spell
from gristmill.grammar.tree import Object, Tree, Union
from gristmill.grammar.tree import Sequence as ListNode
from gristmill.records import Record, read_lines
from gristmill.schema import Example, Schema, dump


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation found.

    `seconds` is the time of all records, learning from examples included; `faults` counts the codes of records without
    an answer. `seen` counts records whose text is among the worked examples they were asked with, `unfit` those whose
    gold the schema refuses, so that no answer to them can be wholly right. `options`: those changed from the default.
    """

    schema: str
    model: str
    examples: int
    score: Score
    seconds: float
    faults: Mapping[str, int]
    seen: int = 0
    unfit: int = 0
    folds: int = 0
    preset: str = "extract"
    attempts: int = 1
    options: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The figures, shares rounded to four places."""
        score = self.score
        return {
            "schema": self.schema,
            "model": self.model,
            "examples": self.examples,
            "records": score.records,
            "valid": round(score.valid / score.records, 4) if score.records else None,
            "f1": round(score.all.f1, 4),
            "precision": round(score.all.precision, 4),
            "recall": round(score.all.recall, 4),
            "offsets": round(score.placed / score.to_place, 4) if score.to_place else None,
            "records_per_second": round(score.records / self.seconds, 2) if self.seconds else None,
            "faults": dict(self.faults),
            "seen": self.seen,
            "unfit": self.unfit,
            "folds": self.folds,
            "preset": self.preset,
            "attempts": self.attempts,
            "options": dict(self.options),
            "fields": {
                name: {
                    "exact": round(score.exact_share(name), 4),
                    "f1": round(counts.f1, 4),
                    "right": counts.right,
                    "wrong": counts.wrong,
                    "missed": counts.missed,
                }
                for name, counts in sorted(score.fields.items())
            },
        }


def read_labelled(path: Path) -> tuple[list[Record], int]:
    """The records of a JSONL file that carry `gold`, and how many lines were left out (without, or unreadable).

    Raises:
        SetupError: the file is not there, or none of its lines has gold.
    """
    if not path.is_file():
        raise SetupError(f"no file {str(path)!r}; give a JSONL file whose lines have text and gold")
    found, left_out = [], 0
    with path.open("rb") as file:
        for line in read_lines(file, path.stem):
            if isinstance(line.content, Record) and line.content.gold is not None:
                found.append(line.content)
            else:
                left_out += 1
    if not found:
        raise SetupError(
            f"none of the {left_out} lines of {path.name} has text and a gold object; give labelled records"
        )
    return found, left_out


def examples_from(records: Sequence[Record], schema: Schema) -> tuple[Example, ...]:
    """Worked examples out of labelled records.

    Raises:
        SetupError: a gold does not fit the schema.
    """
    tree = constraint_for(schema).tree
    examples = []
    for record in records:
        try:
            output = schema.model.model_validate_json(spell(_shaped(tree, record.gold or {})))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            message = f"gold of record {record.id!r} does not fit schema {schema.name!r}: {where}: {first['msg']}"
            raise SetupError(f"{message}; mend it or the schema") from error
        except Exception as error:  # a validator is a user's code and may raise anything
            message = f"gold of record {record.id!r}: a validator of {schema.name!r} raised {type(error).__name__}"
            raise SetupError(f"{message}; mend it or the schema") from error
        fields = {key: value for key, value in record.fields.items() if key not in ("gold", "text")}
        examples.append(Example(record.text, output, fields))
    return tuple(examples)


def evaluate(
    engine: Batcher,
    schema: Schema,
    records: Sequence[Record],
    *,
    folds: int = 0,
    preset: str = "extract",
    attempts: int = 1,
) -> Evaluation:
    """Answer all records and hold the answers against their gold.

    With `folds` above 1 the examples of a record are the labelled records of the other folds, beside the schema's own.

    Raises:
        SetupError: `folds` is 1, or more than there are records; with folds, a gold does not fit the schema.
    """
    tree = constraint_for(schema).tree
    score = Score()
    faults: dict[str, int] = {}
    began = time.perf_counter()
    examples = len(schema.examples)
    seen = unfit = 0
    for asked, mine in _parts(schema, records, folds):
        examples = len(asked.examples)
        shown = {example.text for example in asked.examples}
        seen += sum(record.text in shown for record in mine)
        # What is right is not shown to the model.
        blind = [replace(r, fields={k: v for k, v in r.fields.items() if k != "gold"}) for r in mine]
        for result in engine.run_schema(blind, asked, preset=preset, attempts=attempts):
            record = mine[result.index]
            output = None if result.output is None else dump(result.output)
            if result.fault is not None:
                faults[result.fault.code.value] = faults.get(result.fault.code.value, 0) + 1
            gold = _shaped(tree, record.gold or {})
            right = _as_answered(schema, gold)
            unfit += right is None
            score.add(output, gold if right is None else right, tree, record.text)
    return Evaluation(
        schema.name,
        engine.model.name,
        examples,
        score,
        time.perf_counter() - began,
        faults,
        seen,
        unfit,
        folds,
        preset,
        attempts,
        schema.options.changed(),
    )


def _as_answered(schema: Schema, gold: dict[str, Any]) -> Any:
    """Gold as an answer would show it, so that 5 and 5.0 are one price; None where it does not fit the schema."""
    try:
        return dump(schema.model.model_validate_json(spell(gold)))
    except Exception:  # noqa: BLE001 - a validator may raise anything; what it refuses is compared as it stands
        return None


def _parts(schema: Schema, records: Sequence[Record], folds: int) -> Iterator[tuple[Schema, Sequence[Record]]]:
    if folds == 0:
        yield schema, records
        return
    if folds < 2:
        raise SetupError(f"folds={folds} leaves no other part to take examples from; use 2 or more, or 0 for none")
    if folds > len(records):
        raise SetupError(f"folds={folds} of {len(records)} records leave some without any; use at most {len(records)}")
    examples = examples_from(records, schema)
    for fold in range(folds):
        others = tuple(example for i, example in enumerate(examples) if i % folds != fold)
        yield (
            replace(schema, examples=(*schema.examples, *others)),
            [r for i, r in enumerate(records) if i % folds == fold],
        )


def _shaped(tree: Tree, gold: Mapping[str, Any]) -> dict[str, Any]:
    """Gold with one value as a list where the field is one, and the only value of a list where it is none."""
    root = tree.resolved(tree.root)
    nodes = {each.name: each.node for each in root.fields} if isinstance(root, Object) else {}
    shaped: dict[str, Any] = {}
    for name, value in gold.items():
        node = tree.resolved(nodes[name]) if name in nodes else None
        options = [tree.resolved(each) for each in node.options] if isinstance(node, Union) else [node]
        is_list = any(isinstance(option, ListNode) for option in options)
        if is_list and value is not None and not isinstance(value, list):
            shaped[name] = [value]
        elif node is not None and not is_list and isinstance(value, list) and len(value) == 1:
            shaped[name] = value[0]
        else:
            shaped[name] = value
    return shaped
