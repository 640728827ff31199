"""Values as XML, spelt as a layout says."""

from collections.abc import Mapping
from typing import Any

from gristmill.grammar.xml.layout import Content, Items, Layout, Leaf, Named, Part, Place, Record, Slot, Variant
from gristmill.grammar.xml.leaf import spell_leaf
from gristmill.grammar.xml.text import ATTRIBUTE, CONTENT, NIL


class Writer:
    """Writes elements; raises ValueError, with the path, at a value that the layout has no place for.

    Bounds, lengths, patterns, counts and lacking fields are passed over, as what is written may be an answer that was
    cut or refused; unless `exact`, which tells the alternatives of a union apart.
    """

    def __init__(self, layout: Layout, *, exact: bool = False) -> None:
        self._layout = layout
        self._writers = [self] if exact else [Writer(layout, exact=True), self]
        self._exact = exact

    def element(self, name: str, slot: Slot, value: Any, lead: str = "", path: str = "$") -> str:
        """An element with a value; `lead` are attributes that come first."""
        slot = self._layout.opened(slot)
        if value is None and slot.nillable:
            return f"<{name}{lead}{NIL}"
        if slot.content is None or (value is None and not isinstance(slot.content, Variant)):
            raise ValueError(f"{path}: {value!r} has no place here")
        attributes, inner = self.content(slot.content, value, path)
        return f"<{name}{lead}{attributes}>{inner}</{name}>"

    def content(self, content: Content, value: Any, path: str) -> tuple[str, str]:
        """The attributes of an element, and what stands in it."""
        match content:
            case Leaf():
                return "", self._leaf(content, value, path, CONTENT.escape)
            case Record():
                return self._record(content, value, path)
            case Items():
                return "", self._items(content, value, path)
            case Variant():
                return "", self._variant(content, value, path)
            case Named():
                opened = self._layout.opened(Slot(content)).content
                if opened is None:
                    raise ValueError(f"{path}: {value!r} is not null")
                return self.content(opened, value, path)

    def part(self, part: Part, value: Any, path: str) -> str:
        """A field of a record: an attribute, an element, or several."""
        path = f"{path}.{part.key}"
        if part.place is Place.ATTRIBUTE or part.place is Place.TEXT:
            leaf = self._layout.opened(part.slot).content
            if not isinstance(leaf, Leaf):
                raise ValueError(f"{path}: {value!r} is no text")
            if part.place is Place.TEXT:
                return self._leaf(leaf, value, path, CONTENT.escape)
            return f' {part.name}="{self._leaf(leaf, value, path, ATTRIBUTE.escape)}"'
        if part.place is Place.ELEMENT:
            return self.element(part.name, part.slot, value, path=path)
        self._check_count(value, part.least, part.most, path)
        return "".join(self.element(part.name, part.slot, v, path=f"{path}[{i}]") for i, v in enumerate(value))

    def _leaf(self, leaf: Leaf, value: Any, path: str, escape: Any) -> str:
        try:
            return str(escape(spell_leaf(leaf.kinds, value, exact=self._exact)))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def _record(self, record: Record, value: Any, path: str) -> tuple[str, str]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{path}: {value!r} is no object")
        others = [key for key in value if key not in record.keys]
        if others and record.extra is None:
            raise ValueError(f"{path}: there is no field {others[0]!r}")
        attributes, inner = "", ""
        for part in record.parts:
            if part.grouped and isinstance(part.slot.content, Record):
                inside = {key: value[key] for key in value if key in part.slot.content.keys}
                inner += self.element(part.name, part.slot, inside, path=path) if inside or part.required else ""
                continue
            if part.key not in value:
                if part.required and self._exact:
                    raise ValueError(f"{path}: the field {part.key!r} is missing")
                continue
            written = self.part(part, value[part.key], path)
            attributes, inner = (
                (attributes + written, inner) if part.place is Place.ATTRIBUTE else (attributes, inner + written)
            )
        if record.extra is not None:
            self._check_count(others, record.least, record.most, path)
            for key in others:
                lead = f' key="{ATTRIBUTE.escape(key)}"'
                inner += self.element("entry", record.extra, value[key], lead, f"{path}.{key}")
        return attributes, inner

    def _items(self, items: Items, value: Any, path: str) -> str:
        self._check_count(value, items.least, items.most if items.item is not None else len(items.prefix), path)
        written = []
        for number, each in enumerate(value):
            in_prefix = number < len(items.prefix)
            slot = items.prefix[number] if in_prefix else items.item
            if slot is None:
                raise ValueError(f"{path}: there is no item {number + 1}")
            name = f"item{number + 1}" if in_prefix else items.name
            written.append(self.element(name, slot, each, path=f"{path}[{number}]"))
        return "".join(written)

    def _variant(self, variant: Variant, value: Any, path: str) -> str:
        reasons = []
        for writer in self._writers:
            for name, slot in variant.options:
                try:
                    return writer.element(name, slot, value, path=path)
                except ValueError as error:
                    reasons.append(str(error))
        raise ValueError(f"{path}: {value!r} fits no alternative: {'; '.join(reasons)}")

    def _check_count(self, value: Any, least: int, most: int | None, path: str) -> None:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{path}: {value!r} is no list")
        if self._exact and (len(value) < least or (most is not None and len(value) > most)):
            raise ValueError(f"{path}: {len(value)} are too few or too many")
