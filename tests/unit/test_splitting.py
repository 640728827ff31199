"""Long texts: where they are cut, and how the answers to their parts become one."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gristmill import Options, SchemaError, Split
from gristmill.engine.splitting import cut, merge
from gristmill.grammar.constraint import constraint_for
from gristmill.schema import Schema


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.text(alphabet="ab. \n", max_size=200), st.integers(5, 40), st.integers(0, 4))
def test_parts_cover_the_text_and_overlap(text: str, most: int, overlap: int) -> None:
    """No part is longer than asked, none begins behind the end of the one before, and together they are the text."""
    parts = cut(text, most, overlap)
    assert parts[0][0] == 0
    assert parts[-1][1] == len(text)
    assert all(end - start <= most for start, end in parts)
    assert all(before[0] < after[0] <= before[1] for before, after in itertools.pairwise(parts))
    assert all(before[1] - after[0] <= overlap for before, after in itertools.pairwise(parts))


def pieces(text: str, most: int, overlap: int) -> list[str]:
    """The texts of the parts."""
    return [text[start:end] for start, end in cut(text, most, overlap)]


def test_parts_end_with_sentences() -> None:
    """A paragraph's end is better than a sentence's, and that better than a word's."""
    assert pieces("One two. Three four. Five", 21, 0) == ["One two. Three four. ", "Five"]
    assert pieces("One two four.\n\nSix. Seven", 20, 0) == ["One two four.\n\n", "Six. Seven"]
    assert pieces("これは一つ。これは二つ。これ", 12, 0) == ["これは一つ。これは二つ。", "これ"]
    assert pieces("x" * 10, 4, 1) == ["xxxx", "xxxx", "xxxx"]


@pytest.mark.parametrize(
    ("rule", "merged"),
    [
        ("first", "b"),
        ("longest", "ccc"),
        ("most_frequent", "a"),
        ("union", "b"),
        (lambda values: "+".join(values), "b+a+ccc+a"),
        (None, "b"),
    ],
)
def test_rules(rule: object, merged: str) -> None:
    """Each rule makes one value of those that the parts gave; null and absent ones do not count."""
    values = [{"x": None}, {"x": "b"}, {"x": "a"}, {}, {"x": "ccc"}, {"x": "a"}]
    assert merge(values, Split(merge={"x": rule})) == {"x": merged}  # type: ignore[dict-item]


def test_lists_become_their_union() -> None:
    """Without a rule the items of all parts stand in order, each once; a field that no part has a value for is null."""
    values = [{"tags": ["a", "b"], "n": 1, "z": None}, {"tags": ["b", "c"], "n": 2}]
    assert merge(values, Split()) == {"tags": ["a", "b", "c"], "n": 1, "z": None}


def test_a_rule_that_there_is_not_is_refused() -> None:
    """The message names the field, the value and what is possible."""
    with pytest.raises(SchemaError, match="Split: x='last' is no rule; use first, longest"):
        Split(merge={"x": "last"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="overlap=9 leaves nothing new"):
        cut("text" * 9, 5, 9)


def test_a_rule_for_a_field_that_there_is_not_is_refused() -> None:
    """A misspelt field would be merged by the default rule in silence."""

    class Meeting(BaseModel):
        title: str = ""

    schema = Schema("meeting", Meeting, options=Options(split=Split(merge={"titel": "first"})))
    with pytest.raises(SchemaError, match="Split merges 'titel', which is no field; did you mean 'title'"):
        constraint_for(schema)
