"""The constraint of a schema: its tree in one of the two spellings, compiled once before anything is run with it."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from llguidance import LLMatcher, LLTokenizer
from pydantic import ValidationError

from gristmill.errors import SchemaError
from gristmill.grammar.closing.dialect import dialect
from gristmill.grammar.json_spelling import JsonSpelling, spell_strictly
from gristmill.grammar.rules import Known, Rules
from gristmill.grammar.tree import Object, Tree, fitted, tree_of
from gristmill.grammar.xml.names import brings_mapping, xml_json_schema
from gristmill.grammar.xml.spelling import XmlSpelling
from gristmill.presets import nearest
from gristmill.references import parts
from gristmill.schema import Schema, written

if TYPE_CHECKING:
    from pydantic_xml import BaseXmlModel

log = logging.getLogger(__name__)


class Spelling(Protocol):
    """One way to write a tree."""

    @property
    def relaxed(self) -> tuple[str, ...]:
        """What its grammar leaves to validation, by path."""

    def spell(self, value: Any) -> str:
        """A JSON value as the grammar has it. Raises ValueError where it can't be written."""

    def read(self, text: str) -> Any:
        """The JSON value of a text. Raises ValueError where it is malformed."""

    def partial(self, text: str) -> Any:
        """The JSON value of what is there of a text that was cut, or None where there is nothing yet."""

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for one record, as `LLMatcher` takes it."""


@dataclass(frozen=True)
class Constraint:
    """What answers of a schema may look like.

    `format` is "json" or "xml". `per_record`: the grammar depends on the record's text. `relaxed` names, by path, what
    validation has to enforce.
    """

    tree: Tree
    spelling: Spelling
    per_record: bool
    relaxed: tuple[str, ...]
    format: str

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for one record, as `LLMatcher` takes it."""
        return self.spelling.grammar(source_text, known)

    def spell(self, value: Any) -> str:
        """A JSON value as the grammar has it, absent fields as the schema's options want them."""
        return self.spelling.spell(fitted(self.tree, value))


@lru_cache(maxsize=256)
def constraint_for(schema: Schema) -> Constraint:
    """Build the constraint of a schema and compile it once.

    Raises:
        SchemaError: the grammar engine refuses it; the message says what it refuses.
    """
    printed = schema.json_schema
    try:
        _refuse_secrets(schema, printed)
        tree, spelling = _spelt(schema)
        _refuse_unknown_merges(schema, tree)
    except SchemaError as error:
        raise SchemaError(f"schema {schema.name!r}: {error}") from error
    except RecursionError as error:
        message = f"schema {schema.name!r} refers to itself without a part between, or is nested too deep"
        raise SchemaError(f"{message}; take a level out") from error
    refused, notes = LLMatcher.validate_grammar_with_warnings(spelling.grammar("a", None))
    if refused:
        raise SchemaError(
            f"schema {schema.name!r} can't be made a grammar: {notes[0].splitlines()[0]}; change the field's type"
        )
    relaxed = (*spelling.relaxed, *(f"$: {note}" for note in notes))
    return Constraint(tree, spelling, tree.ties(tree.root), relaxed, _format(schema))


def _format(schema: Schema) -> str:
    return schema.options.format or ("xml" if brings_mapping(schema.model) else "json")


def _spelt(schema: Schema) -> tuple[Tree, Spelling]:
    options, as_xml = schema.options, _format(schema) == "xml"
    tree = tree_of(
        xml_json_schema(schema.model) if as_xml else schema.json_schema,
        absent=options.absent,
        max_string=options.max_string,
        verbatim=options.verbatim,
        refuses=refuses,
    )
    if not as_xml:
        return tree, JsonSpelling(tree, options.separators)
    if brings_mapping(schema.model):
        # pydantic-xml is an extra: who has such a class has it installed.
        from gristmill.grammar.xml.model_spelling import ModelSpelling

        return tree, ModelSpelling(cast("type[BaseXmlModel]", schema.model), tree)
    return tree, XmlSpelling(tree, schema.name)


