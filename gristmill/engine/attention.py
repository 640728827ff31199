"""Attention over some of the keys, with what is needed to put it together with attention over others.

The parts of a softmax are merged by the logarithms of their sums (Milakov and Gimelshein 2018,
https://arxiv.org/abs/1805.02867). Query heads that share a key head are folded into the query length, so that no key is
ever repeated.
"""

import torch
from torch import Tensor

_FUSED = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""The kernel behind `scaled_dot_product_attention` on CPUs, which that function does not let return its sums."""


def attend(
    query: Tensor, keys: Tensor, values: Tensor, scaling: float, mask: Tensor | None = None, cap: float | None = None
) -> tuple[Tensor, Tensor]:
    """Weighted values [rows, key heads, queries, head size] and the logarithms of the weights' sums, in float32.

    Queries, keys and values are [rows, key heads, queries or keys, head size]; the additive `mask` [rows or 1, 1,
    queries, keys] has the queries' dtype. Scores are capped at `cap` by tanh. A query that sees nothing gets zeros, and
    any sum.
    """
    if _FUSED is not None and cap is None and query.device.type == "cpu":
        out, sums = _FUSED(query, keys, values, 0.0, False, attn_mask=mask, scale=scaling)
        return out, sums
    scores = (query @ keys.transpose(-1, -2)).float() * scaling
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if mask is not None:
        scores = scores + mask
    # Where all is hidden, every score is -inf, and so is the largest.
    top = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = (scores - top).exp_()
    total = weights.sum(-1, keepdim=True)
    out = (weights / total.clamp(min=torch.finfo(scores.dtype).tiny)).to(values.dtype) @ values
    return out, (top + total.log()).squeeze(-1)


def merged(out: Tensor, sums: Tensor, other: Tensor, other_sums: Tensor) -> Tensor:
    """Attention over two disjoint sets of keys out of that over each: values [..., head size], sums [...]."""
    share = torch.sigmoid(other_sums - sums).unsqueeze(-1)
    return torch.lerp(out.float(), other.float(), share)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen and -inf where it is not."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
