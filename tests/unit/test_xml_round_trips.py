"""Instance -> XML -> accepted by the grammar -> valid by the XSD -> read -> the same instance, 1,000 times for each."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel, TypeAdapter
from xmlschema import XMLSchema10

from gristmill.grammar.tree import tree_of
from gristmill.grammar.xml.names import Xml, xml_json_schema
from gristmill.grammar.xml.reading import Element, parse
from gristmill.grammar.xml.spelling import XmlSpelling
from gristmill.grammar.xml.xsd import xsd_of
from gristmill.verbatim import Verbatim
from tests.unit.xml_values import accepts, matcher_of, same, values, walk

TEXT = 'Ada said: "x < y & z > w"\n\tto Bob\'s 漢字カナ 🙂 — twice; 5 times,\r\n«]]>» &amp; ünï \x01 end.'


class Street(BaseModel):
    """A leaf of other models."""

    street: str
    number: int


class Nested(BaseModel):
    """Models in models."""

    name: str
    home: Street
    work: Street | None = None


class Lists(BaseModel):
    """Lists of all kinds."""

    words: list[str]
    few: Annotated[list[int], Field(min_length=1, max_length=4)]
    defaulted: list[str] = []
    perhaps: list[Street] | None = None
    grid: list[list[bool]]
    holes: list[int | None]


class Optionals(BaseModel):
    """What may be absent or null."""

    text: str | None = None
    count: int | None = None
    required: str | None
    inner: Street | None = None
    flag: bool = False
    least: Annotated[list[int], Field(min_length=2), Xml(wrapper=False)] = [1, 2]


class Colour(Enum):
    """Strings that need escapes."""

    RED = 'rot & "blau"'
    GREEN = "<緑色>'"
    EMPTY = ""


class Level(Enum):
    """Numbers."""

    LOW = 1
    HIGH = 22


class Enums(BaseModel):
    """Enumerations."""

    colour: Colour
    level: Level
    mixed: Literal[1, "1", "one", None]
    many: list[Colour]
    prefixes: Literal["a", "ab", "abc", "b"]
    attribute: Annotated[Colour, Xml(attribute=True)]


class Dates(BaseModel):
    """Strings with a format."""

    day: date
    at: datetime
    clock: time
    takes: timedelta
    id: UUID
    link: AnyUrl
    when: date | int
    days: list[date] = []


class Decimals(BaseModel):
    """Numbers with a fraction."""

    price: Decimal
    bounded: Annotated[Decimal, Field(ge=0, le=1000)]
    cents: Annotated[Decimal, Field(max_digits=6, decimal_places=2)]
    real: float
    share: Annotated[float, Field(gt=0, le=1)]
    known: Decimal | None = None


class Bounds(BaseModel):
    """Bounds, lengths and patterns."""

    stars: Annotated[int, Field(ge=-3, le=512)]
    short: Annotated[str, Field(min_length=2, max_length=5)]
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{1,3}$")]
    odd: Annotated[str, Field(pattern=r"^[<&>\"a]+(x|y/z)?$", max_length=9)]
    inside: Annotated[str, Field(pattern=r"[0-9]{2}")]


class Unions(BaseModel):
    """Alternatives of several types."""

    either: int | str
    kinds: list[int | str | bool | None]
    number_or_flag: float | bool
    lists: list[int] | list[str]
    object_or_text: Street | str


class Cat(BaseModel):
    """An alternative."""

    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    """Another alternative."""

    kind: Literal["dog"]
    name: str
    lives: str = "one"


class Pets(BaseModel):
    """A discriminated union."""

    first: Annotated[Cat | Dog, Field(discriminator="kind")]
    others: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


class Branch(BaseModel):
    """A class that refers to itself."""

    name: Annotated[str, Xml(attribute=True)]
    left: "Branch | None" = None
    below: list["Branch"]
    nullable: "Branch | None"


class Dicts(BaseModel):
    """Dictionaries, and a model with further keys."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    counts: dict[str, int]
    streets: dict[str, Street | None]
    lists: dict[str, list[str]] | None = None
    few: Annotated[dict[str, str], Field(max_length=2)]


class Tuples(BaseModel):
    """Items with a type each."""

    pair: tuple[int, str]
    any_number: tuple[float, ...]
    nested: list[tuple[bool, tuple[str, int | None]]]


