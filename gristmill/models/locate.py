"""From a model setting to a model directory."""

from pathlib import Path

from gristmill.errors import ModelError
from gristmill.models.directory import ModelDirectory
from gristmill.models.embedded import embedded_path


def open_model(model: str) -> ModelDirectory:
    """The directory that a model setting means: a path, or `embedded`.

    Raises:
        ModelError: the embedded model was not fetched yet, or the directory is incomplete.
    """
    if model != "embedded":
        return ModelDirectory(Path(model))
    path = embedded_path()
    if not (path / "config.json").is_file():
        raise ModelError(f"the embedded model is not in {path.parent}; run `gristmill model fetch` once")
    return ModelDirectory(path)
