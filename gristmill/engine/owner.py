"""The owner of the process's model: loads it at the first use and hands out the same engine after that."""

from threading import Lock

from gristmill.engine.base import Engine

_lock = Lock()
_current: tuple[tuple[object, ...], Engine] | None = None
_loads = 0


def engine_for(model: str, *, device: str = "auto", dtype: str = "auto", seed: int = 0, token_budget: int) -> Engine:
    """The engine for these settings; another model than the one loaded replaces it, so that only one is in memory.

    Raises:
        ModelError: the model can't be loaded.
    """
    global _current, _loads
    wanted = (model, device, dtype, seed, token_budget)
    with _lock:
        if _current is not None and _current[0] == wanted:
            return _current[1]
        _current = None
        from gristmill.engine.loading import load_model
        from gristmill.engine.reference import ReferenceEngine

        loaded = load_model(model, device, dtype, token_budget)
        _loads += 1
        _current = (wanted, ReferenceEngine(loaded, seed=seed, token_budget=token_budget))
        return _current[1]


def load_count() -> int:
    """How many models this process has loaded so far."""
    return _loads


def release() -> None:
    """Forget the loaded model, so that its memory is given back."""
    global _current
    with _lock:
        _current = None
