"""Gristmill: JSONL records in, JSON or XML valid against a Pydantic schema out, with one local model.

`load` gives an engine, its `run` yields results as they finish, `run_batch` does both in one call; `Example` is a
worked example of a schema. Importing this package loads neither torch nor transformers.
"""

from gristmill.api import Batcher, Result, load, run_batch
from gristmill.errors import GristmillError, ModelError, SchemaError, SetupError, StorageError
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.xml.names import Xml
from gristmill.options import Options, Split
from gristmill.records import Record
from gristmill.schema import Example
from gristmill.verbatim import Verbatim

__all__ = [
    "Batcher",
    "Example",
    "Fault",
    "FaultCode",
    "GristmillError",
    "ModelError",
    "Options",
    "Record",
    "Result",
    "SchemaError",
    "SetupError",
    "Split",
    "StorageError",
    "Verbatim",
    "Xml",
    "load",
    "run_batch",
]
