"""The owner of the process's model: loads it at the first use and hands out the same engine after that."""

import logging
from threading import Lock
from typing import TYPE_CHECKING

from gristmill.engine.base import Engine

if TYPE_CHECKING:
    from gristmill.engine.loading import LoadedModel
    from gristmill.engine.reading import Inner

log = logging.getLogger(__name__)

_lock = Lock()
_current: tuple[tuple[object, ...], Engine] | None = None
_loads = 0


def engine_for(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    seed: int = 0,
    token_budget: int | None = None,
    way: str = "auto",
    quantize: str = "none",
) -> Engine:
    """The engine for these settings; another model than the one loaded replaces it, so that only one is in memory.

    `way` is "fast", "reference", or "auto" for the fast one where the model's class supports it; `quantize` is "none"
    or "int8".

    Raises:
        ModelError: the model can't be loaded, or not run the way that was asked for.
    """
    global _current, _loads
    wanted = (model, device, dtype, seed, token_budget, way, quantize)
    with _lock:
        if _current is not None and _current[0] == wanted:
            return _current[1]
        _current = None
        _current = (wanted, _load(*wanted))
        _loads += 1
        return _current[1]


def _load(model: str, device: str, dtype: str, seed: int, token_budget: int | None, way: str, quantize: str) -> Engine:
    from gristmill.engine.fast import FastEngine, supports
    from gristmill.engine.loading import load_model

    loaded = load_model(model, device, dtype, token_budget, quantize)
    if way == "fast" or (way == "auto" and supports(loaded.model)):
        return whole(FastEngine(loaded, seed=seed, token_budget=token_budget), loaded)
    if way == "auto":
        log.info(
            "%s has no attention interface; the reference engine runs it",
            type(loaded.model).__name__,
            extra={"action": "engine_fallback"},
        )
    # Outlines takes seconds to import.
    from gristmill.engine.reference import ReferenceEngine

    return whole(ReferenceEngine(loaded, seed=seed, token_budget=token_budget), loaded)


def whole(inner: "Inner", loaded: "LoadedModel") -> Engine:
    """An engine that reads what it can off the text, and takes long texts in parts, around one that writes."""
    from gristmill.engine.reading import ReadingEngine
    from gristmill.engine.splitting import SplittingEngine

    return ReadingEngine(SplittingEngine(inner, loaded), loaded)


def load_count() -> int:
    """How many models this process has loaded so far."""
    return _loads


def release() -> None:
    """Forget the loaded model, so that its memory is given back."""
    global _current
    with _lock:
        _current = None
