"""The engine: one loaded model behind one owner. Torch is imported when a model is loaded, not before."""

from gristmill.engine.base import (
    Candidate,
    Engine,
    Failed,
    FinishReason,
    ModelInfo,
    Outcome,
    Request,
    Started,
    as_quantized,
)
from gristmill.engine.owner import engine_for, load_count, release

__all__ = [
    "Candidate",
    "Engine",
    "Failed",
    "FinishReason",
    "ModelInfo",
    "Outcome",
    "Request",
    "Started",
    "as_quantized",
    "engine_for",
    "load_count",
    "release",
]
