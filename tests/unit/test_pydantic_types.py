"""Every type that Pydantic prints as JSON Schema becomes a grammar, or is refused by path before a run begins."""

import dataclasses
import enum
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypeVar

import pydantic as p
import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from gristmill.errors import SchemaError
from gristmill.grammar.constraint import constraint_for
from gristmill.options import Options
from gristmill.schema import Schema, dump, written

TOKENIZER = LLTokenizer("byte")


class Mixed(enum.Enum):
    """Values of several types."""

    WORD = "x"
    NUMBER = 2
    HALF = 1.5
    NOTHING = None


class Level(enum.IntEnum):
    """Whole numbers by name."""

    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    """Words in several scripts."""

    HAPPY = '开心"é'
    SAD = "難過😢"


class Share(float, enum.Enum):
    """Numbers with a point that need none."""

    ALL = 1.0
    HALF = 0.5


class Typed(TypedDict):
    """A dictionary with known keys."""

    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    """A tuple with names."""

    a: int
    b: str = "z"


@dataclasses.dataclass
class Plain:
    """A dataclass of the standard library."""

    a: int
    b: list[str] = dataclasses.field(default_factory=list)


class Cat(BaseModel):
    """One of two pets."""

    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    """The other pet."""

    kind: Literal["dog"]
    name: str


class Node(BaseModel):
    """A tree."""

    value: int
    kids: list["Node"] = []


class Chain(BaseModel):
    """A list of links."""

    value: int
    next: Optional["Chain"] = None


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    """One thing of a kind."""

    held: T


class Named(BaseModel):
    """Fields that are read under one name and written under another."""

    x: int = Field(alias="X")
    y: int = Field(validation_alias="yIn", serialization_alias="yOut")

    @p.computed_field
    @property
    def total(self) -> int:
        return self.x + self.y


PET = Annotated[Cat | Dog, Field(discriminator="kind")]
DEEP = {"value": 1, "kids": [{"value": 2, "kids": [{"value": 3, "kids": [{"value": 4, "kids": [{"value": 5}]}]}]}]}

