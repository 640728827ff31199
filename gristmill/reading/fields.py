"""Which fields of a schema can be read off a text, and when they are."""

from collections.abc import Iterator
from dataclasses import dataclass

from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.tree import Node, Null, Object, Text, Tree, Union
from gristmill.grammar.tree import Sequence as ListNode
from gristmill.schema import Example, Schema
from gristmill.verbatim import Verbatim, words_of

LEAST_EXAMPLES = 8
"""From so many worked examples on a schema is read unless its options say otherwise (docs/decisions/0011)."""

_MOST_CHARACTERS = 50_000
"""Characters of examples that a reader is fitted to (of more, the first ones), and of a text that is read: a longer one
is written, or too long."""

_LONGEST_WORD = 500


@dataclass(frozen=True)
class ReadField:
    """A field that can be read: where it stands in the output, whether it is a list, whether it may be absent (or
    null), and how its value is spelt."""

    path: tuple[str, ...]
    many: bool
    optional: bool
    null: bool
    verbatim: Verbatim


def read_fields(tree: Tree) -> list[ReadField]:
    """The fields of a schema that can be read: strings of words of the text, and lists of them, not inside of lists."""
    return list(_fields(tree, tree.root, (), frozenset()))


def reads(schema: Schema) -> bool:
    """Whether answers of a schema are read where that is possible."""
    wanted = schema.options.reading
    enough = len(schema.examples) >= (2 if wanted == "on" else LEAST_EXAMPLES)
    return wanted != "off" and enough and bool(read_fields(constraint_for(schema).tree))


def readable(text: str) -> bool:
    """Whether a text is short enough to be read, and so are its words."""
    return len(text) <= _MOST_CHARACTERS and max(map(len, words_of(text, Verbatim()).units), default=0) <= _LONGEST_WORD


def lessons(schema: Schema) -> list[Example]:
    """The worked examples that a reader is fitted to."""
    taken, size = [], 0
    for example in schema.examples:
        if readable(example.text) and size + len(example.text) <= _MOST_CHARACTERS:
            size += len(example.text)
            taken.append(example)
    return taken


def _fields(tree: Tree, node: Node, path: tuple[str, ...], seen: frozenset[int]) -> Iterator[ReadField]:
    root = tree.resolved(node)
    if not isinstance(root, Object) or root.extra is not None:
        return
    for field in root.fields:
        inner, null = _without_null(tree, field.node)
        below = (*path, field.name)
        if isinstance(inner, Text) and _readable(inner):
            yield ReadField(below, False, not field.required, null, inner.verbatim or Verbatim())
        elif isinstance(inner, ListNode) and not inner.prefix and inner.items is not None:
            item = tree.resolved(inner.items)
            if isinstance(item, Text) and _readable(item) and inner.min_items == 0:
                yield ReadField(below, True, not field.required, null, item.verbatim or Verbatim())
        elif isinstance(inner, Object) and field.required and not null and id(inner) not in seen:
            yield from _fields(tree, inner, below, seen | {id(inner)})


def _without_null(tree: Tree, node: Node) -> tuple[Node, bool]:
    found = tree.resolved(node)
    if isinstance(found, Union):
        options = [tree.resolved(option) for option in found.options]
        others = [option for option in options if not isinstance(option, Null)]
        if len(others) == 1 and len(others) < len(options):
            return others[0], True
    return found, False


def _readable(node: Text) -> bool:
    return node.verbatim is not None and node.verbatim.unit == "words"
