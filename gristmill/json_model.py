"""JSON Schema files: a Pydantic class whose JSON Schema is the file's and whose validation is that schema's."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, cast

from jsonschema.exceptions import SchemaError as NotASchema
from jsonschema.exceptions import ValidationError as Unfit
from jsonschema.exceptions import best_match
from pydantic import RootModel, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from referencing import Registry

from gristmill.errors import SchemaError
from gristmill.json_checks import FORMATS, VALIDATOR_7, VALIDATOR_2020_12
from gristmill.options import Options
from gristmill.presets import nearest
from gristmill.references import DRAFT_7, DRAFT_2020_12, References, parts, refuse_circles
from gristmill.verbatim import KEYWORD, Verbatim, tie

_OWN = ("x-examples", "x-options", "x-prompt")
_OPTIONS = ("format", "absent", "reading", "examples_per_prompt", "max_string", "verbatim")
_LONGEST = 200


class JsonModel(RootModel[Any]):
    """A value that fits the JSON Schema of a file; `root` is the value."""

    document: ClassVar[dict[str, Any]] = {}
    validator: ClassVar[Any] = None
    unchecked: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, value: Any) -> Any:
        errors = [detail for error in cls.validator.iter_errors(value) for detail in _details(error, value)]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return value

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """The file's JSON Schema, without the examples and the options."""
        return copy.deepcopy(cls.document)


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """What a JSON Schema file says. Each example has `text`, `output` and perhaps `fields`; outputs are validated."""

    model: type[JsonModel]
    examples: tuple[tuple[str, JsonModel, Mapping[str, Any]], ...]
    template: str
    options: Options


def read_schema_file(path: Path) -> SchemaFile:
    """Read `NAME.json`: a JSON Schema of draft 2020-12 or 7.

    `description` is the instruction, `x-examples` the worked examples, `x-prompt` the template, `x-options` the
    options; strings with `x-verbatim` are tied to the record's text.

    Raises:
        SchemaError: it is no JSON, no such schema, refers to what is outside, or an example does not fit; with the file
            and the path in it.
    """
    try:
        return _read(path)
    except (ValueError, RecursionError) as error:
        # Such as a number of thousands of digits, half of a surrogate pair, or hundreds of levels.
        kind = type(error).__name__
        raise SchemaError(f"schema file {path.name} can't be used: {kind}: {str(error)[:_LONGEST]}; mend it") from error


def _read(path: Path) -> SchemaFile:
    document = _json_of(path)
    own = {key: document.pop(key) for key in _OWN if key in document}
    draft = document.setdefault("$schema", DRAFT_2020_12)
    kinds = {DRAFT_2020_12: VALIDATOR_2020_12, DRAFT_7: VALIDATOR_7}
    kind = kinds.get(draft.rstrip("#")) if isinstance(draft, str) else None
    if kind is None:
        raise SchemaError(f"schema file {path.name}: $schema is {draft!r}; use {DRAFT_2020_12!r} or {DRAFT_7 + '#'!r}")
    try:
        kind.check_schema(document, format_checker=kind.FORMAT_CHECKER)
    except NotASchema as error:
        said = error.message[:_LONGEST]
        raise SchemaError(f"schema file {path.name}: {error.json_path}: {said}; correct it there") from error
    try:
        references = References(document)
        for place, part in parts(document):
            for key in ("$ref", "$dynamicRef"):
                if key in part:
                    references.target(part[key], place)
        refuse_circles(document, references)
    except SchemaError as error:
        raise SchemaError(f"schema file {path.name}: {error}") from error
    json.dumps(document, ensure_ascii=False).encode()
    _tie(path, document)
    model = _model(path.stem, document, kind)
    return SchemaFile(
        model, tuple(_examples(path, own.get("x-examples", []), model)), _template(path, own), _options(path, own)
    )


def _tie(path: Path, document: dict[str, Any]) -> None:
    """Put `x-verbatim` where it belongs: what stands on a list means its strings."""
    for place, part in list(parts(document)):
        ours = (KEYWORD, *_OWN) if place == "$" else (KEYWORD,)
        for key in part:
            if key.startswith("x-") and key not in ours and (close := get_close_matches(key, ours, 1, 0.75)):
                raise SchemaError(f"schema file {path.name}: {place}: {key!r} means nothing; use {close[0]!r}")
        said = part.get(KEYWORD, False)
        if said is False or "$ref" in part:
            continue
        Verbatim.from_json(said, f"schema file {path.name}: {place}")
        tied = cast(dict[str, Any], part)
        del tied[KEYWORD]
        if not tie(tied, said):
            kind = json.dumps(part.get("type", "of no type"))
            raise SchemaError(
                f"schema file {path.name}: {place}: {KEYWORD} stands on what is no string and no list of strings "
                f"({kind}); remove it, or give the strings their type"
            )


