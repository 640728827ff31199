"""What is there of a document that was cut."""

from typing import Any

from gristmill.grammar.tree import Text
from gristmill.grammar.xml.layout import Items, Layout, Leaf, Part, Place, Record, Slot, Variant
from gristmill.grammar.xml.leaf import read_leaf
from gristmill.grammar.xml.reading import Element, Reader, parse, without_namespaces


class _Nothing(Exception):  # noqa: N818 - an answer, not an error
    """Nothing of a part is there yet."""


def partial_value(layout: Layout, root_name: str, xml: str) -> Any:
    """The JSON value of the beginning of a document; None where there is nothing yet or what is there can't be read.

    Of the elements that were not closed, strings are taken as far as they go, lists and objects with what is complete
    in them, and all others left out.
    """
    try:
        root = parse(xml, whole=False)
        if root.name != root_name:
            return None
        without_namespaces(root)
        return _Partial(layout).value(root, layout.root)
    except (_Nothing, ValueError):
        return None


class _Partial:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._reader = Reader(layout)

    def value(self, element: Element, slot: Slot) -> Any:
        if element.closed:
            return self._reader.element(element, slot, "$")
        match self._layout.opened(slot).content:
            case Leaf(kinds) if all(isinstance(kind, Text) for kind in kinds) and element.text:
                return element.text
            case Record() as record:
                return self._record(element, record)
            case Items() as items:
                slots = [*items.prefix, *([items.item] * len(element.children))]
                found = (self._maybe(c, s) for c, s in zip(element.children, slots, strict=False) if s is not None)
                return [value for each in found for value in each]
            case Variant(options) if element.children and element.children[0].name in dict(options):
                return self.value(element.children[0], dict(options)[element.children[0].name])
            case _:
                raise _Nothing

    def _record(self, element: Element, record: Record) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for part in record.parts:
            if part.grouped:
                for child in element.children:
                    value |= self.value(child, part.slot) if child.name == part.name else {}
                continue
            found = self._part(element, part)
            if found:
                value[part.key] = found if part.place is Place.REPEATED else found[0]
        if record.extra is not None:
            for entry in element.children:
                key = entry.attributes.pop("key", None) if entry.name == "entry" else None
                found = self._maybe(entry, record.extra) if key is not None else []
                if key is not None and found:
                    value[key] = found[0]
        return value

    def _part(self, element: Element, part: Part) -> list[Any]:
        """The values of a field, of which there is one at most unless it is repeated."""
        if part.place in (Place.ELEMENT, Place.REPEATED):
            children = [child for child in element.children if child.name == part.name]
            return [value for child in children for value in self._maybe(child, part.slot)]
        text = element.attributes.get(part.name) if part.place is Place.ATTRIBUTE else element.text
        leaf = self._layout.opened(part.slot).content
        return [read_leaf(leaf.kinds, text)] if text is not None and isinstance(leaf, Leaf) else []

    def _maybe(self, element: Element, slot: Slot) -> list[Any]:
        try:
            return [self.value(element, slot)]
        except _Nothing:
            return []