TYPES: list[tuple[Any, Any]] = [
    (int, 5),
    (p.PositiveInt, 3),
    (p.StrictInt, 3),
    (Annotated[int, Field(multiple_of=3, gt=0, lt=10)], 6),
    (float, 1.5),
    (float, 1e-7),
    (float, 1e300),
    (p.FiniteFloat, 1.0),
    (p.NonNegativeFloat, 0.00001),
    (Annotated[float, Field(multiple_of=0.25)], 1.5),
    (Annotated[float, Field(multiple_of=3)], 6.0),
    (bool, True),
    (None, None),
    (Decimal, "1.50"),
    (Annotated[Decimal, Field(max_digits=5, decimal_places=2, ge=0)], "12.30"),
    (str, 'a\x7f\x00\x1f\u2028"\\/é😀「、。」'),
    (Annotated[str, Field(pattern=r"\bfoo\b")], "a foo"),
    (Annotated[str, Field(pattern="b", min_length=2, max_length=4)], "abc"),
    (Annotated[str, Field(pattern="^.{600}$")], "x" * 600),
    (Annotated[str, p.StringConstraints(to_lower=True, strip_whitespace=True, min_length=1)], "abc"),
    (bytes, b"abc"),
    (p.Base64Bytes, b"YWJj"),
    (p.Base64Str, "YWJj"),
    (date, date(2020, 2, 29)),
    (p.PastDate, "2020-01-01"),
    (datetime, datetime(2020, 1, 1)),
    (datetime, datetime(2020, 1, 1, 1, 2, 3, 45, tzinfo=UTC)),
    (p.NaiveDatetime, datetime(2020, 1, 1)),
    (p.AwareDatetime, "2020-01-01T00:00:00+02:00"),
    (clock, clock(1, 2)),
    (clock, "01:02:03.5Z"),
    (timedelta, timedelta(days=-1, seconds=3.5)),
    (timedelta, timedelta(0)),
    (timedelta, timedelta(days=400, hours=3)),
    (uuid.UUID, uuid.UUID(int=5)),
    (p.UUID4, "9c5b94b1-35ad-49bb-b118-8e8fc24abf80"),
    (IPv4Address, "192.0.2.1"),
    (IPv6Address, "::1"),
    (IPv4Network, "192.0.2.0/24"),
    (p.IPvAnyAddress, "::1"),
    (Path, "/a/b"),
    (p.AnyUrl, "http://a.b/c?d=e#f"),
    (p.HttpUrl, "https://example.com/"),
    (p.PostgresDsn, "postgres://u:p@h:5432/db"),
    (p.ByteSize, 100),
    (Mixed, 1.5),
    (Mixed, None),
    (Level, 1),
    (Mood, "難過😢"),
    (Share, 1.0),
    (Literal["a", 1, None, True], True),
    (Literal["a", 1, None, True], None),
    (int | None, None),
    (int | str | None, "x"),
    (PET, {"kind": "cat", "lives": 9}),
    (Cat | Dog, {"kind": "dog", "name": "x"}),
    (list[PET], [{"kind": "dog", "name": "x"}, {"kind": "cat", "lives": 9}]),
    (Typed, {"a": 1}),
    (Typed, {"a": 1, "b": "x"}),
    (Pair, Pair(1, "b")),
    (Plain, Plain(1, ["x"])),
    (set[int], {1, 2}),
    (frozenset[str], ["a"]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2)),
    (tuple[()], ()),
    (list, [1, "a"]),
    (p.conlist(int, min_length=1, max_length=3), [1]),
    (Sequence[int], [1]),
    (dict, {"a": 1}),
    (dict[int, float], {1: 2.0}),
    (dict[Annotated[str, Field(pattern="^a")], int], {"ab": 1}),
    (dict[Literal["x", "y"], int], {"x": 1}),
    (dict[date, int], {"2020-01-01": 1}),
    (Annotated[dict[str, int], Field(min_length=1, max_length=2)], {"a": 1}),
    (Mapping[str, int], {"a": 1}),
    (p.Json[list[int]], "[1, 2]"),
    (p.JsonValue, {"a": [None]}),
    (Any, {"a": [1]}),
    (object, 3),
    (Node, DEEP),
    (Chain, {"value": 1, "next": {"value": 2, "next": {"value": 3}}}),
    (Box[int], {"held": 1}),
    (Box[list[str]], {"held": ["a"]}),
    (Named, {"X": 1, "yIn": 2}),
    (p.RootModel[list[int]], [1, 2]),
    (complex, "1+2j"),
]


@pytest.mark.parametrize("absent", ["omitted", "null"])
@pytest.mark.parametrize(("kind", "sample"), TYPES, ids=[f"{i}-{kind}"[:60] for i, (kind, _) in enumerate(TYPES)])
def test_a_type_can_be_written_and_read(kind: Any, sample: Any, absent: Literal["omitted", "null"]) -> None:
    """A sample, as a required and as an optional field, is accepted by the grammar, and reading it gives it back."""
    model = p.create_model("Model", here=(kind, ...), maybe=(Optional[kind], None))  # noqa: UP045 - not all kinds have `|`
    constraint = constraint_for(Schema("model", model, options=Options(absent=absent)))
    for values in ({"here": sample}, {"here": sample, "maybe": sample}, {"here": sample, "maybe": None}):
        instance = model.model_validate(values)
        text = constraint.spell(written(instance))
        matcher = LLMatcher(TOKENIZER, constraint.grammar(""))
        tokens = TOKENIZER.tokenize_str(text)
        taken = matcher.try_consume_tokens(tokens)
        assert (text.encode()[taken:], matcher.is_accepting()) == (b"", True)
        assert model.model_validate_json(text) == instance


def test_a_root_may_be_anything() -> None:
    """A class whose root is a list, a union or itself is a schema too."""
    for model, value in (
        (p.RootModel[list[int]], [1, 2]),
        (p.RootModel[PET], {"kind": "cat", "lives": 9}),
        (Node, DEEP),
    ):
        constraint = constraint_for(Schema("root", model))
        text = constraint.spell(written(model.model_validate(value)))
        matcher = LLMatcher(TOKENIZER, constraint.grammar(""))
        assert matcher.try_consume_tokens(TOKENIZER.tokenize_str(text)) == len(text)
        assert matcher.is_accepting()


