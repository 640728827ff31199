"""Measuring a tokenizer: how many characters a token of typical answers has."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from gristmill.models.directory import ModelDirectory


def characters_per_token(directory: ModelDirectory, texts: Sequence[str]) -> float:
    """Characters of the texts for each token that the model's tokenizer makes of them."""
    tokenizer = Tokenizer.from_file(str(directory.path / "tokenizer.json"))
    tokens = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
    return sum(map(len, texts)) / tokens if tokens else 1.0
