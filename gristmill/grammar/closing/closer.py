"""Closing: a JSON Schema made ready to be a tree. References are under `$defs`, objects have the fields they name and
no others, strings end, and what the grammar engine refuses is left to validation, by path."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.errors import SchemaError
from gristmill.grammar.closing import absence
from gristmill.grammar.closing.dialect import FORMATS, LONGEST, LOOSE, LOOSE_FORMATS, steps
from gristmill.grammar.closing.ending import must_end
from gristmill.grammar.closing.inlining import LOOKED_UP, NOTES, Inliner
from gristmill.grammar.closing.merging import kind_of
from gristmill.grammar.closing.relaxing import ImpossibleError, Refuses, relaxed
from gristmill.grammar.closing.widths import width
from gristmill.printing import LEFT
from gristmill.references import IN_MAPS, References, is_draft_7
from gristmill.verbatim import KEYWORD

Source = Mapping[str, Any]

RELAXED = (
    "uniqueItems",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "contentEncoding",
    "contentMediaType",
)
"""Keywords that the grammar engine refuses or passes over (llguidance 1.9 `docs/json_schema.md`); validation enforces
them."""

# Keywords that may stand beside a reference without changing what is valid.
_SILENT = {"xml"}
_LITERAL = ("enum", "const", "required", "type", KEYWORD)


@dataclass(frozen=True)
class Closed:
    """A schema and the definitions it refers to, each under `#/$defs/NAME`; `paths` says where each stands first.

    `capped` has the paths of strings that end only by the cap."""

    root: dict[str, Any]
    definitions: dict[str, dict[str, Any]]
    relaxed: tuple[str, ...]
    paths: Mapping[str, str]
    capped: tuple[str, ...]


def closed(json_schema: Source, *, absent: str, max_string: int | None, refuses: Refuses | None = None) -> Closed:
    """Make a schema of draft 2020-12 or 7 ready.

    `refuses` says what the grammar engine has against a schema without references, or None where it takes it.

    Raises:
        SchemaError: a part accepts no value, a reference leads nowhere, or recursion has no end; with its path.
    """
    closer = _Closer(json_schema, absent, max_string, refuses)
    root = closer.whole(json_schema)
    result = Closed(root, closer.definitions, tuple(dict.fromkeys(closer.notes)), closer.paths, tuple(closer.capped))
    must_end(result.root, result.definitions, result.paths)
    return result


@dataclass
class _Closer:
    source: Source
    absent: str
    cap: int | None
    refuses: Refuses | None
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    capped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.references = References(self.source)
        self.draft_7 = is_draft_7(self.source)
        self.inliner = Inliner(self.references, alone=self.draft_7)
        # A schema that names its draft is a file's, and its formats are the standard's.
        self.loose = "$schema" not in self.source
        self._open: list[tuple[str, Source]] = []

    def whole(self, source: Source) -> dict[str, Any]:
        root = self.some(source, "$")
        while self._open:
            name, target = self._open.pop(0)
            self.definitions[name] = self.some(target, self.paths[name])
        return root

    def some(self, source: Any, path: str) -> dict[str, Any]:
        """A part that has to accept something."""
        result = self.part(source, path)
        if result is False:
            raise ImpossibleError(f"{path}: no value is possible here (the schema `false`); leave the part out")
        return result

    def part(self, source: Any, path: str, *, inside: bool = False) -> dict[str, Any] | Any:
        """A part made ready; False where it accepts nothing. `inside`: it stands beside others that must hold too, so
        its objects can't be closed."""
        if source is True:
            return {}
        if source is False:
            return False
        if not isinstance(source, Mapping):
            raise SchemaError(f"{path}: {source!r} is no JSON Schema; give an object, true or false")
        said = {key: value for key, value in source.items() if key not in NOTES}
        said = self._looked_up(said, path)
        if "$ref" in said:
            return said
        said = self._unwound(self.inliner.merged(said, path), path)
        if "$ref" in said:
            return said
        if said.get("type") == []:
            raise ImpossibleError(f"{path}: no value is possible here, its types exclude each other; correct one")
        for what in said.pop(LEFT, ()):
            self._leave(path, what)
        self._positional(said)
        self._named_elsewhere(said)
        for key in RELAXED:
            if key in said:
                self._leave(path, key)
                del said[key]
        result = {key: copy.deepcopy(said[key]) for key in said if key in _LITERAL}
        for key, value in said.items():
            if key not in _LITERAL:
                result[key] = self._below(key, value, path)
        self._alternatives(said, result, path, inside)
        self._values(result, path)
        inside = inside or "allOf" in result or ("anyOf" in result and len(result.keys() - _SILENT) > 1)
        self._object(result, path, inside)
        if result.get("items") is False and not result.get("prefixItems"):
            result["maxItems"] = 0
            del result["items"]
        capped = self._text(result, path, inside)
        self._number(result, path)
        if self.refuses is None:
            return self._noted(result, path, capped)
        result = relaxed(result, path, self.refuses, lambda key: self._leave(path, key), capped)
        return self._noted(result, path, capped)

    def _noted(self, result: dict[str, Any], path: str, capped: bool) -> dict[str, Any]:
        if capped and "maxLength" in result and width(result.get("pattern")) is None:
            self.capped.append(path)
        return result

    def _leave(self, path: str, what: str) -> None:
        self.notes.append(f"{path}: {what}")

    def _looked_up(self, said: dict[str, Any], path: str) -> dict[str, Any]:
        """The part with its reference under `$defs`; with what stands beside it, both in one. What stands beside a
        reference that leads back to itself is left to validation."""
        key = next((key for key in LOOKED_UP if key in said), None)
        if key is None:
            return said
        name, target = self.references.target(said[key], path)
        rest = {} if self.draft_7 else {other: value for other, value in said.items() if other not in LOOKED_UP}
        silent = {other: value for other, value in rest.items() if other in _SILENT}
        if len(silent) < len(rest):
            written = self.inliner.inlined(said, path)
            if written is not None:
                return written
            if not self.inliner.reaches(target, name):
                return {"allOf": [{"$ref": said[key]}, rest]}
            for other in rest.keys() - silent.keys():
                self._leave(path, other)
        if name not in self.paths:
            self.paths[name] = path
            self._open.append((name, target))
        return {"$ref": f"#/$defs/{name}", **silent}

    def _unwound(self, said: dict[str, Any], path: str) -> dict[str, Any]:
        """The part without an `allOf` of what leads back to itself, which the engine can't take beside others."""
        round_ = [one for one in said.get("allOf", ()) if self.inliner.returns(one, path)]
        if not round_:
            return said
        self._leave(path, "allOf")
        rest = {key: value for key, value in said.items() if key != "allOf"}
        return rest or self._looked_up({key: round_[0][key] for key in LOOKED_UP if key in round_[0]}, path)

    def _positional(self, said: dict[str, Any]) -> None:
        """Draft 7 has the positional items under `items` and the others under `additionalItems`."""
        more = said.pop("additionalItems", None)
        if isinstance(said.get("items"), list):
            said["prefixItems"] = said.pop("items")
            if more is not None:
                said["items"] = more

    def _named_elsewhere(self, said: dict[str, Any]) -> None:
        """Properties that only a condition names are the object's too, or closing it would forbid them."""
        places = [said.get("then"), said.get("else"), *said.get("dependentSchemas", {}).values()]
        places += [one for one in said.get("dependencies", {}).values() if isinstance(one, Mapping)]
        if "properties" not in said or "additionalProperties" in said:
            return
        for place in places:
            if isinstance(place, Mapping) and place.get("properties"):
                own = said["properties"]
                more = {k: child for k, child in place["properties"].items() if k not in own and child is not False}
                said["properties"] = {**own, **more}

    def _below(self, key: str, value: Any, path: str) -> Any:
        if key in IN_MAPS:
            return {
                name: self.part(child, f"{path}.{name}" if key == "properties" else f"{path}.*")
                for name, child in value.items()
            }
        if key == "prefixItems":
            return [self.some(child, f"{path}[]") for child in value]
        if key == "allOf":
            return [self.part(child, path, inside=True) for child in value]
        if key in ("anyOf", "oneOf"):
            return value
        if key == "items":
            return self.part(value, f"{path}[]")
        if key == "additionalProperties":
            return self.part(value, f"{path}.*")
        return copy.deepcopy(value)

    def _alternatives(self, said: dict[str, Any], result: dict[str, Any], path: str, inside: bool) -> None:
        """`anyOf` and `oneOf` as `anyOf`; what stands beside them goes into each option where that can be written."""
        for key in ("anyOf", "oneOf"):
            if key not in said:
                continue
            if not said[key]:
                raise ImpossibleError(
                    f"{path}: no value is possible here, {key} has no option; add one or leave it out"
                )
            plain = [
                {k: v for k, v in option.items() if k not in NOTES} if isinstance(option, Mapping) else option
                for option in said[key]
            ]
            if key == "oneOf" and not self.inliner.apart(plain, path):
                self._leave(path, "oneOf")
            beside = {k: v for k, v in said.items() if k not in (key, "x-guidance", *_SILENT)}
            whole = None
            if beside and not {"anyOf", "oneOf", "allOf"} & beside.keys():
                together = [self.inliner.with_beside(option, beside, path) for option in plain]
                whole = None if None in together else together
            del result[key]
            if beside and whole is None and any(self.inliner.returns(option, path) for option in plain):
                self._leave(path, key)
                continue
            if whole is not None:
                silent = {k: v for k, v in result.items() if k in _SILENT}
                result.clear()
                result.update(silent)
            options = self._options(plain, whole, path, inside or (bool(beside) and whole is None))
            if not options:
                raise ImpossibleError(f"{path}: no value is possible here, no option of {key} accepts one")
            if "anyOf" in result:
                result["allOf"] = [*result.get("allOf", ()), {"anyOf": options}]
            else:
                result["anyOf"] = options
            if whole is not None:
                return

    def _options(self, plain: list[Any], whole: list[Any] | None, path: str, inside: bool) -> list[dict[str, Any]]:
        """The options made ready, those left out that accept nothing because of what stands beside them."""
        options = []
        for option in whole or plain:
            before = len(self.notes)
            try:
                ready = self.part(option, path, inside=inside)
            except ImpossibleError:
                if whole is None:
                    raise
                del self.notes[before:]
                continue
            if ready is not False:
                options.append(ready)
        return options

    def _values(self, result: dict[str, Any], path: str) -> None:
        """An enumeration without the values that its type excludes, whole numbers as the engine writes them."""
        if "const" in result:
            result["const"] = _whole(result["const"])
        if "enum" not in result:
            return
        said = result.get("type")
        kinds = {said} if isinstance(said, str) else set(said or ())
        if "number" in kinds or "integer" in kinds:
            kinds |= {"number"}
        left = [value for value in result["enum"] if not kinds or kind_of(value) in kinds]
        if not left:
            raise ImpossibleError(f"{path}: no value is possible here, the enumeration has none; give it some")
        result["enum"] = [_whole(value) for value in left]

    def _object(self, result: dict[str, Any], path: str, inside: bool) -> None:
        named = "properties" in result or "patternProperties" in result
        required = result.get("required", [])
        if "properties" in result:
            for name in [name for name, child in result["properties"].items() if child is False]:
                del result["properties"][name]
                if name in required:
                    raise ImpossibleError(f"{path}.{name}: required, but its schema `false` accepts nothing; drop one")
        if not named or inside:
            return
        unknown = [name for name in required if name not in result.get("properties", {})]
        extra = result.get("additionalProperties", True)
        if unknown and extra is False and "patternProperties" not in result:
            raise ImpossibleError(f"{path}: {unknown[0]!r} is required but no property; add it to the properties")
        if "patternProperties" not in result:
            properties = result.setdefault("properties", {})
            properties.update({name: {} if extra is True else copy.deepcopy(extra) for name in unknown})
        result.setdefault("additionalProperties", False)
        if "properties" in result:
            absence.decide(result, self.absent)

    def _text(self, result: dict[str, Any], path: str, inside: bool) -> bool:
        """Formats looked at and strings capped; whether this one was."""
        named = result.get("format")
        if named is not None:
            if self.loose and named in LOOSE_FORMATS:
                result[LOOSE] = True
                if "pattern" in result:
                    self._leave(path, f"format {named}")
            elif named not in FORMATS:
                self._leave(path, f"format {named}")
        ends = (named in LONGEST or LOOSE in result) and "pattern" not in result
        said = {"maxLength", "enum", "const", KEYWORD} & result.keys()
        if self.cap is None or result.get("type") != "string" or ends or said or inside:
            return False
        result["maxLength"] = max(self.cap, result.get("minLength", 0))
        return True

    def _number(self, result: dict[str, Any], path: str) -> None:
        if "multipleOf" in result and steps(result) != result["multipleOf"]:
            self._leave(path, "multipleOf")


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
