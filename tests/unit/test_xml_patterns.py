"""Patterns over values, carried over to what XML writes for them and to XML Schema."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from xmlschema import XMLSchema10

from gristmill.grammar.tree import Text
from gristmill.grammar.xml.formats import FORMATS
from gristmill.grammar.xml.grammar import GrammarBuilder
from gristmill.grammar.xml.layout import Layout, Leaf, Part, Place, Record, Slot
from gristmill.grammar.xml.pattern import Schema, Unsayable, translate
from gristmill.grammar.xml.text import ATTRIBUTE, CONTENT
from tests.unit.xml_values import accepts, matcher_of

PATTERNS = [
    r"^a+$", r"a", r"^a", r"a$", r"^(a|b)c?$", r"^a|b$", r"^[^a]$", r"^.{2}$", r"^[&-<]?[\"'>]{1,2}$", r"^\s\S$",
    r"^\W+$", r"^[\s\d]*$", r"^(?:x|<y>|&)*$", r"^[&<>]{2,3}$", r"^a/b$", r"^[\]\\^-]+$", r"^.*\r$", r"^\x85?a$",
    r"^[^<]*$", "^漢+$", r"(^a$)|b", r"^a*?b+?$", "", "^$",
]  # fmt: skip
ALPHABET = "ab<>&\"'\r\n\t \x85漢1/]\\^-xy"


def field_of(pattern: str) -> LLMatcher:
    """A document with two strings under the pattern, an attribute and a text."""
    leaf = Slot(Leaf((Text({}, pattern=pattern),)))
    parts = (Part("a", "a", Place.ATTRIBUTE, leaf, required=True), Part("t", "t", Place.TEXT, leaf, required=True))
    builder = GrammarBuilder(Layout(Slot(Record(parts)), {}), "")
    return matcher_of(builder.rules.grammar(builder.element("r", Slot(Record(parts)))))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_over_escapes(pattern: str) -> None:
    """The grammar takes a written value exactly where the value fits the pattern; so does the XSD."""
    matcher = field_of(pattern)
    facet = translate(pattern, Schema())
    meant = re.compile(re.sub(r"\$(?=$|\)|\|)", r"\\Z", pattern))
    restriction = f'<xs:restriction base="xs:string"><xs:pattern value="{ATTRIBUTE.escape(facet)}"/></xs:restriction>'
    element = f'<xs:element name="r"><xs:simpleType>{restriction}</xs:simpleType></xs:element>'
    xsd = XMLSchema10(f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{element}</xs:schema>')

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(st.text(ALPHABET, max_size=3) | st.from_regex(meant).filter(lambda s: set(s) <= set(ALPHABET)))
    def agrees(value: str) -> None:
        fits = meant.search(value) is not None
        text, attribute = CONTENT.escape(value), ATTRIBUTE.escape(value)
        assert accepts(matcher, f'<r a="{attribute}">{text}</r>') is fits
        assert xsd.is_valid(f"<r>{text}</r>") is fits

    agrees()


@pytest.mark.parametrize("pattern", ["(?=a)b", r"a\b", r"(a)\1", "a^b", "(?i)a", "(?!x)", "["])
def test_what_cannot_be_carried_over_is_said(pattern: str) -> None:
    """Look-arounds, borders, references, flags, and what is no pattern."""
    with pytest.raises(Unsayable):
        translate(pattern, Schema())


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "date",
            ["2024-02-29", "2000-02-29", "1999-12-31"],
            ["2024-02-30", "2023-02-29", "1900-02-29", "2024-13-01", "0000-01-01", "24-1-1", "2023-04-31"],
        ),
        ("time", ["10:00:00", "23:59:59.123456Z"], ["24:00:00", "10:00", "10:00:00+15:00"]),
        ("date-time", ["2024-01-01T10:00:00+05:30"], ["2024-01-01 10:00:00", "2024-01-01"]),
        ("duration", ["PT0S", "-P1DT2H", "P3DT7H3.5S"], ["P", "PT", "1D", "P1DT"]),
        ("uuid", ["12345678-1234-1234-1234-1234567890ab"], ["12345678123412341234123456789012"]),
        ("ipv4", ["0.0.0.0", "255.1.2.3"], ["256.1.1.1", "1.2.3"]),
        ("email", ["a.b+c@example.org"], ["a@", "@b", "a b@c"]),
        ("uri", ["https://example.org/?a=1&b=2"], ["example", "http://a b"]),
        ("hostname", ["a-b.example.org"], ["-a", "a..b"]),
    ],
)
def test_formats(name: str, good: list[str], bad: list[str]) -> None:
    """What each format lets the model write."""
    leaf = Slot(Leaf((Text({}, format=name),)))
    builder = GrammarBuilder(Layout(leaf, {}), "")
    matcher = matcher_of(builder.rules.grammar(builder.element("r", leaf)))
    assert [value for value in [*good, *bad] if accepts(matcher, f"<r>{CONTENT.escape(value)}</r>")] == good
    assert name in FORMATS
