"""Repair: what of a refused answer is kept, what is written anew, and what the model is told."""

import re
from collections.abc import Mapping
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import Any

from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import Constraint
from gristmill.grammar.rules import MISSING, Fixed, Known
from gristmill.grammar.tree import Node, Object, Sequence, Tree

Path = tuple[str | int, ...]

_RAISED = ("value_error", "assertion_error")
_LONGEST_MESSAGE = 300
_MOST_MESSAGES = 5


@dataclass(frozen=True, slots=True)
class Repair:
    """The answer that was refused, what was wrong with it in words, and what of it stands."""

    previous: str
    complaint: str
    known: Known


def repair_of(constraint: Constraint, candidate: str, fault: Fault) -> Repair | None:
    """How to mend a candidate, or None where nothing of it can be kept or read.

    Fields that were valid are kept. A fault of the whole (a model validator's) frees the fields that its message names,
    or all. Of an answer that was cut, what was complete is kept.
    """
    if fault.code not in (FaultCode.INVALID, FaultCode.TRUNCATED, FaultCode.DEGENERATE, FaultCode.MOJIBAKE):
        return None
    if fault.code is FaultCode.INVALID:
        try:
            value = constraint.spelling.read(candidate)
        except ValueError:
            return None
        wrong = _wrong(constraint.tree, fault)
    elif fault.code is FaultCode.MOJIBAKE:
        try:
            value = constraint.spelling.read(candidate)
        except ValueError:
            return None
        wrong = list(_broken(value, ()))
    else:
        value = constraint.spelling.partial(candidate)
        root = constraint.tree.resolved(constraint.tree.root)
        named = [field.name for field in root.fields] if isinstance(root, Object) else []
        if not isinstance(value, Mapping) or len(value) < 2 or value.keys() - set(named):
            # Where the last thing that was written has no field of its own, nothing says what is complete.
            return None
        # The last field is the one that was being written, and those behind it were not reached.
        last = max(named.index(name) for name in value)
        wrong = [(name,) for name in named[last:]]
    if not wrong:
        return None
    known = _known(constraint.tree, constraint.tree.root, value, wrong)
    if known is None and fault.code is not FaultCode.INVALID:
        return None
    if fault.code is not FaultCode.INVALID:
        # A cut or broken answer is no example to show; what stands of it is forced.
        return Repair("", "", known)
    return Repair(candidate, _complaint(fault), known)


def _complaint(fault: Fault) -> str:
    lines = []
    for detail in fault.details[:_MOST_MESSAGES]:
        where = ".".join(map(str, detail["loc"]))
        lines.append(f"- {where}: {detail['msg']}"[:_LONGEST_MESSAGE] if where else f"- {detail['msg']}")
    return "\n".join(["This answer was refused:", *lines, "Write the whole answer again with that put right."])


def _wrong(tree: Tree, fault: Fault) -> list[Path]:
    root = tree.resolved(tree.root)
    names = [field.name for field in root.fields] if isinstance(root, Object) else []
    wrong: list[Path] = []
    for detail in fault.details:
        loc = tuple(detail["loc"])
        if loc:
            wrong.append(loc)
            continue
        # Without Pydantic's own "Value error, ", whose words are no names.
        own = detail["msg"].split(", ", 1)[-1] if detail["type"] in _RAISED else detail["msg"]
        said = set(re.findall(r"\w+", own))
        wrong += [(name,) for name in names if name in said] or [()]
    return wrong or [()]


def _broken(value: Any, path: Path) -> "ListLike[Path]":
    """Where a value holds a replacement character."""
    if isinstance(value, str):
        return [path] if "\ufffd" in value else []
    if isinstance(value, Mapping):
        return [p for key, child in value.items() for p in _broken(child, (*path, key))]
    if isinstance(value, list):
        return [p for i, child in enumerate(value) for p in _broken(child, (*path, i))]
    return []


def _known(tree: Tree, node: Node, value: Any, wrong: ListLike[Path]) -> Known:
    """What of a value stands: all of it but what lies at the wrong paths."""
    if not wrong:
        return Fixed(value)
    if () in wrong:
        return None
    node = tree.resolved(node)
    if isinstance(node, Object) and isinstance(value, Mapping):
        fields = {field.name: field for field in node.fields}
        if any(path[0] not in fields for path in wrong) or value.keys() - fields.keys():
            return None
        known: dict[str, Known] = {}
        for name, field in fields.items():
            below = [path[1:] for path in wrong if path[0] == name]
            if name in value:
                known[name] = _known(tree, field.node, value[name], below)
            elif not below and not field.required:
                known[name] = Fixed(MISSING)
        return known if any(one is not None for one in known.values()) else None
    if isinstance(node, Sequence) and isinstance(value, list):
        if any(not isinstance(path[0], int) or not 0 <= path[0] < len(value) for path in wrong):
            return None
        rest = node.items
        nodes = [*node.prefix, *([rest] * len(value))]
        return tuple(
            _known(tree, one, child, [path[1:] for path in wrong if path[0] == i]) if one is not None else Fixed(child)
            for i, (one, child) in enumerate(zip(nodes, value, strict=False))
        )
    return None
