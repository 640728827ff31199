"""Classes of pydantic-xml: what the library writes is what the grammar takes, and what can't be is refused at once."""

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import Field, ValidationError
from pydantic_xml import BaseXmlModel, RootXmlModel, attr, computed_element, element, wrapped

from gristmill.errors import SchemaError
from gristmill.grammar.rules import MISSING, Fixed
from gristmill.grammar.tree import tree_of
from gristmill.grammar.xml.model_spelling import ModelSpelling
from gristmill.grammar.xml.names import brings_mapping, xml_json_schema
from gristmill.verbatim import Verbatim
from tests.unit.test_xml_round_trips import Street
from tests.unit.xml_values import accepts, matcher_of, same, values

TEXT = "Ada & Bob said <hello> to 漢字 🙂."


class Kind(Enum):
    """Strings that need escapes."""

    ONE = "a&b"
    TWO = "<二>"


class Site(BaseXmlModel, tag="site"):
    """Text and an attribute."""

    country: str = attr()
    text: str


class Company(BaseXmlModel, tag="company", ns="c", nsmap={"c": "http://example.org/c", "p": "http://example.org/p"}):
    """Namespaces, wrappers and lists."""

    name: str = attr()
    trade: str | None = attr(name="trade-name", default=None)
    web: Annotated[str, Field(max_length=20)] = element(ns="p")
    when: date | None = element(default=None)
    kind: Kind = element()
    kinds: list[Kind] = element(tag="k", default=[])
    head: Site
    sites: list[Site] = element(tag="place", default_factory=list)
    phone: str = wrapped("contacts/list", element())
    mail: list[str] = wrapped("contacts/list", element(tag="mail"), default=[])
    price: Decimal = wrapped("contacts", attr())
    on: bool = attr()
    note: str | None = wrapped("remark", default=None)


class Node(BaseXmlModel, nsmap={"": "http://example.org/default"}):
    """A class that refers to itself, in a default namespace."""

    value: Annotated[int, Field(ge=-5, le=500)] = attr()
    below: list["Node"] = element(tag="node", default=[])
    share: float = element()


class Tied(BaseXmlModel):
    """Strings from the text."""

    who: Annotated[str, Verbatim()] = element()
    attribute: Annotated[str, Verbatim()] = attr()


def spelling_of(model: type[BaseXmlModel]) -> ModelSpelling:
    return ModelSpelling(model, tree_of(xml_json_schema(model)))


@pytest.mark.parametrize("model", [Company, Node, Tied])
def test_every_instance_makes_the_round_trip(model: type[BaseXmlModel]) -> None:
    """What the library writes is accepted by the grammar, is what the library reads, and can be had part by part."""
    tree = tree_of(xml_json_schema(model))
    spelling = ModelSpelling(model, tree)
    matcher = matcher_of(spelling.grammar(TEXT))

    @settings(max_examples=150, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values(tree, tree.root, TEXT))
    def trip(value: Any) -> None:
        document = spelling.spell(value)
        assert accepts(matcher, document), document
        instance = model.model_validate(value)
        assert model.from_xml_tree(instance.to_xml_tree(exclude_none=True), empty_as_string=True) == instance
        assert model.model_validate(spelling.read(document)) == instance
        known = {name: Fixed(part) for name, part in value.items()}
        assert accepts(matcher_of(spelling.grammar(TEXT, known)), document), document

    trip()


def test_classes_of_the_library_are_told_apart() -> None:
    """Without importing it."""
    assert brings_mapping(Site)
    assert not brings_mapping(Street)


def test_the_document_is_the_librarys() -> None:
    """But for line ends and letters that needn't be escaped, the document is byte for byte what `to_xml` writes."""
    site = Site(country="x", text="y & z")
    assert spelling_of(Site).spell({"country": "x", "text": "y & z"}).encode() == site.to_xml()


