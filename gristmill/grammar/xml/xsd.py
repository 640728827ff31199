"""An XML Schema (XSD 1.0) of the documents that a spelling writes."""

import re
from collections.abc import Iterable
from decimal import Decimal
from xml.sax.saxutils import quoteattr

from gristmill.grammar.tree import Boolean, Choice, Number, Text
from gristmill.grammar.xml.formats import FORMATS
from gristmill.grammar.xml.layout import (
    Content,
    Items,
    Layout,
    Leaf,
    LeafNode,
    Named,
    Part,
    Place,
    Record,
    Slot,
    Variant,
    slots_of,
)
from gristmill.grammar.xml.leaf import spell_leaf
from gristmill.grammar.xml.names import DECIMAL
from gristmill.grammar.xml.pattern import Schema, Unsayable, translate
from gristmill.grammar.xml.spelling import XmlSpelling

_TYPES = {"date": "xs:date", "time": "xs:time", "date-time": "xs:dateTime", "duration": "xs:duration"}
_FACETS = {
    "minimum": "minInclusive",
    "maximum": "maxInclusive",
    "exclusiveMinimum": "minExclusive",
    "exclusiveMaximum": "maxExclusive",
}


def xsd_of(spelling: XmlSpelling) -> str:
    """The XSD of a spelling's documents.

    It says less than the class: multiples, patterns that can't be carried over, verbatim strings and distinct keys are
    left to validation.
    """
    return _Xsd(spelling.layout).document(spelling.root_name)


