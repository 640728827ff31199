"""Every keyword of JSON Schema is kept by grammar and validation together, and the docs say by which of the two."""

from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from gristmill.json_checks import FORMATS
from tests.unit.json_schema_cases import (
    BOTH,
    CASES,
    NOT_CHECKED,
    Case,
    by_grammar,
    by_validation,
    schema_of_case,
    table,
)

PAIRS = [pytest.param(case, draft, id=f"{case.keyword}-{draft}") for case in CASES for draft in case.drafts]
DOCS = Path(__file__).parents[2] / "docs" / "json-schema.md"


@pytest.mark.parametrize(("case", "draft"), PAIRS)
def test_what_fits_can_be_written_and_is_accepted(case: Case, draft: str, tmp_path: Path) -> None:
    """A value that fits can be written under the grammar, and validation gives it back unchanged."""
    schema = schema_of_case(case, draft, tmp_path)
    assert [value for value in case.fits if not by_grammar(schema, value)] == []
    assert [value for value in case.fits if not by_validation(schema, value)] == []


@pytest.mark.parametrize(("case", "draft"), PAIRS)
def test_what_does_not_fit_is_refused(case: Case, draft: str, tmp_path: Path) -> None:
    """Validation refuses whatever does not fit, and what the grammar lets through is named by path."""
    from gristmill.grammar.constraint import constraint_for

    schema = schema_of_case(case, draft, tmp_path)
    assert [value for value in case.fails if by_validation(schema, value)] == []
    let_through = [value for value in case.fails if by_grammar(schema, value)]
    relaxed = constraint_for(schema).relaxed
    assert not let_through or relaxed
    assert all(note.startswith("$") and ": " in note for note in relaxed)


def test_all_keywords_and_formats_are_there() -> None:
    """No keyword that the standard's validators know lacks a case, and no format that is asserted."""
    told = {word.strip(",:") for case in CASES for word in case.keyword.split() if not word.startswith("(")}
    for validator, draft in ((Draft202012Validator, "2020-12"), (Draft7Validator, "7")):
        there = {w.strip(",:") for c in CASES if draft in c.drafts for w in c.keyword.split()}
        assert validator.VALIDATORS.keys() - there - {"if"} == set(), draft
    assert set(FORMATS) <= told
    assert not set(NOT_CHECKED) & set(FORMATS)


def test_the_table_in_the_docs_is_what_happens(tmp_path: Path) -> None:
    """The docs' table is the one that the cases make; `python -m tests.unit.json_schema_cases` prints it."""
    assert table(tmp_path) in DOCS.read_text()
    assert BOTH == ("2020-12", "7")
