"""Loading a model: device and dtype decided and said, memory estimated first, tokenizer made fit for batches."""

import logging
import time
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from gristmill.engine.base import ModelInfo, as_quantized
from gristmill.engine.weights import prepare
from gristmill.errors import ModelError
from gristmill.models.directory import NEUTRAL_DECODING, ModelDirectory
from gristmill.models.locate import open_model
from gristmill.models.quiet import quiet_transformers
from gristmill.prompts import Message

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOKEN_BUDGET = 16_384
"""Positions of keys and values that are reckoned with where no budget was given."""

_PAD_NAMES = ("<|endoftext|>", "<pad>", "<|pad|>", "[PAD]", "<unk>")


@dataclass(frozen=True)
class LoadedModel:
    """A model on its device with its tokenizer; the only owner of the weights."""

    info: ModelInfo
    model: Any
    tokenizer: Any
    device: torch.device
    eos_id: int
    pad_id: int
    merge_system: bool
    special_tokens: tuple[str, ...] = ()

    def render(self, turns: list[Message]) -> str:
        """The prompt's text by the model's chat template, ready to be tokenized without special tokens added."""
        if self.merge_system:
            turns = merged_system(turns)
        text: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        if text.rstrip().endswith("<think>"):
            # A constrained answer can't think; an empty block is how such models are told not to.
            text = text.rstrip() + "\n\n</think>\n\n"
        return text


def merged_system(turns: list[Message]) -> list[Message]:
    """The same turns without a system role: its text stands before the first user turn."""
    if not turns or turns[0]["role"] != "system":
        return turns
    first = turns[1]
    return [{"role": first["role"], "content": f"{turns[0]['content']}\n\n{first['content']}"}, *turns[2:]]


def resolve_device(device: str) -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU.

    Raises:
        ModelError: the device does not exist on this machine.
    """
    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device {device!r} is not a device; use auto, cpu or cuda:0") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r}: this machine has no usable CUDA device; use auto or cpu")
    return resolved


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it, else float32.

    Raises:
        ModelError: an unknown name, or float16 on a CPU, which multiplies it hundreds of times slower.
    """
    if dtype == "auto":
        if device.type == "cuda":
            supported = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            capabilities = torch.cpu.get_capabilities()
            supported = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        return torch.bfloat16 if supported else torch.float32
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown; use auto, {', '.join(DTYPES)}")
    if dtype == "float16" and device.type == "cpu":
        raise ModelError("dtype 'float16' on a CPU is hundreds of times slower than float32; use auto or float32")
    return DTYPES[dtype]


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device now, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def load_model(
    model: str, device: str, dtype: str, token_budget: int | None = None, quantize: str = "none"
) -> LoadedModel:
    """Load a model directory; no hub is asked and no code from the directory is run.

    With `quantize` "int8" the weights of linear layers are kept and multiplied as 8-bit integers.

    Raises:
        ModelError: the directory is incomplete, does not fit into memory or the device, or has no chat template.
    """
    directory = open_model(model)
    on = resolve_device(device)
    as_dtype = resolve_dtype(dtype, on)
    token_budget = token_budget or TOKEN_BUDGET
    need, free = directory.memory_bytes(as_dtype.itemsize, token_budget), free_bytes(on)
    if need > free:
        raise ModelError(
            f"model {directory.name} needs about {need / 1e9:.1f} GB as {as_dtype} with a budget of {token_budget} "
            f"tokens, and {free / 1e9:.1f} GB are free on {on}; lower GRISTMILL_TOKEN_BUDGET or free memory"
        )
    began = time.perf_counter()
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory.path, local_files_only=True, trust_remote_code=False)
        with quiet_transformers():
            network: Any = AutoModelForCausalLM.from_pretrained(
                directory.path, local_files_only=True, trust_remote_code=False, dtype=as_dtype
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"model {directory.path} can't be loaded: {reason}; copy it again or use another") from error
    network = network.to(on).eval()
    network.requires_grad_(False)
    prepare(network, quantize)
    # transformers fills what a call leaves open from the model's own file; an empty one has nothing to fill in.
    network.generation_config = GenerationConfig()
    tokenizer.padding_side = "left"
    eos_id, pad_id = _end_and_pad(tokenizer, directory)
    if tokenizer.chat_template is None:
        raise ModelError(f"model {directory.path} has no chat template; instruct models do, copy chat_template.jinja")
    merge_system = not _takes_system(tokenizer)
    notes = ("the model's template takes no system role; its text was put before the first message",)
    info = ModelInfo(
        name=as_quantized(directory.name, quantize),
        fingerprint=as_quantized(directory.fingerprint, quantize),
        device=str(on),
        dtype=str(as_dtype).removeprefix("torch."),
        context_tokens=directory.context_tokens,
        notes=notes if merge_system else (),
    )
    log.info(
        "model %s loaded on %s as %s in %.1f s",
        info.name,
        info.device,
        info.dtype,
        time.perf_counter() - began,
        extra={"action": "model_loaded"},
    )
    special = tuple(t.content for t in tokenizer.added_tokens_decoder.values() if t.special)
    return LoadedModel(info, network, tokenizer, on, eos_id, pad_id, merge_system, special)


def greedy_config(max_new_tokens: int, eos_id: int, pad_id: int) -> GenerationConfig:
    """transformers' decoding parameters, all of them set: one greedy beam over logits that were decided before."""
    # Greedy decoding has no top-k; transformers warns of any value but its default.
    values = NEUTRAL_DECODING | {"top_k": 50}
    return GenerationConfig(
        **values, max_new_tokens=max_new_tokens, max_length=None, eos_token_id=eos_id, pad_token_id=pad_id
    )


def _end_and_pad(tokenizer: Any, directory: ModelDirectory) -> tuple[int, int]:
    eos_id = tokenizer.eos_token_id
    if eos_id is None:
        raise ModelError(f"the tokenizer of {directory.path} names no end token; set eos_token in its configuration")
    pad_id = tokenizer.pad_token_id
    if pad_id is None or pad_id == eos_id:
        known = tokenizer.get_vocab()
        others = [known[name] for name in _PAD_NAMES if name in known and known[name] != eos_id]
        pad_id = others[0] if others else eos_id
        tokenizer.pad_token_id = pad_id
    return int(eos_id), int(pad_id)


def _takes_system(tokenizer: Any) -> bool:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    try:
        tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except TemplateError:
        return False
    return True
