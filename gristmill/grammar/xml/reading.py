"""XML to values, without document types, entities or anything from outside, and with the types of a layout."""

from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from gristmill.grammar.xml.layout import Content, Items, Layout, Leaf, Named, Part, Place, Record, Slot, Variant
from gristmill.grammar.xml.leaf import read_leaf

DEEPEST = 200
"""Elements in elements that are read; a document with more is refused."""


@dataclass(slots=True)
class Element:
    """An element of a document: `text` is all that stands in it outside of other elements."""

    name: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    text: str = ""
    closed: bool = False


def parse(xml: str, *, whole: bool = True) -> Element:
    """The root element of a document, or if not `whole` of the beginning of one.

    Raises:
        ValueError: it is not well-formed, has a document type, or is nested more than `DEEPEST` deep.
    """
    root = Element("", {})
    open_elements = [root]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(open_elements) > DEEPEST:
            raise ValueError(f"elements are nested more than {DEEPEST} deep")
        element = Element(name, attributes)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def text(data: str) -> None:
        open_elements[-1].text += data

    def end(_: str) -> None:
        open_elements.pop().closed = True

    def refuse(*_: Any) -> None:
        raise ValueError("a document type is not allowed: leave out <!DOCTYPE ...>")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(xml.encode("utf-8"), whole)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise ValueError(f"no well-formed XML: {error}") from error
    if not root.children:
        raise ValueError("no well-formed XML: there is no element yet")
    return root.children[0]


def without_namespaces(root: Element) -> None:
    """Take away the attributes that only give prefixes a meaning."""
    for name in [name for name in root.attributes if name == "xmlns" or name.startswith("xmlns:")]:
        del root.attributes[name]


class Reader:
    """Reads elements; raises ValueError, with the path, at what the layout has no place for."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def document(self, name: str, xml: str) -> Any:
        """The value of a document whose root element has this name."""
        root = parse(xml)
        if root.name != name:
            raise ValueError(f"the root element is <{root.name}>, not <{name}>")
        without_namespaces(root)
        return self.element(root, self._layout.root, "$")

    def element(self, element: Element, slot: Slot, path: str) -> Any:
        """The value of an element."""
        slot = self._layout.opened(slot)
        if element.attributes.pop("xsi:nil", None) in ("true", "1"):
            if not slot.nillable:
                raise ValueError(f"{path}: <{element.name}> can't be null")
            if element.children or element.text:
                raise ValueError(f"{path}: <{element.name}> is null, so it must be empty")
            value = None
        elif slot.content is None:
            raise ValueError(f'{path}: <{element.name}> can only be null; write xsi:nil="true"')
        else:
            value = self._content(element, slot.content, path)
        if element.attributes:
            raise ValueError(f"{path}: <{element.name}> has no attribute {min(element.attributes)!r}")
        return value

    def _content(self, element: Element, content: Content, path: str) -> Any:
        if not isinstance(content, Leaf) and not _has_text(content) and element.text.strip():
            raise ValueError(f"{path}: <{element.name}> holds elements, not the text {element.text.strip()!r}")
        match content:
            case Leaf():
                if element.children:
                    raise ValueError(f"{path}: <{element.name}> holds text, not <{element.children[0].name}>")
                return _leaf(content, element.text, path)
            case Record():
                return self._record(element, content, path)
            case Items():
                return self._items(element, content, path)
            case Variant():
                if len(element.children) != 1:
                    raise ValueError(f"{path}: <{element.name}> holds one element, not {len(element.children)}")
                option = dict(content.options).get(element.children[0].name)
                if option is None:
                    raise ValueError(f"{path}: there is no alternative <{element.children[0].name}>")
                return self.element(element.children[0], option, path)
            case Named():
                opened = self._layout.opened(Slot(content)).content
                return None if opened is None else self._content(element, opened, path)

    def _record(self, element: Element, record: Record, path: str) -> dict[str, Any]:
        value: dict[str, Any] = {}
        children = element.children[::-1]
        for part in record.parts:
            if part.place is Place.ATTRIBUTE:
                if part.name in element.attributes:
                    value[part.key] = self._text(part, element.attributes.pop(part.name), path)
            elif part.place is Place.TEXT:
                value[part.key] = self._text(part, element.text, path)
            elif part.place is Place.ELEMENT:
                if children and children[-1].name == part.name:
                    value[part.key] = self.element(children.pop(), part.slot, f"{path}.{part.key}")
            elif part.place is Place.GROUP:
                if children and children[-1].name == part.name:
                    value |= self.element(children.pop(), part.slot, path)
                continue
            else:
                items: list[Any] = []
                while children and children[-1].name == part.name:
                    items.append(self.element(children.pop(), part.slot, f"{path}.{part.key}[{len(items)}]"))
                if items or part.required:
                    value[part.key] = items
            if part.required and part.key not in value:
                raise ValueError(f"{path}: {part.name!r} is missing in <{element.name}>, or not in its place")
        while record.extra is not None and children and children[-1].name == "entry":
            entry = children.pop()
            key = entry.attributes.pop("key", None)
            if key is None or key in value or key in record.keys:
                raise ValueError(f"{path}: an entry of <{element.name}> has the key {key!r}, which is missing or taken")
            value[key] = self.element(entry, record.extra, f"{path}.{key}")
        if children:
            raise ValueError(f"{path}: <{children[-1].name}> is unknown in <{element.name}>, or not in its place")
        return value

    def _text(self, part: Part, text: str, path: str) -> Any:
        leaf = self._layout.opened(part.slot).content
        if not isinstance(leaf, Leaf):
            raise ValueError(f"{path}.{part.key}: holds no text")
        return _leaf(leaf, text, f"{path}.{part.key}")

    def _items(self, element: Element, items: Items, path: str) -> list[Any]:
        value: list[Any] = []
        for number, child in enumerate(element.children):
            in_prefix = number < len(items.prefix)
            name = f"item{number + 1}" if in_prefix else items.name
            slot = items.prefix[number] if in_prefix else items.item
            if slot is None or child.name != name:
                raise ValueError(f"{path}: <{child.name}> is unknown in <{element.name}>, or not in its place")
            value.append(self.element(child, slot, f"{path}[{number}]"))
        return value


def _has_text(content: Content) -> bool:
    return isinstance(content, Record) and any(part.place is Place.TEXT for part in content.parts)


def _leaf(leaf: Leaf, text: str, path: str) -> Any:
    try:
        return read_leaf(leaf.kinds, text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
