"""Spans: where in the record's text the values of verbatim fields stand."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.grammar.tree import Node, Object, Sequence, Text, Tree, Union
from gristmill.verbatim import Verbatim, find


@dataclass(frozen=True)
class Spans:
    """`places`: field path (`items[0].name`) to [start, end) in characters of the text. A value that stands in more
    than one place has the first, and its path is among the `ambiguous`."""

    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ambiguous: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As an outbox line has it."""
        return {"spans": {path: list(place) for path, place in self.places.items()}, "ambiguous": list(self.ambiguous)}


def spans_of(tree: Tree, output: Any, text: str) -> Spans:
    """Where the values of the verbatim fields of an output (a JSON value) stand in the text.

    A value that a validator changed so that it does not stand in the text any more has no place.
    """
    places, ambiguous = {}, []
    for path, value, verbatim in values_of(tree, output):
        found = find(value, text, verbatim)
        if found:
            places[path] = found[0]
        if len(found) > 1:
            ambiguous.append(path)
    return Spans(places, tuple(ambiguous))


def values_of(tree: Tree, output: Any) -> Iterator[tuple[str, str, Verbatim]]:
    """The strings of an output that are tied to the text, with their paths."""
    return _values(tree, tree.root, output, "")


def _values(tree: Tree, node: Node, value: Any, path: str) -> Iterator[tuple[str, str, Verbatim]]:
    node = tree.resolved(node)
    match node:
        case Text(verbatim=Verbatim() as verbatim) if isinstance(value, str):
            yield path, value, verbatim
        case Object() if isinstance(value, Mapping):
            named = {each.name: each.node for each in node.fields}
            for key, child in value.items():
                below = named.get(key, node.extra)
                if below is not None:
                    yield from _values(tree, below, child, f"{path}.{key}" if path else str(key))
        case Sequence() if isinstance(value, list):
            nodes = [*node.prefix, *([node.items] * len(value))]
            for i, (one, child) in enumerate(zip(nodes, value, strict=False)):
                if one is not None:
                    yield from _values(tree, one, child, f"{path}[{i}]")
        case Union():
            seen = set()
            for option in node.options:
                for found in _values(tree, option, value, path):
                    if found[0] not in seen:
                        seen.add(found[0])
                        yield found
