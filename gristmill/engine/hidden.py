"""Hidden states: what the model makes of each token, layer by layer, without writing anything."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def hidden(
    model: Any, tokens: Sequence[int], positions: Sequence[int], layers: Sequence[int], device: torch.device
) -> Tensor:
    """States [tokens, layers * width] in float32 after the given layers, of mean 0 and variance 1 over each width."""
    out = model(
        input_ids=torch.tensor([list(tokens)], device=device),
        position_ids=torch.tensor([list(positions)], device=device),
        use_cache=False,
        output_hidden_states=True,
        logits_to_keep=1,
    )
    chosen = [out.hidden_states[layer][0].float() for layer in layers]
    return torch.cat([torch.nn.functional.layer_norm(states, states.shape[-1:]) for states in chosen], dim=-1)


def batched_by_size(sequences: Iterable[Sequence[int]], limit: int) -> Iterator[list[Sequence[int]]]:
    """Sequences in their order, so many together as have `limit` tokens; a longer one alone."""
    batch: list[Sequence[int]] = []
    size = 0
    for sequence in sequences:
        if batch and size + len(sequence) > limit:
            yield batch
            batch, size = [], 0
        batch.append(sequence)
        size += len(sequence)
    if batch:
        yield batch
