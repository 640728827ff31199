"""Scores: answers against gold, as pairs of field and value."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.grammar.tree import Tree
from gristmill.spans import Spans, spans_of

Pair = tuple[str, str]


@dataclass
class Counts:
    """Pairs that are right, wrong (answered, not in gold) and missed (in gold, not answered)."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        """Share of the answered pairs that are right, 0 to 1; 1 where nothing was answered."""
        answered = self.right + self.wrong
        return self.right / answered if answered else 1.0

    @property
    def recall(self) -> float:
        """Share of gold's pairs that were answered, 0 to 1; 1 where gold has none."""
        wanted = self.right + self.missed
        return self.right / wanted if wanted else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of the two, 0 to 1; 1 where there was nothing to find and nothing was answered."""
        whole = 2 * self.right + self.wrong + self.missed
        return 2 * self.right / whole if whole else 1.0


@dataclass
class FieldScore(Counts):
    """Counts of one field, and in how many records its values are exactly those of gold."""

    exact: int = 0


@dataclass
class Score:
    """All counts over `records` records, of which `valid` have an accepted answer.

    `placed` of the `to_place` values of verbatim fields in gold were answered with the right character offsets.
    """

    records: int = 0
    valid: int = 0
    all: Counts = field(default_factory=Counts)
    fields: dict[str, FieldScore] = field(default_factory=dict)
    placed: int = 0
    to_place: int = 0

    def add(self, output: Any, gold: Any, tree: Tree, text: str) -> None:
        """Count one record: the answer as a JSON value (None where none was accepted) against gold.

        Values are compared whole, without regard to case; an absent field, null and an empty list are the same.
        """
        self.records += 1
        self.valid += output is not None
        answered, wanted = set(pairs(output)), set(pairs(gold))
        for name in {name for name, _ in answered | wanted} - self.fields.keys():
            # In the records before this one it was neither in the answer nor in gold.
            self.fields[name] = FieldScore(exact=self.records - 1)
        for name, counts in self.fields.items():
            mine, right = ({pair for pair in each if pair[0] == name} for each in (answered, wanted))
            for total in (self.all, counts):
                total.right += len(mine & right)
                total.wrong += len(mine - right)
                total.missed += len(right - mine)
            counts.exact += mine == right
        got, true = _places(spans_of(tree, output, text)), _places(spans_of(tree, gold, text))
        self.placed += len(got & true)
        self.to_place += len(true)

    def exact_share(self, name: str) -> float:
        """Share of all records in which a field is exactly as in gold, 0 to 1."""
        counts = self.fields[name]
        return counts.exact / self.records if self.records else 0.0


def pairs(value: Any, path: str = "") -> Iterator[Pair]:
    """The values of an answer with the fields in which they stand; places in lists do not count."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from pairs(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for child in value:
            yield from pairs(child, path)
    elif value is not None:
        yield path, (value if isinstance(value, str) else json.dumps(value)).casefold()


def _places(spans: Spans) -> set[tuple[str, tuple[int, int]]]:
    return {(path.split("[")[0], place) for path, place in spans.places.items()}