class _Xsd:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._simple: dict[str, str] = {}
        self._complex: dict[str, str] = {}
        # A null element must still have the attributes that its type requires, and ours has none.
        opened = [layout.opened(slot) for slot in slots_of(layout)]
        self._nullable = {id(slot.content) for slot in opened if slot.nillable}

    def document(self, root_name: str) -> str:
        root = self._element(root_name, self._layout.root)
        for name in self._layout.definitions:
            content = self._layout.opened(Slot(Named(name))).content
            if content is not None and not isinstance(content, Leaf):
                self._complex[name] = self._type_name(name)
        complex_types = [
            f'<xs:complexType name="{called}"{self._mixed(name)}>{self._body(self._meant(name))}</xs:complexType>'
            for name, called in self._complex.items()
        ]
        simple_types = [f'<xs:simpleType name="{name}">{body}</xs:simpleType>' for body, name in self._simple.items()]
        lines = [
            '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" elementFormDefault="qualified">',
            *(f"  {part}" for part in (root, *complex_types, *simple_types)),
            "</xs:schema>",
        ]
        return "\n".join(lines) + "\n"

    def _type_name(self, name: str) -> str:
        number = list(self._layout.definitions).index(name) + 1
        return f"type{number}-{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}"

    def _meant(self, name: str) -> Content:
        content = self._layout.opened(Slot(Named(name))).content
        if content is None:
            raise TypeError(f"{name} is null alone")
        return content

    def _mixed(self, name: str) -> str:
        meant = self._meant(name)
        has_text = isinstance(meant, Record) and any(part.place is Place.TEXT for part in meant.parts)
        return ' mixed="true"' if has_text else ""

    def _element(self, name: str, slot: Slot, occurs: str = "", lead: str = "") -> str:
        opened = self._layout.opened(slot)
        nil = ' nillable="true"' if opened.nillable else ""
        begin = f"<xs:element name={quoteattr(name)}{occurs}{nil}"
        content = opened.content
        if content is None:
            return f"{begin}><xs:complexType>{lead}</xs:complexType></xs:element>"
        if isinstance(content, Leaf):
            base = self._leaf(content)
            if not lead:
                return f'{begin} type="{base}"/>'
            extension = f'<xs:extension base="{base}">{lead}</xs:extension>'
            whole = f"<xs:simpleContent>{extension}</xs:simpleContent>"
            return f"{begin}><xs:complexType>{whole}</xs:complexType></xs:element>"
        if isinstance(slot.content, Named):
            called = self._type_name(self._last_name(slot))
            if not lead:
                return f'{begin} type="{called}"/>'
            extension = f'<xs:extension base="{called}">{lead}</xs:extension>'
            whole = f"<xs:complexContent>{extension}</xs:complexContent>"
            return f"{begin}><xs:complexType>{whole}</xs:complexType></xs:element>"
        return f"{begin}><xs:complexType>{self._body(content)}{lead}</xs:complexType></xs:element>"

    def _last_name(self, slot: Slot) -> str:
        """The last name of a chain of definitions."""
        if not isinstance(slot.content, Named):
            raise TypeError(f"{slot} has no name")
        name = slot.content.name
        while isinstance(following := self._layout.definitions[name].content, Named):
            name = following.name
        return name

    def _body(self, content: Content) -> str:
        """The inside of a complex type."""
        match content:
            case Record():
                attributes = "".join(
                    self._attribute(part, id(content)) for part in content.parts if part.place is Place.ATTRIBUTE
                )
                elements = "".join(map(self._part, content.parts))
                if content.extra is not None:
                    key = '<xs:attribute name="key" type="xs:string" use="required"/>'
                    elements += self._element("entry", content.extra, _occurs(content.least, content.most), key)
                return f"<xs:sequence>{elements}</xs:sequence>{attributes}"
            case Items():
                return f"<xs:sequence>{self._items(content)}</xs:sequence>"
            case Variant():
                return f"<xs:choice>{''.join(self._element(name, slot) for name, slot in content.options)}</xs:choice>"
            case _:
                raise TypeError(f"{content!r} is no complex type")

    def _attribute(self, part: Part, record: int) -> str:
        leaf = self._layout.opened(part.slot).content
        if not isinstance(leaf, Leaf):
            raise TypeError(f"{part.key}: {leaf!r} is no leaf")
        use = ' use="required"' if part.required and record not in self._nullable else ""
        return f'<xs:attribute name={quoteattr(part.name)} type="{self._leaf(leaf)}"{use}/>'

    def _part(self, part: Part) -> str:
        if part.place is Place.ELEMENT:
            return self._element(part.name, part.slot, "" if part.required else ' minOccurs="0"')
        if part.place is not Place.REPEATED:
            return ""
        elements = self._element(part.name, part.slot, _occurs(part.least, part.most))
        optional = part.least > 0 and not part.required
        return f'<xs:sequence minOccurs="0">{elements}</xs:sequence>' if optional else elements

    def _items(self, items: Items) -> str:
        rest = ""
        if items.item is not None:
            most = None if items.most is None else max(items.most - len(items.prefix), 0)
            rest = self._element(items.name, items.item, _occurs(max(items.least - len(items.prefix), 0), most))
        for number in reversed(range(len(items.prefix))):
            rest = self._element(f"item{number + 1}", items.prefix[number]) + rest
            if number >= items.least:
                rest = f'<xs:sequence minOccurs="0">{rest}</xs:sequence>'
        return rest

    def _leaf(self, leaf: Leaf) -> str:
        """The name of a leaf's simple type."""
        names = [self._kind(kind) for kind in leaf.kinds]
        return names[0] if len(names) == 1 else self._named(f'<xs:union memberTypes="{" ".join(names)}"/>')

    def _kind(self, kind: LeafNode) -> str:
        match kind:
            case Boolean():
                return self._restricted("xs:boolean", ['<xs:pattern value="true|false"/>'])
            case Choice():
                values = [spell_leaf([kind], value) for value in kind.values]
                return self._restricted("xs:string", [f"<xs:enumeration value={_quoted(value)}/>" for value in values])
            case Number():
                exact = kind.source.get(DECIMAL) is True
                decimal = "xs:decimal" if exact else "xs:double"
                facets = [
                    f'<xs:{facet} value="{kind.source[key]}"/>' for key, facet in _FACETS.items() if key in kind.source
                ]
                places = Decimal(repr(kind.source.get("multipleOf", 0.5))).normalize()
                if exact and places.as_tuple().digits == (1,) and places <= 1:
                    facets.append(f'<xs:fractionDigits value="{-int(places.as_tuple().exponent)}"/>')
                return self._restricted("xs:integer" if kind.integer else decimal, facets)
            case Text() if kind.format in _TYPES:
                return _TYPES[kind.format]
            case Text():
                return self._restricted("xs:string", list(self._of_string(kind)))

    def _of_string(self, kind: Text) -> Iterable[str]:
        if kind.min_length:
            yield f'<xs:minLength value="{kind.min_length}"/>'
        if kind.max_length is not None:
            yield f'<xs:maxLength value="{kind.max_length}"/>'
        pattern = kind.pattern if kind.pattern is not None else FORMATS.get(kind.format or "")
        if pattern is not None:
            try:
                yield f"<xs:pattern value={_quoted(translate(pattern, Schema()))}/>"
            except Unsayable:
                return

    def _restricted(self, base: str, facets: list[str]) -> str:
        if not facets:
            return base
        return self._named(f'<xs:restriction base="{base}">{"".join(facets)}</xs:restriction>')

    def _named(self, body: str) -> str:
        return self._simple.setdefault(body, f"simple{len(self._simple) + 1}")


def _occurs(least: int, most: int | None) -> str:
    return f' minOccurs="{least}" maxOccurs="{"unbounded" if most is None else most}"'


def _quoted(text: str) -> str:
    return quoteattr(text, {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"})