def _json_of(path: Path) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"schema file {path.name}: an object has {twice!r} twice; remove one")
        return found

    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"schema file {path.name} is no JSON: line {error.lineno}, column {error.colno}: {error.msg}; correct it"
        ) from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"schema file {path.name} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (OSError, RecursionError) as error:
        raise SchemaError(f"schema file {path.name} can't be read: {error}; mend the file or its rights") from error
    if not isinstance(document, dict):
        raise SchemaError(f"schema file {path.name} holds {type(document).__name__} as a whole; give an object")
    return document


def _model(name: str, document: dict[str, Any], kind: Any) -> type[JsonModel]:
    title = document.get("title")
    camel = title if isinstance(title, str) and title.isidentifier() else "".join(p.title() for p in name.split("_"))
    namespace = {"__module__": __name__, "__doc__": document.get("description"), "__qualname__": camel}
    model = cast(type[JsonModel], type(camel, (JsonModel,), namespace))
    model.document = document
    # An empty registry: what is not in the document is not looked for anywhere.
    model.validator = kind(document, registry=Registry(), format_checker=kind.FORMAT_CHECKER)
    formats = [(place, part["format"]) for place, part in parts(document) if "format" in part]
    model.unchecked = tuple(f"{place}: format {said}" for place, said in formats if said not in FORMATS)
    return model


def _examples(path: Path, examples: Any, model: type[JsonModel]) -> Iterator[tuple[str, JsonModel, Mapping[str, Any]]]:
    shape = 'give a list of {"text": ..., "output": ..., "fields": {...}}, fields only where the prompt uses them'
    if not isinstance(examples, list):
        raise SchemaError(f"schema file {path.name}: x-examples is a {type(examples).__name__}; {shape}")
    for i, example in enumerate(examples):
        where = f"schema file {path.name}: x-examples[{i}]"
        if not isinstance(example, dict) or not {"text", "output"} <= example.keys() <= {"text", "output", "fields"}:
            raise SchemaError(f"{where} has not the right keys; {shape}")
        text, fields = example["text"], example.get("fields", {})
        if not isinstance(text, str) or not isinstance(fields, dict):
            raise SchemaError(f"{where}: text must be a string and fields an object; {shape}")
        try:
            yield text, model.model_validate(example["output"]), fields
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in ("output", *first["loc"]))
            raise SchemaError(f"{where}{place}: {first['msg']}; correct the example or the schema") from error


def _template(path: Path, own: Mapping[str, Any]) -> str:
    template = own.get("x-prompt", "{text}")
    if not isinstance(template, str):
        raise SchemaError(
            f"schema file {path.name}: x-prompt is a {type(template).__name__}; give a string with {{text}}"
        )
    return template


def _options(path: Path, own: Mapping[str, Any]) -> Options:
    options = own.get("x-options", {})
    if not isinstance(options, dict):
        raise SchemaError(f"schema file {path.name}: x-options is a {type(options).__name__}; give an object")
    for key in options:
        if key not in _OPTIONS:
            raise SchemaError(f"schema file {path.name}: x-options has no {key!r}; {nearest(key, list(_OPTIONS))}")
    try:
        return Options(**options)
    except SchemaError as error:
        raise SchemaError(f"schema file {path.name}: {str(error).replace('OPTIONS', 'x-options', 1)}") from error


def _details(error: Unfit, value: Any) -> Iterator[InitErrorDetails]:
    """An error as Pydantic has them, without the value: what an answer says does not travel with its faults."""
    worst = best_match([error]) or error
    loc = tuple(worst.absolute_path)
    said, keyword = worst.validator_value, str(worst.validator)
    if keyword == "required" and isinstance(worst.instance, Mapping):
        for name in said:
            if name not in worst.instance:
                yield _detail("missing", "Field required", (*loc, name), value)
        return
    if keyword == "additionalProperties" and said is False and isinstance(worst.instance, Mapping):
        yield _detail(keyword, "Only the properties of the schema are permitted", loc, value)
        return
    yield _detail(keyword, _message(worst), loc, value)


def _message(error: Unfit) -> str:
    if error.validator in ("contentEncoding", "contentMediaType"):
        return str(error.message)
    if error.validator is None:
        return "No value is permitted here"
    said = json.dumps(error.validator_value, ensure_ascii=False)
    return f"Must satisfy {error.validator} {said if len(said) <= _LONGEST else said[:_LONGEST] + '...'}"


def _detail(kind: str, message: str, loc: tuple[str | int, ...], value: Any) -> InitErrorDetails:
    custom = PydanticCustomError(kind, "{message}", {"message": message})
    return InitErrorDetails(type=custom, loc=loc, input=value)
