"""The reader of a schema: which of its fields can be read off a text, and what stands there."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.rules import MISSING, Fixed, Known
from gristmill.grammar.tree import Node, Object, Tree
from gristmill.reading.fields import ReadField, lessons, read_fields
from gristmill.reading.states import WordStates
from gristmill.reading.tagger import Quality, Run, Tagger, fit
from gristmill.schema import Schema, written
from gristmill.verbatim import find


class Reader:
    """Reads the fields of one schema."""

    def __init__(self, schema: Schema, examples: Sequence[WordStates]) -> None:
        """Learn from the schema's `lessons`, whose words' states are given in their order."""
        self._tree = constraint_for(schema).tree
        self._fields = read_fields(self._tree)
        vectors, runs = [], []
        for example, states in zip(lessons(schema), examples, strict=True):
            if len(states.places):
                vectors.append(states.vectors)
                runs.append(self._example_runs(dump_of(example.output), example.text, states))
        # Examples none of whose values stands in its text teach nothing.
        self._tagger: Tagger | None = fit(vectors, runs, len(self._fields)) if any(runs) else None

    @property
    def quality(self) -> Quality:
        """How well the examples are read from each other."""
        return self._tagger.quality if self._tagger is not None else Quality(0, 0, 0)

    @property
    def paths(self) -> list[str]:
        """The fields that are read; none where the examples teach nothing."""
        return [".".join(field.path) for field in self._fields] if self._tagger is not None else []

    def read(self, text: str, states: WordStates) -> Known:
        """What the text says of the fields: a value, or that there is none.

        A field that must be there and was not found is left to be written; one that no example has is absent.
        """
        if self._tagger is None:
            return None
        found: dict[int, list[tuple[Run, float]]] = {}
        with torch.inference_mode():
            for run, rating in self._tagger.runs(states.vectors):
                found.setdefault(run[0], []).append((run, rating))
        known: dict[str, Any] = {}
        for number, field in enumerate(self._fields):
            value = self._value(field, text, states, found.get(number, []))
            if value is not None:
                _put(known, field.path, value)
        return known

    def _value(self, field: ReadField, text: str, states: WordStates, runs: list[tuple[Run, float]]) -> Fixed | None:
        if not runs:
            if field.optional:
                return Fixed(MISSING)
            return Fixed(None) if field.null else Fixed([]) if field.many else None
        if field.many:
            return Fixed([_spelt(field, text, states, run) for run, _ in runs])
        best, _ = max(runs, key=lambda pair: pair[1])
        return Fixed(_spelt(field, text, states, best))

    def _example_runs(self, output: Mapping[str, Any], text: str, states: WordStates) -> list[Run]:
        begins = {states.words.starts[unit]: i for i, unit in enumerate(states.places)}
        ends = {states.words.ends[unit]: i + 1 for i, unit in enumerate(states.places)}
        runs: list[Run] = []
        taken = [False] * len(states.places)
        wanted = [(number, value) for number, field in enumerate(self._fields) for value in _values(output, field.path)]
        # The longest first: a short value may stand inside of a longer one too.
        for number, value in sorted(wanted, key=lambda pair: -len(pair[1])):
            for start, end in find(value, text, self._fields[number].verbatim):
                run = (number, begins[start], ends[end]) if start in begins and end in ends else None
                if run is not None and not any(taken[run[1] : run[2]]):
                    runs.append(run)
                    taken[run[1] : run[2]] = [True] * (run[2] - run[1])
                    break
        return sorted(runs, key=lambda run: run[1])


def answer_of(tree: Tree, known: Known) -> tuple[Any, bool]:
    """What is known as a value, and whether that is a whole answer."""
    return _answer(tree, tree.root, known)


def _answer(tree: Tree, node: Node, known: Known) -> tuple[Any, bool]:
    if isinstance(known, Fixed):
        return known.value, True
    node = tree.resolved(node)
    if not isinstance(node, Object) or not isinstance(known, Mapping):
        return {}, False
    value, whole = {}, True
    for field in node.fields:
        below, complete = _answer(tree, field.node, known.get(field.name))
        whole = whole and complete
        if below is not MISSING and field.name in known:
            value[field.name] = below
    return value, whole


def dump_of(output: Any) -> Mapping[str, Any]:
    """An example's output as plain JSON values; one that is no object has no fields to read."""
    value = written(output)
    return value if isinstance(value, Mapping) else {}


def _spelt(field: ReadField, text: str, states: WordStates, run: Run) -> str:
    first, last = states.places[run[1]], states.places[run[2] - 1]
    value = text[states.words.starts[first] : states.words.ends[last]]
    return re.sub(r"\s+", " ", value) if field.verbatim.collapse_whitespace else value


def _values(output: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    value: Any = output
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]


def _put(known: dict[str, Any], path: tuple[str, ...], value: Fixed) -> None:
    for name in path[:-1]:
        known = known.setdefault(name, {})
    known[path[-1]] = value
