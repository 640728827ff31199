"""Puts a fake engine in the model's place in every process that is started with this folder on PYTHONPATH.

FAKE_SECONDS is what a record costs. A record whose id begins with `dead` is never answered well.
"""

import os

from gristmill import pipeline
from gristmill.engine import Request
from gristmill.testing import FakeEngine, first_example


class _Directory:
    name, fingerprint = "fake", "fingerprint of fake"


def _answer(request: Request) -> str:
    if request.record.id.startswith("dead"):
        return "{}"
    return first_example(request)


_engine = FakeEngine(_answer, seconds_per_record=float(os.environ.get("FAKE_SECONDS", "0")))
_open = pipeline.open_model
pipeline.open_model = lambda path: _Directory() if path == "embedded" else _open(path)  # type: ignore[assignment, return-value]
pipeline.engine_for = lambda *given, **options: _engine  # type: ignore[assignment]
