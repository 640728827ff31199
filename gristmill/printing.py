"""The JSON Schema that Pydantic prints for a class, with what it leaves out of decimals."""

from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

LEFT = "x-left"
"""The keyword of a part with the names of what its other keywords can't say, so that validation alone does."""

_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_DIGITS = 40


class ModelJsonSchema(GenerateJsonSchema):
    """Pydantic's JSON Schema, decimals with their digits: it prints any number and any string."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number, or a string of digits."""
        number = decimal_number(schema)
        string: JsonSchemaValue = {"type": "string", "pattern": _pattern(schema)}
        # The pattern holds the sign and the digits, and no other bounds.
        left = [keyword for key, keyword in _BOUNDS.items() if schema.get(key) is not None]
        if schema.get("ge") == 0:
            left.remove("minimum")
        if schema.get("max_digits") is not None and schema.get("decimal_places") is None:
            left.append("max_digits")
        if left:
            string[LEFT] = [f"{', '.join(left)} of a decimal that is written as a string"]
        return {"anyOf": [number, string]}


def json_schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a class, as validation reads it."""
    return model.model_json_schema(schema_generator=ModelJsonSchema)


def decimal_number(schema: core_schema.DecimalSchema) -> JsonSchemaValue:
    """A decimal as a JSON number: its bounds, its places as `multipleOf`, its digits as bounds."""
    json_schema: JsonSchemaValue = {"type": "number"}
    for said, keyword in _BOUNDS.items():
        bound: Any = schema.get(said)
        if bound is not None:
            json_schema[keyword] = float(bound)
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    if places is not None:
        json_schema.setdefault("multipleOf", float(Decimal(1).scaleb(-places)))
    if digits is not None:
        whole = float(10 ** max(digits - (places or 0), 0))
        if not json_schema.keys() & {"maximum", "exclusiveMaximum"}:
            json_schema["exclusiveMaximum"] = whole
        if not json_schema.keys() & {"minimum", "exclusiveMinimum"}:
            json_schema["exclusiveMinimum"] = -whole
    bounded = any(schema.get(key) is not None for key in ("ge", "gt", "le", "lt"))
    left = ["max_digits"] if digits is not None and (places is None or bounded) else []
    if places is not None and schema.get("multiple_of") is not None:
        left.append("decimal_places")
    return json_schema | ({LEFT: left} if left else {})


def _pattern(schema: core_schema.DecimalSchema) -> str:
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    least: Any = schema.get("ge", schema.get("gt"))
    sign = "" if least is not None and least >= 0 else "-?"
    whole = _DIGITS if digits is None else max(digits - (places or 0), 1)
    fraction = digits if places is None else places
    fraction = _DIGITS if fraction is None else fraction
    integral = "(0|[1-9]" + (rf"\d{{0,{whole - 1}}})" if whole > 1 else ")")
    fractional = rf"(\.\d{{1,{fraction}}})?" if fraction else ""
    # Python writes very large and very small ones so.
    exponent = r"([eE][+-]?\d{1,3})?" if digits is None and places is None else ""
    return f"^{sign}{integral}{fractional}{exponent}$"
