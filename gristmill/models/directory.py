"""A model directory: what is in it, whether it is complete, and what it would take to run. Reads no weights."""

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from gristmill.errors import ModelError

_SAMPLE_BYTES = 65_536
_SAMPLES = 64

NEUTRAL_DECODING: dict[str, Any] = {
    "do_sample": False,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "guidance_scale": None,
    "min_length": 0,
    "min_new_tokens": None,
    "max_time": None,
    "stop_strings": None,
    "num_beams": 1,
    "num_return_sequences": 1,
    "use_cache": True,
}
"""Every decoding field of transformers that could change an answer, at the value that changes nothing. Choosing the
token is `gristmill.engine.sampling`'s business, so these hold under every preset."""

_MAX_NEW_FIELDS = ("max_length", "max_new_tokens")


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `gristmill model inspect` says. Sizes in bytes; memory is an estimate for the given token budget."""

    directory: str
    files: dict[str, int]
    model_type: str
    parameters: int
    context_tokens: int
    stored_dtype: str
    vocabulary_of_model: int
    tokens: dict[str, str | None]
    chat_template: bool
    generation_config_would_change: dict[str, Any]
    weight_bytes: dict[str, int]
    key_value_bytes_per_token: int
    memory_bytes: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


class ModelDirectory:
    """A directory with a model in transformers' layout.

    Raises:
        ModelError: it does not exist, or a file without which the model can't run is missing; the message lists
            what is there and what is not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        if not self.path.is_dir():
            raise ModelError(
                f"no model directory {str(path)!r}: models are read from local directories and no hub is asked; "
                "give the path of one, or 'embedded' after `gristmill model fetch`"
            )
        present = {p.name for p in self.path.iterdir() if p.is_file()}
        missing = [
            wanted
            for wanted, found in (
                ("config.json", "config.json" in present),
                ("weights (*.safetensors)", any(name.endswith(".safetensors") for name in present)),
                ("tokenizer (tokenizer.json)", "tokenizer.json" in present),
            )
            if not found
        ]
        if missing:
            raise ModelError(
                f"model directory {self.path} lacks its {' and '.join(missing)}; it holds "
                f"{', '.join(sorted(present)) or 'nothing'}; copy the missing files of the model there"
            )

    @property
    def name(self) -> str:
        """The directory's own name."""
        return self.path.name

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json`."""
        return self._json("config.json")

    @cached_property
    def weights(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Stored dtype and shape by tensor name, read from the headers of the safetensors files."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for path in sorted(self.path.glob("*.safetensors")):
            with path.open("rb") as file:
                try:
                    (size,) = struct.unpack("<Q", file.read(8))
                    header = json.loads(file.read(size)) if size < path.stat().st_size else None
                except (struct.error, ValueError):
                    header = None
            if not isinstance(header, dict):
                raise ModelError(f"{path} is cut short or not a safetensors file; copy it again")
            found |= {k: (v["dtype"], tuple(v["shape"])) for k, v in header.items() if k != "__metadata__"}
        return found

    @cached_property
    def parameters(self) -> int:
        """Number of stored parameters; tied embeddings count once."""
        return sum(prod(shape) for _, shape in self.weights.values())

    @property
    def context_tokens(self) -> int:
        """The longest sequence the model was made for, in tokens."""
        return int(self.config.get("max_position_embeddings", 2048))

    @property
    def key_value_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token of one row occupies in a 2-byte dtype."""
        c = self.config
        heads = c.get("num_attention_heads", 1)
        head = c.get("head_dim") or c.get("hidden_size", 0) // heads
        return int(2 * c.get("num_hidden_layers", 0) * c.get("num_key_value_heads", heads) * head * 2)

    def memory_bytes(self, dtype_bytes: int, token_budget: int) -> int:
        """Estimate of what running takes: parameters, keys and values for the budget, and a fifth as margin."""
        key_values = self.key_value_bytes_per_token * dtype_bytes // 2 * token_budget
        return int((self.parameters * dtype_bytes + key_values) * 1.2)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of configuration, tokenizer and 64 samples of 64 KiB from each weights file.

        Sampling keeps it under a second for weights of any size; fine-tuning changes nearly every weight, so
        another model of the same shape differs.
        """
        digest = hashlib.sha256()
        for path in sorted(self.path.iterdir()):
            if path.suffix == ".safetensors":
                size = path.stat().st_size
                digest.update(f"{path.name}:{size}".encode())
                with path.open("rb") as file:
                    for i in range(_SAMPLES):
                        file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
                        digest.update(file.read(_SAMPLE_BYTES))
            elif path.name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def generation_config_changes(self) -> dict[str, Any]:
        """What the directory's `generation_config.json` asks for that differs from what Gristmill decodes with."""
        if not (self.path / "generation_config.json").is_file():
            return {}
        asked = self._json("generation_config.json")
        return {
            key: value
            for key, value in asked.items()
            if (key in NEUTRAL_DECODING and value != NEUTRAL_DECODING[key]) or key in _MAX_NEW_FIELDS
        }

    def inspect(self, token_budget: int) -> Inspection:
        """Everything that can be told without loading the weights."""
        tokenizer = self._json("tokenizer_config.json") if (self.path / "tokenizer_config.json").is_file() else {}
        stored = {dtype for dtype, _ in self.weights.values()}
        return Inspection(
            directory=str(self.path),
            files={p.name: p.stat().st_size for p in sorted(self.path.iterdir()) if p.is_file()},
            model_type=str(self.config.get("model_type", "unknown")),
            parameters=self.parameters,
            context_tokens=self.context_tokens,
            stored_dtype=", ".join(sorted(stored)),
            vocabulary_of_model=int(self.config.get("vocab_size", 0)),
            tokens={kind: _token(tokenizer.get(f"{kind}_token")) for kind in ("pad", "eos", "bos")},
            chat_template="chat_template" in tokenizer or (self.path / "chat_template.jinja").is_file(),
            generation_config_would_change=self.generation_config_changes(),
            weight_bytes={name: self.parameters * size for name, size in (("float32", 4), ("bfloat16", 2))},
            key_value_bytes_per_token=self.key_value_bytes_per_token,
            memory_bytes={
                name: self.memory_bytes(size, token_budget) for name, size in (("float32", 4), ("bfloat16", 2))
            },
        )

    def _json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{self.path / name} can't be read as JSON: {error}; copy it again") from error
        if not isinstance(content, dict):
            raise ModelError(f"{self.path / name} is not a JSON object; copy it again")
        return content


def _token(value: Any) -> str | None:
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
