"""The grammar: from a schema to a constraint on what the model may write."""

from gristmill.grammar.json_schema import Constraint, constraint_for, examples_refused

__all__ = ["Constraint", "constraint_for", "examples_refused"]
