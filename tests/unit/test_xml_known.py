"""What a record brings to the XML grammar: its text, and what is known of its answer; and answers that were cut."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gristmill.grammar.rules import MISSING, Fixed, Known
from gristmill.grammar.tree import Object, tree_of
from gristmill.grammar.xml.names import xml_json_schema
from gristmill.grammar.xml.reading import parse
from gristmill.grammar.xml.spelling import XmlSpelling
from gristmill.verbatim import Verbatim
from tests.unit.test_xml_round_trips import SCHEMAS, TEXT, Attributes
from tests.unit.test_xml_spelling import DOCUMENT, ORDER, ORDERS, Order, spelling_of
from tests.unit.xml_values import accepts, matcher_of, values


@pytest.mark.parametrize(
    ("known", "accepted", "refused"),
    [
        (Fixed(ORDER), {}, {"id": 8}),
        ({"id": Fixed(7)}, {"customer": "z"}, {"id": 8}),
        ({"note": Fixed(MISSING)}, {}, {"note": "n"}),
        ({"note": Fixed("n")}, {"note": "n"}, {}),
        ({"tags": (Fixed("a"), None)}, {"tags": ["a", "b"]}, {"tags": ["a"]}),
        ({"tags": Fixed([])}, {}, {"tags": ["a"]}),
        ({"items": ({"price": Fixed("1")},)}, {"items": [{"name": "q", "price": "1"}]}, {}),
        ({"gift": Fixed(True)}, {"gift": True}, {"gift": None}),
    ],
)
def test_what_is_known_is_forced(known: Known, accepted: Mapping[str, Any], refused: Mapping[str, Any]) -> None:
    """The grammar takes what agrees with it and nothing else."""
    matcher = matcher_of(ORDERS.grammar("", known))
    assert accepts(matcher, ORDERS.spell({**ORDER, **accepted}))
    assert not accepts(matcher, ORDERS.spell({**ORDER, **refused}))


def test_known_parts_choose_the_alternative() -> None:
    """Of a union only the alternatives that have what is known are left."""

    class Cat(BaseModel):
        """An alternative."""

        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        """Another alternative."""

        kind: Literal["dog"]
        name: str

    class Owner(BaseModel):
        """A union and a dictionary."""

        pet: Cat | Dog
        by_key: dict[str, int] = {}

    spelling = spelling_of(Owner)
    dog, cat = {"pet": {"kind": "dog", "name": "x"}}, {"pet": {"kind": "cat", "lives": 9}}
    assert spelling.spell(dog) == "<order><pet><Dog><kind>dog</kind><name>x</name></Dog></pet></order>"
    matcher = matcher_of(spelling.grammar("", {"pet": {"kind": Fixed("dog")}}))
    assert accepts(matcher, spelling.spell(dog))
    assert not accepts(matcher, spelling.spell(cat))
    keyed = matcher_of(spelling.grammar("", {"by_key": {"a": Fixed(1)}}))
    assert accepts(keyed, spelling.spell({**cat, "by_key": {"a": 1, "b": 2}}))
    assert not accepts(keyed, spelling.spell({**cat, "by_key": {"b": 2}}))


class Tied(BaseModel):
    """Strings from the text."""

    who: Annotated[str, Verbatim()]
    perhaps: Annotated[str, Verbatim()] | None = None
    all: Annotated[list[str], Verbatim(ignore_case=True, collapse_whitespace=True)]


def test_verbatim_strings_are_runs_of_the_texts_words() -> None:
    """With escapes in the text; cut words, other words and white space at the ends are refused."""
    matcher = matcher_of(spelling_of(Tied).grammar("Tom & Jerry <at>\r\nhome"))

    def takes(who: str, *more: str) -> bool:
        return accepts(matcher, spelling_of(Tied).spell({"who": who, "all": list(more)}))

    assert takes("Tom & Jerry")
    assert takes("<at>\r\nhome", "TOM & JERRY", "<at> home")
    assert not takes("Tom & Jerr")
    assert not takes("Jane")
    assert not takes(" Jerry")
    assert not takes("<at>\r\n")
    assert not takes("Tom", "tom jerry")


def test_of_a_text_without_words_optional_verbatim_fields_are_absent() -> None:
    """And lists empty; a required string is the empty one, which validation judges."""
    matcher = matcher_of(spelling_of(Tied).grammar(" \n\x01"))
    assert accepts(matcher, "<order><who></who></order>")
    assert not accepts(matcher, "<order><who></who><perhaps></perhaps></order>")
    assert not accepts(matcher, "<order><who></who><all></all></order>")


def test_cut_documents_are_read_as_far_as_they_go() -> None:
    """At any place; what is there can be spelt again, and all but the last field is as in the whole."""
    for end in range(len(DOCUMENT)):
        value = ORDERS.partial(DOCUMENT[:end])
        if value is not None:
            assert parse(ORDERS.spell(value)).name == "order"
            complete = list(value)[:-1]
            assert [value[key] for key in complete] == [ORDER[key] for key in complete]
    assert ORDERS.partial(DOCUMENT[:10]) is None
    cut = DOCUMENT[: DOCUMENT.index(" sent</state>")]
    assert ORDERS.partial(cut) == {"id": 7, "customer": ORDER["customer"]}
    assert ORDERS.partial(DOCUMENT[: DOCUMENT.index("</name><price>2")]) == {
        **{key: ORDER[key] for key in ("id", "customer", "state")},
        "items": [{"name": "x", "price": "1.50"}, {"name": "y"}],
    }


def test_values_that_break_bounds_are_spelt_but_not_accepted() -> None:
    """A refused answer can be shown to the model again; the grammar would not let it be written."""
    document = ORDERS.spell({**ORDER, "id": 100})
    assert 'id="100"' in document
    assert not accepts(matcher_of(ORDERS.grammar("")), document)
    with pytest.raises(ValidationError):
        Order.model_validate(ORDERS.read(document))


@pytest.mark.parametrize(
    ("model", "absent"),
    # With absent fields spelt null, optional attributes are refused.
    [(model, absent) for model in SCHEMAS for absent in ("omitted", "null") if (model, absent) != (Attributes, "null")],
)
def test_any_part_of_an_answer_can_be_known(model: type[BaseModel], absent: str) -> None:
    """With some of the fields known, absent ones too, the grammar takes the whole answer, and not one without them."""
    tree = tree_of(xml_json_schema(model), absent=absent)
    spelling = XmlSpelling(tree, "answer")
    root = tree.resolved(tree.root)
    names = [field.name for field in root.fields] if isinstance(root, Object) else []

    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(values(tree, tree.root, TEXT), st.lists(st.sampled_from(names)) if names else st.just([]))
    def forced(value: Any, chosen: list[str]) -> None:
        document = spelling.spell(value)
        known = {name: Fixed(value.get(name, MISSING)) for name in chosen} or Fixed(value)
        assert accepts(matcher_of(spelling.grammar(TEXT, known)), document), document
        required = [name for name in chosen if name in value]
        if required:
            without = spelling.spell({name: part for name, part in value.items() if name != required[0]})
            if without != document:
                assert not accepts(matcher_of(spelling.grammar(TEXT, known)), without)

    forced()