class Attributes(BaseModel):
    """Attributes among elements."""

    id: Annotated[int, Xml(attribute=True)]
    lang: Annotated[str | None, Xml(attribute=True, name="language")] = None
    size: Annotated[float, Field(ge=0, le=10), Xml(attribute=True)]
    inner: Annotated[Street, Xml(name="in")]
    flag: Annotated[bool, Xml(attribute=True)]


class Wrapped(BaseModel):
    """Lists with and without a wrapper."""

    tags: Annotated[list[str], Xml(name="tag", wrapper=True)]
    streets: Annotated[list[Street], Xml(name="street", wrapper="all")]
    repeated: Annotated[list[str], Xml(name="one")]
    perhaps: Annotated[list[Annotated[str, Xml(name="each")]] | None, Xml(wrapper="some")] = None


class Tied(BaseModel):
    """Strings from the text."""

    who: Annotated[str, Verbatim()]
    part: Annotated[str, Verbatim(unit="characters")] | None = None
    all: Annotated[list[str], Verbatim()]
    short: Annotated[str, Verbatim(), Field(max_length=6)]
    attribute: Annotated[str, Verbatim(), Xml(attribute=True)]


class Streets(RootModel[list[Street]]):
    """A list as the root."""


class Anythings(BaseModel):
    """Parts without a type."""

    value: Any
    values: dict[str, Any]


class NullOrKeys(RootModel[dict[str, int | None] | None]):
    """A dictionary or null as the root."""


SCHEMAS: list[type[BaseModel]] = [
    Nested, Lists, Optionals, Enums, Dates, Decimals, Bounds, Unions, Pets, Branch, Dicts, Tuples, Attributes, Wrapped,
    Tied, Streets, Anythings, NullOrKeys,
]  # fmt: skip


@pytest.mark.parametrize("model", SCHEMAS, ids=lambda model: model.__name__)
def test_every_instance_makes_the_round_trip(model: type[BaseModel]) -> None:
    """What is spelt is accepted by grammar and XSD, and means the same instance and the same JSON value again."""
    tree = tree_of(xml_json_schema(model))
    spelling = XmlSpelling(tree, "answer")
    matcher = matcher_of(spelling.grammar(TEXT))
    xsd = XMLSchema10(xsd_of(spelling))
    adapter = TypeAdapter(model)

    @settings(
        max_examples=200 if model in (Anythings, NullOrKeys) else 1000,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(values(tree, tree.root, TEXT))
    def trip(value: Any) -> None:
        instance = adapter.validate_python(value)
        document = spelling.spell(value)
        assert accepts(matcher, document), document
        assert xsd.is_valid(document), document
        back = spelling.read(document)
        assert same(back, value)
        assert adapter.validate_python(back) == instance

    trip()


def keys_in(element: Element) -> Iterator[list[str]]:
    """The keys of the entries of each element."""
    yield [child.attributes["key"] for child in element.children if child.name == "entry"]
    for child in element.children:
        yield from keys_in(child)


@pytest.mark.parametrize("model", SCHEMAS, ids=lambda model: model.__name__)
def test_what_the_grammar_lets_through_means_an_instance(model: type[BaseModel]) -> None:
    """Random walks through the grammar are valid by the XSD and by the class, and stay the same when spelt again."""
    tree = tree_of(xml_json_schema(model), max_string=8)
    spelling = XmlSpelling(tree, "answer")
    matcher = matcher_of(spelling.grammar(TEXT))
    xsd = XMLSchema10(xsd_of(spelling))
    walks = [walk(matcher.deep_copy(), Random(seed)) for seed in range(20)]
    documents = [document for document in walks if document is not None]
    assert documents
    for document in documents:
        assert xsd.is_valid(document), document
        if any(keys.count(key) > 1 for keys in keys_in(parse(document)) for key in keys):
            # That keys are distinct is the one thing that only reading can tell.
            with pytest.raises(ValueError, match="missing or taken"):
                spelling.read(document)
            continue
        value = spelling.read(document)
        instance = TypeAdapter(model).validate_python(value)
        again = spelling.read(spelling.spell(value))
        assert TypeAdapter(model).validate_python(again) == instance
