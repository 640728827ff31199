"""The XML spelling: the mapping, its corners, and what neither grammar nor reading lets through."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from xmlschema import XMLSchema10

from gristmill.errors import SchemaError
from gristmill.grammar.tree import tree_of
from gristmill.grammar.xml.names import Xml, xml_json_schema
from gristmill.grammar.xml.spelling import XmlSpelling
from gristmill.grammar.xml.xsd import xsd_of
from tests.unit.xml_values import accepts, matcher_of


class Item(BaseModel):
    """Part of an order."""

    name: str
    price: Decimal


class Order(BaseModel):
    """A bit of everything."""

    id: Annotated[int, Xml(attribute=True), Field(ge=1, le=99)]
    customer: Annotated[str, Field(max_length=20)]
    state: Literal["new", "paid & sent"]
    items: Annotated[list[Item], Xml(name="item"), Field(min_length=1, max_length=3)]
    tags: Annotated[list[str], Xml(name="tag", wrapper="tags")] = []
    note: str | None = None
    gift: bool | None


ORDER = {
    "id": 7,
    "customer": 'A < B & "C"',
    "state": "paid & sent",
    "items": [{"name": "x", "price": "1.50"}, {"name": "y", "price": "2"}],
    "tags": [],
    "gift": None,
}
DOCUMENT = (
    '<order xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" id="7">'
    '<customer>A &lt; B &amp; "C"</customer><state>paid &amp; sent</state>'
    "<item><name>x</name><price>1.50</price></item><item><name>y</name><price>2</price></item>"
    '<tags></tags><gift xsi:nil="true"/></order>'
)


def spelling_of(model: type[BaseModel], root: str = "order") -> XmlSpelling:
    return XmlSpelling(tree_of(xml_json_schema(model)), root)


ORDERS = spelling_of(Order)


def test_the_mapping_is_as_documented() -> None:
    """One document with an attribute, repeated elements, a wrapper, an absent field and null; and back."""
    assert ORDERS.spell(ORDER) == DOCUMENT
    assert ORDERS.read(DOCUMENT) == ORDER


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("raw <", "A &lt; B", "A < B"),
        ("raw &", "B &amp;", "B &"),
        ("unknown entity", "&amp; sent", "&nbsp; sent"),
        ("control character", "A &lt;", "A \x01"),
        ("reference to a control character", "A &lt;", "A &#1;"),
        ("U+FFFE", "A &lt;", "A \ufffe"),
        ("wrong order", "<state>paid &amp; sent</state><item>", "<item>"),
        ("unknown element", "<tags></tags>", "<tags></tags><other></other>"),
        ("unknown attribute", 'id="7"', 'id="7" other="1"'),
        ("missing element", "<state>paid &amp; sent</state>", ""),
        ("missing attribute", ' id="7"', ""),
        ("out of range", 'id="7"', 'id="100"'),
        ("no number", 'id="7"', 'id="x"'),
        ("no decimal", "<price>2<", "<price>2,5<"),
        ("wrong choice", "paid &amp; sent", "lost"),
        ("too long", "A &lt;", "A" * 20),
        ("too many", "<tags>", "<item><name>x</name><price>1</price></item>" * 2 + "<tags>"),
        ("no boolean", '<gift xsi:nil="true"/>', "<gift>yes</gift>"),
        ("null that is not allowed", "<name>x</name>", '<name xsi:nil="true"/>'),
        ("text between elements", "<tags></tags>", "<tags>x</tags>"),
        ("unclosed", "</order>", ""),
        ("two roots", "</order>", "</order><order></order>"),
        ("element in text", "<name>x</name>", "<name><b>x</b></name>"),
    ],
)
def test_mutations_are_refused_twice(what: str, old: str, new: str) -> None:
    """The grammar refuses a document that is wrong, and so do reading and validation together."""
    assert old in DOCUMENT
    mutated = DOCUMENT.replace(old, new, 1)
    assert not accepts(matcher_of(ORDERS.grammar("")), mutated)
    with pytest.raises(ValueError):  # noqa: PT011 - a ValidationError, or reading's own
        Order.model_validate(ORDERS.read(mutated))


def test_the_xsd_refuses_wrong_documents() -> None:
    """It accepts the right one, and refuses order, number, choice and count that are wrong."""
    xsd = XMLSchema10(xsd_of(ORDERS))
    assert xsd.is_valid(DOCUMENT)
    for old, new in (
        ("<state>paid &amp; sent</state>", ""),
        ('id="7"', 'id="100"'),
        ("paid &amp; sent", "lost"),
        ("<tags></tags>", "<tags></tags><other/>"),
        ("<tags>", "<item><name>x</name><price>1</price></item>" * 2 + "<tags>"),
        ("A &lt;", "A" * 20),
    ):
        assert not xsd.is_valid(DOCUMENT.replace(old, new, 1)), new


@pytest.mark.parametrize(
    "start",
    [
        '<!DOCTYPE order [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE order [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE order SYSTEM "http://127.0.0.1:9/order.dtd">',
    ],
)
def test_document_types_are_refused(start: str) -> None:
    """No entity is expanded and nothing is fetched."""
    with pytest.raises(ValueError, match="document type"):
        ORDERS.read(start + DOCUMENT)


def test_deep_documents_are_refused() -> None:
    """Depth is limited before anything recurses."""
    with pytest.raises(ValueError, match="nested"):
        ORDERS.read("<order>" * 5000)


@pytest.mark.parametrize("character", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800"])
def test_characters_that_xml_has_not_cannot_be_spelt(character: str) -> None:
    """The message says which character and where, in text, attributes and keys."""

    class Strings(BaseModel):
        """Strings in all places."""

        text: str
        attribute: Annotated[str, Xml(attribute=True)]
        more: dict[str, str]

    good: dict[str, Any] = {"text": "", "attribute": "", "more": {}}
    spelling = spelling_of(Strings)
    for bad in ({"text": f"ab{character}"}, {"attribute": f"ab{character}"}, {"more": {f"ab{character}": ""}}):
        with pytest.raises(ValueError, match=rf"U\+{ord(character):04X} at offset 2"):
            spelling.spell(good | bad)


def test_line_ends_and_tabs_survive() -> None:
    """Parsers turn a carriage return into a line feed, and white space in attributes into spaces, unless written so."""

    class Spaces(BaseModel):
        """White space in text and attribute."""

        text: str
        attribute: Annotated[str, Xml(attribute=True)]

    value = {"text": " a\r\n\tb ", "attribute": " a\r\n\tb "}
    document = spelling_of(Spaces).spell(value)
    assert document == '<order attribute=" a&#13;&#10;&#9;b "><text> a&#13;\n\tb </text></order>'
    assert spelling_of(Spaces).read(document) == value


def test_an_empty_list_reads_as_absent_only_where_that_is_asked_for() -> None:
    """`wrapper=False` says so; otherwise a list that may be both stands in a wrapper."""

    class Both(BaseModel):
        """Two lists that may be empty and absent."""

        safe: list[int] = [1]
        bare: Annotated[list[int], Xml(wrapper=False)] = [1]

    spelling = spelling_of(Both)
    assert spelling.spell({"safe": [], "bare": []}) == "<order><safe></safe></order>"
    assert spelling.read("<order><safe></safe></order>") == {"safe": []}
    assert spelling.spell({"safe": [1], "bare": [1, 2]}) == (
        "<order><safe><item>1</item></safe><bare>1</bare><bare>2</bare></order>"
    )


def test_entries_have_one_value_each() -> None:
    """A grammar can't count keys, so reading refuses the same key twice, no key, and a key that is a field's."""

    class Open(BaseModel):
        """A model with further keys."""

        model_config = ConfigDict(extra="allow")
        name: str

    spelling = spelling_of(Open)
    entry = '<entry key="{}"><string>x</string></entry>'
    document = f"<order><name>n</name>{entry.format('a')}</order>"
    assert spelling.read(document) == {"name": "n", "a": "x"}
    for wrong in (entry.format("a") * 2, entry.format("name"), entry.replace(' key="{}"', "")):
        with pytest.raises(ValueError, match="key"):
            spelling.read(f"<order><name>n</name>{wrong}</order>")


class Space(BaseModel):
    """A name with a space."""

    two_words: Annotated[str, Field(alias="two words")]


class Renamed(BaseModel):
    """The same, with a name for XML."""

    two_words: Annotated[str, Field(alias="two words"), Xml(name="two-words")]


class Reserved(BaseModel):
    """A name that XML keeps for itself."""

    xml: str


class Clash(BaseModel):
    """Two fields with one name."""

    one: Annotated[str, Xml(name="two")]
    two: str


class ListAttribute(BaseModel):
    """A list as an attribute."""

    inner: Annotated[list[str], Xml(attribute=True)]


class NullAttribute(BaseModel):
    """An attribute that can be null."""

    inner: Annotated[str | None, Xml(attribute=True)]


class EntryField(BaseModel):
    """A field called like the elements of other keys."""

    model_config = ConfigDict(extra="allow")
    entry: str


class Below(BaseModel):
    """A wrong name further down."""

    outer: list[Space]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Space, "$.two words"),
        (Reserved, "$.xml"),
        (Clash, "$.one"),
        (ListAttribute, "$.inner"),
        (NullAttribute, "$.inner"),
        (EntryField, "$"),
        (Below, "$defs/Space.two words"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_path(model: type[BaseModel], path: str) -> None:
    """At start-up, with the path of the part that is wrong."""
    with pytest.raises(SchemaError) as refused:
        spelling_of(model)
    assert str(refused.value).startswith(f"{path}:")


def test_names_can_be_given() -> None:
    """A field whose name is none in XML has one by annotation; a bad root name is refused."""
    assert spelling_of(Renamed).spell({"two words": "x"}) == "<order><two-words>x</two-words></order>"
    with pytest.raises(SchemaError, match="1st"):
        spelling_of(Renamed, "1st")


def test_what_the_grammar_leaves_to_validation_is_named() -> None:
    """A pattern with a look-ahead, an unknown format, keys with a pattern."""

    class Loose(BaseModel):
        """What a grammar can't say."""

        look: Annotated[str, Field(json_schema_extra={"pattern": "^(?=a)[a-z]+$"})]
        secret: Annotated[str, Field(json_schema_extra={"format": "password"})]
        keyed: dict[Annotated[str, Field(pattern="^a")], int]

    spelling = spelling_of(Loose)
    assert {what.split(" (")[0] for what in spelling.relaxed} == {
        "$.look: pattern",
        "$.secret: format password",
        "$.secret: format 'password'",
        "$.keyed: patternProperties",
    }
    document = "<order><look>zz&amp;</look><secret>x</secret><keyed></keyed></order>"
    assert accepts(matcher_of(spelling.grammar("")), document)


@pytest.mark.parametrize("bad", [{"id": "x"}, {"other": 1}, {"items": 3}, {"customer": None}, {"gift": "true"}])
def test_values_of_other_types_cannot_be_spelt(bad: Mapping[str, Any]) -> None:
    """The message has the path."""
    with pytest.raises(ValueError, match=r"^\$"):
        ORDERS.spell({**ORDER, **bad})
