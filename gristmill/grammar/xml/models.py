"""Classes of pydantic-xml, which bring a mapping of their own: the layout of what the library writes for them."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_xml import BaseXmlModel
from pydantic_xml.serializers.factories import homogeneous, primitive, union, wrapper
from pydantic_xml.serializers.factories import model as models
from pydantic_xml.serializers.serializer import Serializer

from gristmill.errors import SchemaError
from gristmill.grammar.tree import Choice, Field, Node, Object, Sequence, Tree
from gristmill.grammar.xml.layout import Layout, Leaf, Named, Part, Place, Record, Slot
from gristmill.grammar.xml.leaf import spell_leaf
from gristmill.grammar.xml.planning import Planner

Path = str


def plan_model(model: type[BaseXmlModel], tree: Tree, names: "Names") -> Layout:
    """The layout of a class's documents; `tree` is that of its JSON Schema.

    Raises:
        SchemaError: the class has a part that the library does not write and read back as a grammar can say it.
    """
    return _ModelPlanner(tree, names).plan_model(model)


class Names:
    """Qualified names for the library's `{namespace}name`, with the prefixes that the classes give."""

    def __init__(self) -> None:
        self.declared: dict[str, str] = {}

    def declare(self, nsmap: Mapping[str, str] | None, path: Path) -> None:
        """Take over a class's prefixes.

        Raises:
            SchemaError: one of them means something else already.
        """
        for prefix, uri in (nsmap or {}).items():
            if self.declared.setdefault(prefix, uri) != uri:
                raise SchemaError(f"{path}: the prefix {prefix!r} stands for two namespaces; use two prefixes")

    def of(self, name: str, path: Path, *, attribute: bool = False) -> str:
        """The name with its prefix.

        Raises:
            SchemaError: its namespace has no prefix, or none that can stand there.
        """
        uri, _, local = name[1:].rpartition("}") if name.startswith("{") else ("", "", name)
        if not uri:
            if "" in self.declared and not attribute:
                raise SchemaError(f"{path}: {local!r} is in no namespace, but there is a default one; give it that")
            return local
        for prefix, declared in self.declared.items():
            if declared == uri and (prefix or not attribute):
                return f"{prefix}:{local}" if prefix else local
        raise SchemaError(f"{path}: the namespace {uri!r} has no prefix; give one in nsmap")

    @property
    def lead(self) -> dict[str, str]:
        """The attributes of the root element that declare the prefixes."""
        return {f"xmlns:{prefix}" if prefix else "xmlns": uri for prefix, uri in self.declared.items()}


