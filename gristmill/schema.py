"""Schemas: a Pydantic model with its instruction, its worked examples and the prompt's template."""

import hashlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, TypeAdapter
from pydantic.fields import FieldInfo

from gristmill.errors import SchemaError
from gristmill.json_model import read_schema_file
from gristmill.options import Options
from gristmill.presets import nearest
from gristmill.printing import json_schema_of

_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: the text of a record, the right output, and other fields that the prompt's template uses."""

    text: str
    output: BaseModel
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Schema:
    """What an output must satisfy and how to ask for it. Two are equal only if they are one.

    The instruction is the docstring of `model`; `template` is a `str.format` template over the record's fields
    (`{text}` and any other) for the user's turn.
    """

    name: str
    model: type[BaseModel]
    examples: tuple[Example, ...] = ()
    template: str = "{text}"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        if not (isinstance(self.model, type) and issubclass(self.model, BaseModel)):
            raise SchemaError(f"schema {self.name!r}: {self.model!r} is no Pydantic model class; give the class itself")
        names = _template_names(self.name, self.template)
        for number, example in enumerate(self.examples, start=1):
            if not isinstance(example, Example):
                raise SchemaError(
                    f"schema {self.name!r}: example {number} is a {type(example).__name__}; "
                    "give gristmill.Example(text=..., output=...)"
                )
            if lacking := names - {"text", *example.fields}:
                raise SchemaError(
                    f"schema {self.name!r}: PROMPT uses {{{min(lacking)}}}, which example {number} lacks; "
                    "give it with fields={...}"
                )
            if not isinstance(example.output, self.model):
                raise SchemaError(
                    f"schema {self.name!r}: the output of example {number} is a {type(example.output).__name__}, "
                    f"not a {self.model.__name__}; give it an instance of the class"
                )

    @property
    def instruction(self) -> str:
        """The class's docstring, or a general sentence where it has none of its own."""
        own = self.model.__doc__
        return inspect.cleandoc(own) if own else "Read the text and fill in its data."

    @cached_property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema that Pydantic prints for the model.

        Raises:
            SchemaError: Pydantic can't print one, for example because of a field that holds a callable.
        """
        try:
            return json_schema_of(self.model)
        except Exception as error:
            reason = f"{_without_json_schema(self.model)}{str(error).splitlines()[0]}"
            way_out = "" if isinstance(error, SchemaError) else "; change that field's type"
            raise SchemaError(f"schema {self.name!r} has no JSON Schema: {reason}{way_out}") from error

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that shapes the prompt and the grammar: the same digest means the same question."""
        content = {
            "json_schema": self.json_schema,
            "instruction": self.instruction,
            "template": self.template,
            "examples": [[e.text, dump(e.output), dict(e.fields)] for e in self.examples],
        }
        if changed := self.options.changed():
            content["options"] = changed
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _without_json_schema(model: type[BaseModel]) -> str:
    """The field for which Pydantic can't print a JSON Schema, to stand before the reason."""
    for name, info in model.model_fields.items():
        try:
            kind: Any = Annotated[info.annotation, *info.metadata, None]
            TypeAdapter(kind).json_schema()
        except Exception:  # noqa: BLE001 - that is what is looked for; the reason is told already
            return f"{name}: "
    return ""