def _refuse_unknown_merges(schema: Schema, tree: Tree) -> None:
    root = tree.resolved(tree.root)
    known = [field.name for field in root.fields] if isinstance(root, Object) else []
    for name in schema.options.split.merge if schema.options.split else ():
        if known and name not in known:
            raise SchemaError(f"OPTIONS: Split merges {name!r}, which is no field; {nearest(name, known)}")


def _refuse_secrets(schema: Schema, printed: Mapping[str, Any]) -> None:
    if "$schema" in printed or not any(part.get("format") == "password" for _, part in parts(printed)):
        return
    for path, part in parts(schema.model.model_json_schema(mode="serialization")):
        if part.get("format") == "password":
            raise SchemaError(f"{path}: a secret comes out as asterisks, so that its value is lost; use str, or bytes")


def refuses(source: Mapping[str, Any]) -> str | None:
    """What the grammar engine has against a JSON Schema without references; None where it takes it."""
    return _refuses(json.dumps({**dialect(source), "x-guidance": {"whitespace_flexible": False}}))


@lru_cache(maxsize=4096)
def _refuses(source: str) -> str | None:
    rules = Rules()
    refused, notes = LLMatcher.validate_grammar_with_warnings(rules.grammar(rules.rule(f"%json {source}")))
    return notes[0].splitlines()[0].split("JSON schema: ", 1)[-1] if refused else None


@dataclass(frozen=True, slots=True)
class BadExample:
    """A worked example (numbered from 1) that its own schema refuses: by its grammar or by validation, and where."""

    number: int
    by: Literal["grammar", "validation"]
    where: str


def bad_examples(schema: Schema, constraint: Constraint) -> list[BadExample]:
    """The worked examples whose output the grammar would not let the model write, or validation would not accept."""
    found = []
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, constraint.grammar(""))
    for number, example in enumerate(schema.examples, start=1):
        value = written(example.output)
        try:
            text = constraint.spell(value)
        except ValueError as error:
            found.append(BadExample(number, "grammar", f"it can't be spelt: {error}"))
            continue
        fresh = LLMatcher(tokenizer, constraint.grammar(example.text)) if constraint.per_record else matcher.deep_copy()
        written_bytes = text.encode()
        taken = fresh.try_consume_tokens(tokenizer.tokenize_str(text))
        if taken != len(written_bytes):
            before, behind = (
                written_bytes[:taken].decode(errors="ignore"),
                written_bytes[taken:].decode(errors="ignore"),
            )
            found.append(BadExample(number, "grammar", f"after {before[-40:]!r} it does not allow {behind[:20]!r}"))
        elif not fresh.is_accepting():
            found.append(BadExample(number, "grammar", f"it wants more after {text[-40:]!r}"))
        try:
            schema.model.model_validate_json(spell_strictly(value))
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False, include_input=False):
                place = ".".join(map(str, detail["loc"])) or "the whole"
                found.append(BadExample(number, "validation", f"{place}: {detail['msg']}"))
        except Exception as error:  # noqa: BLE001 - a validator is a user's code and may raise anything
            found.append(BadExample(number, "validation", f"a validator raised {type(error).__name__}: {error}"))
    return found


def announce(schema: Schema) -> None:
    """Say once in a process, in the log, what of a schema validation alone enforces and which examples it refuses.

    Raises:
        SchemaError: as `constraint_for`.
    """
    constraint = constraint_for(schema)
    if schema.fingerprint in _announced:
        return
    _announced.add(schema.fingerprint)
    if constraint.relaxed:
        left = "; ".join(constraint.relaxed)
        log.info("schema %s: left to validation: %s", schema.name, left, extra={"action": "schema_relaxed"})
    refused = sorted({bad.number for bad in bad_examples(schema, constraint)})
    if refused:
        log.warning(
            "schema %s: worked examples %s show answers that the schema itself refuses, so they mislead the model; "
            "gristmill schema check says what is wrong with them",
            schema.name,
            ", ".join(map(str, refused)),
            extra={"action": "example_refused"},
        )


_announced: set[str] = set()