def test_known_fields_of_a_wrapper_are_forced() -> None:
    """What is known of fields inside a shared wrapper stands there, and nothing else can."""
    value = {"name": "n", "web": "w", "kind": "a&b", "head": {"country": "c", "text": "t"}, "phone": "1", "price": "2",
             "on": True, "mail": ["x"]}  # fmt: skip
    spelling = spelling_of(Company)
    matcher = matcher_of(spelling.grammar(TEXT, {"phone": Fixed("1"), "mail": (None,), "note": Fixed(MISSING)}))
    assert accepts(matcher, spelling.spell(value))
    assert not accepts(matcher, spelling.spell({**value, "phone": "2"}))
    assert not accepts(matcher, spelling.spell({**value, "mail": []}))
    assert not accepts(matcher, spelling.spell({**value, "note": "n"}))


def test_what_is_there_of_a_cut_document() -> None:
    """A cut document gives what was complete in it, wrappers and attributes included."""
    value = {"name": "n", "web": "w", "kind": "a&b", "head": {"country": "c", "text": "t"}, "phone": "1", "price": "2",
             "on": True, "mail": ["x", "yz"]}  # fmt: skip
    spelling = spelling_of(Company)
    whole = spelling.spell(value)
    assert same(spelling.partial(whole[: whole.index("z</c:mail>")]), {**value, "mail": ["x", "y"]})
    assert spelling.partial("<c:comp") is None


class RequiredNull(BaseXmlModel):
    """Null without a default."""

    inner: str | None = element()


class OtherDefault(BaseXmlModel):
    """Null with another default."""

    inner: str | None = element(default="x")


class NullItems(BaseXmlModel):
    """Null in a list."""

    inner: list[str | None] = element()


class Numbered(BaseXmlModel):
    """Numbers that the class does not take as text."""

    inner: Literal[1, 2] = element()


class Dictionary(BaseXmlModel):
    """A dictionary."""

    inner: dict[str, str] = element()


class Pair(BaseXmlModel):
    """A tuple."""

    inner: tuple[int, str] = element()


class Mixed(BaseXmlModel):
    """A union of models."""

    inner: Site | Node


class Computed(BaseXmlModel):
    """A computed field."""

    one: int = element()

    @computed_element  # type: ignore[prop-decorator]
    @property
    def two(self) -> int:
        return 2


class Skipping(BaseXmlModel, skip_empty=True):
    """Empty elements left out."""

    inner: str = element()


class OptionalText(BaseXmlModel):
    """A text that can be left out."""

    text: str = "x"


class Twice(BaseXmlModel):
    """Two fields with one name."""

    one: str = element(tag="x")
    two: int = element(tag="x")


class Roots(RootXmlModel[list[Site]]):
    """A model with a root."""


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (RequiredNull, "$.inner"),
        (OtherDefault, "$.inner"),
        (NullItems, "$.inner[]"),
        (Numbered, "$.inner"),
        (Dictionary, "$.inner"),
        (Pair, "$.inner"),
        (Mixed, "$.inner"),
        (Computed, "$"),
        (Skipping, "$"),
        (OptionalText, "$.text"),
        (Twice, "$"),
        (Roots, "$"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_path(model: type[BaseXmlModel], path: str) -> None:
    """At start-up, with the path of the part that is wrong."""
    with pytest.raises(SchemaError) as refused:
        spelling_of(model)
    assert str(refused.value).startswith(f"{path}:")


def test_a_value_that_the_library_would_not_read_back_is_refused() -> None:
    """An empty list where the default is another one would silently become that."""

    class Defaults(BaseXmlModel):
        """A list with a default."""

        inner: list[int] = element(default=[1])

    with pytest.raises(ValueError, match="reads something else"):
        spelling_of(Defaults).spell({"inner": []})


def test_reading_refuses_document_types_and_what_the_class_refuses() -> None:
    """Before the library sees it; and the class's own complaint is passed on."""
    spelling = spelling_of(Site)
    bomb = '<!DOCTYPE s [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><site country="x">&b;</site>'
    with pytest.raises(ValueError, match="document type"):
        spelling.read(bomb)
    with pytest.raises(ValueError, match="root element not found"):
        spelling.read("<other/>")
    with pytest.raises(ValidationError):
        spelling.read("<site>x</site>")
