"""How a field stands in XML, said beside its type, and a JSON Schema that keeps what XML needs to know."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gristmill.printing import decimal_number

KEYWORD = "xml"
"""The keyword of OpenAPI (https://spec.openapis.org/oas/v3.1.0#xml-object) with `name`, `attribute` and `wrapped`."""

DECIMAL = "x-decimal"
"""The keyword of a number that is read as a string, so that no digit of it is lost."""


@dataclass(frozen=True, slots=True)
class Xml:
    """An annotation for fields: how they stand in XML.

    `attribute` puts the value into an attribute of the object's element. `name` is the name of the element or
    attribute; for a list, of each item's element. `wrapper` puts a list's items into an element of their own: True
    names it like the field, a string names it; False never does so, and then an empty list is read as an absent one.
    Without it a list is wrapped only where it may be both absent and empty.

    >>> size: Annotated[int, Xml(attribute=True)]
    >>> tags: Annotated[list[str], Xml(name="tag", wrapper="tags")]
    """

    attribute: bool = False
    name: str | None = None
    wrapper: bool | str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(core_schema)
        said: dict[str, Any] = {"attribute": True} if self.attribute else {}
        if self.name is not None:
            said["name"] = self.name
        if self.wrapper is not None:
            said["wrapped"] = self.wrapper is not False
            if self.name is not None:
                for array in _arrays_in(json_schema):
                    array["items"] = {**array["items"], KEYWORD: {"name": self.name}}
            said.pop("name", None)
            if isinstance(self.wrapper, str):
                said["name"] = self.wrapper
            elif self.wrapper is False and self.name is not None:
                said["name"] = self.name
        return {**json_schema, KEYWORD: said}


class XmlJsonSchema(GenerateJsonSchema):
    """Pydantic's JSON Schema with decimals told apart from numbers and strings."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number that is read as a string."""
        return {**decimal_number(schema), DECIMAL: True}


def xml_json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a class from which to make the tree of an `XmlSpelling`."""
    return model.model_json_schema(schema_generator=XmlJsonSchema)


def brings_mapping(model: type[BaseModel]) -> bool:
    """Whether a class is one of pydantic-xml, which need not be installed to ask: `ModelSpelling` is for these."""
    return any(base.__module__.partition(".")[0] == "pydantic_xml" for base in model.__mro__)


def _arrays_in(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node.get("type") == "array" and isinstance(node.get("items"), dict):
        yield node
    for option in node.get("anyOf", ()):
        yield from _arrays_in(option)
