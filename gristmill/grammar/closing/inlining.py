"""Inlining: what a reference or an `allOf` means written in its place, as far as that can be done."""

from collections.abc import Mapping
from typing import Any

from gristmill.grammar.closing.merging import disjoint
from gristmill.grammar.closing.merging import merged as together
from gristmill.references import References

Source = Mapping[str, Any]

NOTES = (
    *("title", "description", "examples", "default", "deprecated", "discriminator", "readOnly", "writeOnly"),
    *("$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions"),
    *("x-examples", "x-options", "x-prompt"),
)
"""Keywords that say nothing of what is valid."""

LOOKED_UP = ("$ref", "$dynamicRef")
"""Keywords that stand for another schema."""

_VALUES = ("enum", "const", "required", "type")


class Inliner:
    """Writes parts of one document without references. `alone`: what stands beside a reference counts for nothing, as
    in draft 7."""

    def __init__(self, references: References, *, alone: bool) -> None:
        self._references = references
        self._alone = alone

    def merged(self, said: dict[str, Any], path: str) -> dict[str, Any]:
        """The part with its `allOf` merged into it, as far as that can be written."""
        result = {key: value for key, value in said.items() if key != "allOf"}
        left = []
        for one in said.get("allOf", ()):
            both = None
            if isinstance(one, Mapping):
                plain = {key: value for key, value in one.items() if key not in NOTES}
                target = self.inlined(plain, path)
                both = None if target is None else together(result, self.merged(target, path))
            if both is None:
                left.append(one)
            else:
                result = both
        if left == said.get("allOf"):
            return said
        return {**result, "allOf": left} if left else result

    def inlined(self, said: Source, path: str) -> dict[str, Any] | None:
        """What a reference means, in its place; None where it leads back to itself."""
        said, seen = dict(said), set[str]()
        while key := next((key for key in LOOKED_UP if key in said), None):
            name, target = self._references.target(said[key], path)
            rest = {} if self._alone else {k: v for k, v in said.items() if k not in LOOKED_UP}
            if name in seen or not isinstance(target, Mapping):
                return None
            seen.add(name)
            both = together({k: v for k, v in target.items() if k not in NOTES}, rest)
            if both is None:
                return None
            said = both
        # One that contains itself can't be written out.
        return None if seen and any(self.reaches(said, name) for name in seen) else said

    def reaches(self, node: Any, name: str, trail: frozenset[str] = frozenset()) -> bool:
        """Whether a part refers, by whatever way, to what has that name."""
        if isinstance(node, list | tuple):
            return any(self.reaches(child, name, trail) for child in node)
        if not isinstance(node, Mapping):
            return False
        for key in LOOKED_UP:
            if isinstance(node.get(key), str):
                found, target = self._references.target(node[key], "$")
                if found == name or (found not in trail and self.reaches(target, name, trail | {found})):
                    return True
        return any(self.reaches(child, name, trail) for key, child in node.items() if key not in _VALUES)

    def returns(self, option: Any, path: str) -> bool:
        """Whether a part is a reference to what refers back to itself."""
        key = next((key for key in LOOKED_UP if key in option), None) if isinstance(option, Mapping) else None
        if key is None:
            return False
        name, target = self._references.target(option[key], path)
        return self.reaches(target, name)

    def with_beside(self, option: Any, beside: dict[str, Any], path: str) -> dict[str, Any] | None:
        """An option of an `anyOf` with what stands beside that; None where it can't be written."""
        inlined = self.inlined(option, path) if isinstance(option, Mapping) else None
        return None if inlined is None else together(beside, inlined)

    def apart(self, options: list[Any], path: str) -> bool:
        """Whether it is plain to see that no value fits two of these options."""
        found = [self.inlined(option, path) if isinstance(option, Mapping) else None for option in options]
        # One that leads back to itself is as good as its own first level here.
        level = [
            self._references.target(option["$ref"], path)[1]
            if one is None and isinstance(option, Mapping) and "$ref" in option
            else one
            for one, option in zip(found, options, strict=True)
        ]
        return all(
            isinstance(one, Mapping) and isinstance(other, Mapping) and disjoint(one, other)
            for i, one in enumerate(level)
            for other in level[i + 1 :]
        )
