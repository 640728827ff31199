"""Strings tied to the record's words: what the grammar lets through, and where it is found again."""

from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field

from gristmill import SchemaError, Verbatim
from gristmill.grammar.constraint import Constraint, constraint_for
from gristmill.schema import schema_of
from gristmill.spans import spans_of
from gristmill.verbatim import find, words_of

TOKENIZER = LLTokenizer("byte")
TEXTS = [
    'a"b" c\\d\ne\tf',
    "<a> & 'b' ]]>",
    "東京タワーへ行く。明日",
    "see \U0001f469\u200d\U0001f467 and \U0001f44d\U0001f3fd at \U0001f1e9\U0001f1ea!",
    "O'Brien, Café\u00a0Noir 3x4",
]


class Note(BaseModel):
    """A note."""

    title: Annotated[str, Verbatim()]


class Letters(BaseModel):
    """Parts of words."""

    part: Annotated[str, Verbatim(unit="characters")]


class Loose(BaseModel):
    """A name, in any case, on one line."""

    name: Annotated[str, Verbatim(ignore_case=True, collapse_whitespace=True)]


class Tagged(BaseModel):
    """Several."""

    tags: list[Annotated[str, Verbatim()]] = []
    more: Annotated[list[str], Verbatim()] = []
    inner: Note | None = None


def accepts(constraint: Constraint, text: str, value: object) -> bool:
    """Whether the grammar for a text lets a JSON value be written."""
    matcher = LLMatcher(TOKENIZER, constraint.grammar(text))
    assert not matcher.is_error(), matcher.get_error()
    tokens = TOKENIZER.tokenize_str(constraint.spelling.spell(value))
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


@pytest.mark.parametrize("text", TEXTS)
def test_every_run_of_words_can_be_written_and_nothing_else(text: str) -> None:
    """Each run of units that neither begins nor ends with white space is accepted; broken words and blanks are not."""
    constraint = constraint_for(schema_of(Note))
    words = words_of(text, Verbatim())
    places = [i for i, space in enumerate(words.spaces) if not space]
    runs = {text[words.starts[a] : words.ends[b]] for a in places for b in places if a <= b}
    for value in sorted(runs):
        assert accepts(constraint, text, {"title": value}), value
    for value in ("", " ", *(f" {run}" for run in runs), *(f"{run}\n" for run in runs), "never there"):
        assert not accepts(constraint, text, {"title": value}), value


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.text(alphabet=st.sampled_from('ab \n"\\&<é漢👍\u0301'), min_size=1, max_size=12), st.data())
def test_a_run_is_found_where_it_was_taken_from(text: str, data: st.DataObject) -> None:
    """Any run is accepted by the grammar, and among the places where it is found is the one it was taken from."""
    words = words_of(text, Verbatim())
    places = [i for i, space in enumerate(words.spaces) if not space]
    if not places:
        assert find(text, text, Verbatim()) == []
        return
    first = data.draw(st.sampled_from(places))
    last = data.draw(st.sampled_from([i for i in places if i >= first]))
    start, end = words.starts[first], words.ends[last]
    assert accepts(constraint_for(schema_of(Note)), text, {"title": text[start:end]})
    assert (start, end) in find(text[start:end], text, Verbatim())


def test_characters_let_a_value_begin_inside_a_word() -> None:
    """With the unit `characters` a part of a word is a value, but never a part of one emoji."""
    constraint = constraint_for(schema_of(Letters))
    assert accepts(constraint, "order KX-20418", {"part": "204"})
    assert not accepts(constraint_for(schema_of(Note)), "order KX-20418", {"title": "204"})
    assert not accepts(constraint, "a 👍🏽", {"part": "👍"})


def test_case_and_white_space_can_be_set_aside() -> None:
    """A value may be spelt in another case and on one line, and is found all the same."""
    constraint = constraint_for(schema_of(Loose))
    text = "in NEW\n  york today"
    for value in ("NEW york", "new york", "NEW YORK", "New York"):
        assert accepts(constraint, text, {"name": value})
        assert spans_of(constraint.tree, {"name": value}, text).places == {"name": (3, 13)}
    assert not accepts(constraint, text, {"name": "nEW york"})


def test_a_value_that_stands_twice_has_its_first_place_and_a_flag() -> None:
    """Ambiguous repeats are resolved to the first one, paths name items, and words inside of words do not count."""
    constraint = constraint_for(schema_of(Tagged))
    output = {"tags": ["an", "ant"], "more": ["b"], "inner": {"title": "b"}}
    text = "ant an b an"
    assert accepts(constraint, text, output)
    spans = spans_of(constraint.tree, output, text)
    assert spans.places == {"tags[0]": (4, 6), "tags[1]": (0, 3), "more[0]": (7, 8), "inner.title": (7, 8)}
    assert spans.ambiguous == ("tags[0]",)
    assert spans.as_json()["spans"]["tags[1]"] == [0, 3]


def test_a_text_without_words_leaves_optional_fields_out() -> None:
    """Where there is nothing to copy, a field that may be absent is, and one that must be there can't be written."""
    assert accepts(constraint_for(schema_of(Tagged)), " \n ", {})
    assert not accepts(constraint_for(schema_of(Note)), " \n ", {"title": " "})


class Short(BaseModel):
    """A few characters."""

    name: Annotated[str, Verbatim(), Field(min_length=3, max_length=6)]


def test_lengths_are_kept() -> None:
    """They count characters of the value, whatever these look like when escaped."""
    constraint = constraint_for(schema_of(Short))
    text = 'an "ox" or "yak" \\"\\" east'
    for value, fits in (("an", False), ('"ox"', True), ('"yak"', True), ('"ox" or', False), ('\\"\\" e', False)):
        assert accepts(constraint, text, {"name": value}) is fits, value
    assert accepts(constraint, text, {"name": '\\"\\"'})


def test_verbatim_on_a_number_is_refused() -> None:
    """The annotation belongs on strings; anything else is a mistake that is named."""

    class Wrong(BaseModel):
        count: Annotated[int, Verbatim()]

    with pytest.raises(SchemaError, match="Verbatim stands on a field that is no string"):
        constraint_for(schema_of(Wrong))