def test_what_is_written_is_what_is_read() -> None:
    """The model writes the names that validation reads and no computed fields; the outbox shows what is serialized."""
    value = Named.model_validate({"X": 1, "yIn": 2})
    assert written(value) == {"X": 1, "yIn": 2}
    assert dump(value) == {"X": 1, "yOut": 2, "total": 3}
    outer = Box[list[Named]](held=[value])
    assert written(outer) == {"held": [{"X": 1, "yIn": 2}]}


class Endless(BaseModel):
    """Always one more."""

    value: int
    next: "Endless"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Annotated[int, Field(ge=5, le=3)], r"\$.x: no value is possible here: minimum \(5\) is greater than maximum"),
        (
            Annotated[str, Field(max_length=3, pattern="^.{5}$")],
            r"\$.x: no value is possible here: its parts exclude each other \(pattern .*, maxLength 3\)",
        ),
        (list[Annotated[str, Field(min_length=4, max_length=3)]], r"\$.x\[\]: no value is possible here"),
        (Annotated[list[int], Field(min_length=4, max_length=3)], r"\$.x: no value is possible here: minItems"),
        (dict[str, Annotated[int, Field(gt=1, lt=2)]], r"\$.x.\*: no value is possible here"),
        (Box[Annotated[int, Field(ge=5, le=3)]], r"\$.x.held: no value is possible here"),
        (
            Annotated[str, Field(json_schema_extra={"enum": []})],
            r"\$.x: no value is possible here, the enumeration has",
        ),
        (
            Annotated[str, Field(json_schema_extra={"allOf": [{"type": "integer"}]})],
            r"\$.x: .* types exclude each other",
        ),
        (Endless, r"\$.x: 'Endless' always holds another of its kind, so no value ever ends; make a field on the way"),
        (p.SecretStr, r"\$.x: a secret comes out as asterisks, so that its value is lost; use str"),
        (
            Annotated[str, Field(json_schema_extra={"$ref": "#/$defs/No"})],
            r"has no JSON Schema: '#/\$defs/No'",
        ),
        (type, r"has no JSON Schema: "),
    ],
)
def test_what_can_not_be_is_refused_by_path(kind: Any, message: str) -> None:
    """A part that accepts nothing, never ends or can't be printed is refused before a run begins, with its path."""
    model = p.create_model("Model", x=(kind, ...))
    with pytest.raises(SchemaError, match=message):
        constraint_for(Schema("model", model))


@pytest.mark.parametrize(
    ("kind", "relaxed"),
    [
        (set[int], ["$.x: uniqueItems"]),
        (list[set[int]], ["$.x[]: uniqueItems"]),
        (Annotated[str, Field(pattern=r"\bfoo\b")], ["$.x: pattern"]),
        (bytes, ["$.x: format binary"]),
        (Annotated[float, Field(multiple_of=0.25)], ["$.x: multipleOf"]),
        (Annotated[float, Field(multiple_of=0.01)], []),
        (dict[Literal["x", "y"], int], ["$.x: propertyNames"]),
        (Box[set[int]], ["$.x.held: uniqueItems"]),
        (PET, []),
        (Cat | Dog, []),
        (Annotated[int, Field(json_schema_extra={"oneOf": [{"minimum": 1}, {"maximum": 5}]})], ["$.x: oneOf"]),
        (datetime, []),
    ],
)
def test_what_the_grammar_leaves_is_named(kind: Any, relaxed: list[str]) -> None:
    """What the engine refuses is dropped and named by path; nothing else is."""
    model = p.create_model("Model", x=(kind, ...))
    assert list(constraint_for(Schema("model", model)).relaxed) == relaxed


@pytest.mark.timeout(30)
def test_many_optional_nested_fields_compile_at_once() -> None:
    """Six levels of forty optional fields each become a grammar instead of a start that never ends."""
    inner: Any = str
    for level in range(6):
        fields: dict[str, Any] = {f"f{i}": ((inner if i == 0 else str) | None, None) for i in range(40)}
        inner = p.create_model(f"Level{level}", **fields)
    constraint = constraint_for(Schema("many", inner))
    assert LLMatcher(TOKENIZER, constraint.grammar("")).consume_token(ord("{"))