class _ModelPlanner:
    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._planner = Planner(tree)
        self._definitions: dict[str, Slot] = {}

    def plan_model(self, model: type[BaseXmlModel]) -> Layout:
        root = self._model(model, self._tree.root, "$")
        relaxed = dict.fromkeys((*self._tree.relaxed, *self._planner.relaxed))
        return Layout(root, self._definitions, tuple(relaxed))

    def _model(self, model: type[BaseXmlModel], node: Node, path: Path) -> Slot:
        node = self._tree.resolved(node)
        serializer = model.__xml_serializer__
        if not isinstance(serializer, models.ModelSerializer) or not isinstance(node, Object):
            raise SchemaError(
                f"{path}: {model.__name__} is no plain model, but one with a root or extra fields; use fields"
            )
        if model.__xml_field_serializers__ or model.__xml_field_validators__ or model.__xml_skip_empty__:
            raise SchemaError(f"{path}: {model.__name__} has XML code of its own or skip_empty; leave that out")
        if model.model_computed_fields or node.extra is not None:
            raise SchemaError(f"{path}: {model.__name__} has computed or extra fields; leave them out")
        self._names.declare(serializer.nsmap, path)
        key = f"{model.__module__}.{model.__qualname__}"
        if key not in self._definitions:
            self._definitions[key] = Slot(None)
            fields = {field.name: field for field in node.fields}
            parts: list[Part] = []
            for name, inner in serializer.fields_serializers.items():
                info = model.model_fields[name]
                alias = info.validation_alias if isinstance(info.validation_alias, str) else name
                field = fields.pop(alias, None)
                if field is None:
                    raise SchemaError(f"{path}.{name}: the field is not in the class's JSON Schema; give it one name")
                _join(parts, self._part(inner, field, info, f"{path}.{alias}"))
            if lacking := [field.name for field in fields.values() if field.required]:
                raise SchemaError(f"{path}.{lacking[0]}: a required field must stand in the XML")
            self._definitions[key] = Slot(Record(_ordered(parts, path)))
        return Slot(Named(key))

    def _part(self, serializer: Serializer, field: Field, info: FieldInfo, path: Path) -> Part:
        slot_of_list = self._tree.resolved(field.node)
        has_default = info.default_factory is not None or info.default is not None
        if self._null(field.node) or (not field.required and has_default and _allows_none(info)):
            raise SchemaError(f"{path}: null is left out in XML, so the default of what may be null must be None")
        self._names.declare(dict(getattr(serializer, "_nsmap", None) or {}), path)
        match serializer:
            case wrapper.ElementPathSerializer():
                inner = serializer._inner_serializer
                # Text alone in the wrapper is there or not with the wrapper.
                alone = type(inner) is primitive.TextSerializer
                part = self._part(inner, Field(field.name, field.node, True) if alone else field, info, path)
                for tag in reversed(serializer._path):
                    slot = Slot(Record((part,)))
                    part = Part("", self._names.of(tag, path), Place.GROUP, slot, field.required)
                return part
            case homogeneous.ElementSerializer() if (
                isinstance(slot_of_list, Sequence) and slot_of_list.items is not None
            ):
                inner = serializer._inner_serializer
                name, slot = self._element(inner, slot_of_list.items, info, f"{path}[]")
                # Of an empty list the library reads nothing, so a required one is refused by the class.
                least = max(slot_of_list.min_items, 1) if field.required else slot_of_list.min_items
                return Part(field.name, name, Place.REPEATED, slot, field.required, least, slot_of_list.max_items)
            case primitive.AttributeSerializer():
                name = self._names.of(serializer.attr_name, path, attribute=True)
                return Part(field.name, name, Place.ATTRIBUTE, self._leaf(field.node, info, path), field.required)
            case union.PrimitiveTypeSerializer():
                return self._part(serializer._inner_serializer, field, info, path)
            case primitive.TextSerializer() if not isinstance(serializer, primitive.ElementSerializer):
                if not field.required:
                    raise SchemaError(f"{path}: the text of an element can't be left out; make the field required")
                return Part(field.name, "", Place.TEXT, self._leaf(field.node, info, path), required=True)
            case _:
                name, slot = self._element(serializer, field.node, info, path)
                return Part(field.name, name, Place.ELEMENT, slot, field.required)

    def _element(self, serializer: Serializer, node: Node, info: FieldInfo, path: Path) -> tuple[str, Slot]:
        if self._null(node):
            raise SchemaError(f"{path}: an item that is null would end the list for the library; leave null out")
        match serializer:
            case models.ModelProxySerializer():
                self._names.declare(dict(serializer.nsmap or {}), path)
                return self._names.of(serializer.element_name, path), self._model(serializer.model, node, path)
            case union.PrimitiveTypeSerializer():
                return self._element(serializer._inner_serializer, node, info, path)
            case primitive.ElementSerializer():
                return self._names.of(serializer._element_name, path), self._leaf(node, info, path)
            case _:
                kind = type(serializer).__module__.rsplit(".", 1)[-1]
                raise SchemaError(f"{path}: a {kind} of pydantic-xml is not supported; use a field, a model or a list")

    def _leaf(self, node: Node, info: FieldInfo, path: Path) -> Slot:
        slot = self._planner.opened(self._planner.slot(node, path))
        if not isinstance(slot.content, Leaf):
            raise SchemaError(f"{path}: its types can't be told apart in text; use one of them")
        for kind in slot.content.kinds:
            if isinstance(kind, Choice) and not isinstance(kind.values[0], str):
                self._check_readable(kind, info, path)
        return slot

    def _check_readable(self, kind: Choice, info: FieldInfo, path: Path) -> None:
        """The library hands over text, which not every class of values takes."""
        adapter: TypeAdapter[Any] = TypeAdapter(_type_of(info))
        for value in kind.values:
            text = spell_leaf([kind], value)
            try:
                adapter.validate_python(text)
            except ValidationError as error:
                raise SchemaError(
                    f"{path}: the class does not take the text {text!r} for {value!r}; use strings"
                ) from error

    def _null(self, node: Node) -> bool:
        return self._planner.opened(self._planner.slot(node, "$")).nillable


def _type_of(info: FieldInfo) -> Any:
    return info.annotation


def _allows_none(info: FieldInfo) -> bool:
    try:
        TypeAdapter(_type_of(info)).validate_python(None)
    except ValidationError:
        return False
    return True


def _join(parts: list[Part], part: Part) -> None:
    """Put a part behind others; into the group before it, if it is of the same name."""
    last = parts[-1] if parts else None
    if last is None or not part.grouped or not last.grouped or last.name != part.name:
        parts.append(part)
        return
    both = [slot.content.parts for slot in (last.slot, part.slot) if isinstance(slot.content, Record)]
    inner = list(both[0])
    for each in both[1]:
        _join(inner, each)
    parts[-1] = Part("", part.name, Place.GROUP, Slot(Record(tuple(inner))), last.required or part.required)


def _ordered(parts: list[Part], path: Path) -> tuple[Part, ...]:
    """Attributes first, then the text, then elements, as they stand in a document."""
    order = {Place.ATTRIBUTE: 0, Place.TEXT: 1}
    for attribute in (True, False):
        names = [part.name for part in parts if (part.place is Place.ATTRIBUTE) is attribute]
        if twice := [name for name in names if names.count(name) > 1]:
            raise SchemaError(f"{path}: two fields are called {twice[0]!r} in XML; give one another name")
    return tuple(sorted(parts, key=lambda part: order.get(part.place, 2)))
