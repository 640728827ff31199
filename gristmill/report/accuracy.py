"""Exact match per field against the right answers that some input lines carry."""

from collections.abc import Mapping
from typing import Any

from pydantic import RootModel, TypeAdapter, ValidationError

from gristmill.grammar.constraint import constraint_for
from gristmill.schema import Schema


class Accuracy:
    """Counts, per top-level field of a schema, how often an accepted output equals `gold`.

    A field that `gold` leaves out is right when the output leaves it out or null too. Values are compared after
    validation, so that "12.5" and "12.50" are the same money. Records without an accepted output count as wrong.
    """

    def __init__(self, schema: Schema) -> None:
        self._fields: dict[str, TypeAdapter[Any]] = {
            info.alias or name: TypeAdapter(info.rebuild_annotation())
            for name, info in schema.model.model_fields.items()
        }
        if issubclass(schema.model, RootModel):
            # A JSON Schema's fields are no fields of the class; their values are compared as they are.
            self._fields = {name: TypeAdapter(Any) for name in schema.json_schema.get("properties", {})}
        self._schema = schema
        self.records = 0
        self.right = dict.fromkeys(self._fields, 0)

    def add(self, output: Any, gold: Mapping[str, Any]) -> None:
        """Count one record; `output` is as the outbox has it (the text of an XML answer), None where none was
        accepted."""
        self.records += 1
        if isinstance(output, str) and (constraint := constraint_for(self._schema)).format != "json":
            output = constraint.spelling.read(output)
        if not isinstance(output, Mapping):
            return
        for name in self._fields:
            if self._value(name, output) == self._value(name, gold):
                self.right[name] += 1

    def _value(self, name: str, values: Mapping[str, Any]) -> Any:
        value = values.get(name)
        if value is None:
            return None
        try:
            return self._fields[name].validate_python(value, strict=False)
        except ValidationError:
            return value
