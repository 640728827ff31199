"""Masks: which tokens the grammar allows next, applied to the logits of all rows at once."""

import torch
from torch import Tensor


def forbid(logits: Tensor, bitmask: Tensor) -> None:
    """Set logits of shape [rows, vocabulary] to -inf where the bit of `bitmask` (int32, [rows, words]) is 0.

    Positions past the mask's last word, which a model larger than its vocabulary has, are forbidden too.
    """
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    bits = (bitmask.to(logits.device, non_blocking=True).unsqueeze(-1) >> shifts) & 1
    allowed = bits.flatten(1)[:, : logits.shape[1]]
    logits[:, allowed.shape[1] :] = float("-inf")
    logits[:, : allowed.shape[1]].masked_fill_(allowed == 0, float("-inf"))