def _template_names(schema: str, template: str) -> set[str]:
    """The fields that a template uses.

    Raises:
        SchemaError: it is no template, has no {text}, or asks for more than a plain field.
    """
    try:
        parsed = [(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(template)]
    except ValueError as error:
        raise SchemaError(
            f"schema {schema!r}: PROMPT is not a template: {error}; double the braces that are meant as text"
        ) from error
    names = {name for name, _, _ in parsed if name is not None}
    for name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise SchemaError(
                f"schema {schema!r}: PROMPT uses {{{name}{':' + spec if spec else ''}}}; only plain fields of the "
                "record such as {text} can stand there; double the braces that are meant as text"
            )
    if "text" not in names:
        raise SchemaError(f"schema {schema!r}: PROMPT has no {{text}}, so no record would reach the model")
    return names


def dump(output: BaseModel) -> dict[str, Any]:
    """An output as plain JSON values, without the fields that nobody set: what examples and outbox show."""
    return output.model_dump(mode="json", by_alias=True, exclude_unset=True)


def written(output: BaseModel) -> dict[str, Any]:
    """An output as the model should write it, under the names that validation reads: what worked examples teach.

    Unlike `dump` it has no computed fields, and JSON inside a string stays a string.
    """
    value = output.model_dump(mode="json", by_alias=True, exclude_unset=True, round_trip=True, warnings="none")
    result: dict[str, Any] = _as_read(output, value)
    return result


def _as_read(model: Any, value: Any) -> Any:
    """A dumped value with the names of fields under which they are read, where these are others."""
    if isinstance(model, RootModel):
        return _as_read(model.root, value)
    if isinstance(model, BaseModel) and isinstance(value, Mapping):
        named: dict[str, Any] = {}
        shown_names = set()
        for name, info in type(model).model_fields.items():
            shown = info.serialization_alias or info.alias or name
            shown_names.add(shown)
            if shown in value:
                named[_read_as(name, info)] = _as_read(getattr(model, name), value[shown])
        return named | {key: child for key, child in value.items() if key not in shown_names}
    if isinstance(model, list | tuple) and isinstance(value, list) and len(model) == len(value):
        return [_as_read(one, child) for one, child in zip(model, value, strict=True)]
    if isinstance(model, Mapping) and isinstance(value, Mapping) and len(model) == len(value):
        return {key: _as_read(one, child) for one, (key, child) in zip(model.values(), value.items(), strict=True)}
    return value


def _read_as(name: str, info: FieldInfo) -> str:
    alias = info.validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    only = first.path[0] if isinstance(first, AliasPath) and len(first.path) == 1 else first
    return only if isinstance(only, str) else name


def schema_of(model: type[BaseModel], examples: Sequence[Example] | None = None) -> Schema:
    """The schema of a class: its examples and template stand beside it in its module unless given here."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise SchemaError(f"schema: {model!r} is no Pydantic model class; give the class itself")
    module = sys.modules.get(model.__module__)
    if examples is None:
        beside = getattr(module, "EXAMPLES", ())
        examples = [e for e in beside if isinstance(e, Example) and isinstance(e.output, model)]
    template, options = getattr(module, "PROMPT", None), getattr(module, "OPTIONS", None)
    return Schema(
        _snake(model.__name__),
        model,
        tuple(examples),
        template if isinstance(template, str) else "{text}",
        options if isinstance(options, Options) else Options(),
    )


def schema_names(folder: Path) -> list[str]:
    """Names of the schemas in a folder: its Python and JSON files, without those that start with an underscore."""
    return sorted({path.stem for path in schema_files(folder)})


def schema_files(folder: Path) -> list[Path]:
    """The files of the schemas in a folder."""
    found = [path for ending in ("py", "json") for path in folder.glob(f"*.{ending}")]
    return sorted(path for path in found if not path.name.startswith("_"))


def load_schema(name: str, folder: Path) -> Schema:
    """Import `folder/name.py` and make a schema of the class in it, or read the JSON Schema in `folder/name.json`.

    The class is the one that `EXAMPLES` are instances of; without examples, the one named like the file
    (`purchase_order.py`: `PurchaseOrder`); else the only model that the file defines.

    Raises:
        SchemaError: no such file or two of them, it fails to import, the class is not to be told, or it is no JSON
            Schema; the message names the way out.
    """
    names = schema_names(folder)
    if name not in names:
        if not folder.is_dir():
            raise SchemaError(f"no schema {name!r}: the schemas folder {folder} does not exist; set GRISTMILL_SCHEMAS")
        raise SchemaError(f"no schema {name!r} in {folder}; {nearest(name, names)}")
    if len(name) > _LONGEST_NAME:
        raise SchemaError(f"schema {name[:20]!r}... has a name of {len(name)} letters; {_LONGEST_NAME} are possible")
    files = [path for path in schema_files(folder) if path.stem == name]
    if len(files) > 1:
        raise SchemaError(f"schema {name!r} is there twice, as {files[0].name} and {files[1].name}; remove one")
    if files[0].suffix == ".json":
        read = read_schema_file(files[0])
        return Schema(name, read.model, tuple(Example(*one) for one in read.examples), read.template, read.options)
    module = _import(name, files[0])
    examples = getattr(module, "EXAMPLES", ())
    template = getattr(module, "PROMPT", "{text}")
    if not (isinstance(examples, list | tuple) and all(isinstance(e, Example) for e in examples)):
        raise SchemaError(f"schema {name!r}: EXAMPLES must be a list of gristmill.Example(text=..., output=...)")
    if not isinstance(template, str):
        raise SchemaError(f"schema {name!r}: PROMPT is a {type(template).__name__}; it must be a string with {{text}}")
    options = getattr(module, "OPTIONS", Options())
    if not isinstance(options, Options):
        raise SchemaError(f"schema {name!r}: OPTIONS is a {type(options).__name__}; it must be gristmill.Options(...)")
    return Schema(name, _output_model(name, module, examples), tuple(examples), template, options)


def _import(name: str, path: Path) -> ModuleType:
    module_name = f"gristmill_schemas.{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise SchemaError(f"schema file {path} can't be imported: it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # Whatever a schema file does while it is imported, it must not end a run over other schemas.
        del sys.modules[module_name]
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        summary = str(error).splitlines()[0] if str(error) else "no message"
        raise SchemaError(
            f"schema file {path.name} fails to import at line {line or '?'}: {type(error).__name__}: {summary}; "
            "mend the file, nothing was run with it"
        ) from error
    return module


def _output_model(name: str, module: ModuleType, examples: Sequence[Example]) -> type[BaseModel]:
    if examples:
        return type(examples[0].output)
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__
    ]
    named = [model for model in own if _snake(model.__name__) == name]
    if len(named) == 1 or len(own) == 1:
        return (named or own)[0]
    raise SchemaError(
        f"schema file {name}.py defines {len(own)} models and none is named like the file; "
        f"name the output class {''.join(part.title() for part in name.split('_'))} or give it EXAMPLES"
    )


def _snake(camel: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(camel))
