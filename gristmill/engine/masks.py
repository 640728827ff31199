"""Masks: which tokens the grammar allows next, applied to the logits of all rows at once."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def forbid(logits: Tensor, bitmask: NDArray[np.int32]) -> None:
    """Set logits of shape [rows, vocabulary] to -inf where the bit of `bitmask` ([rows, words]) is 0.

    Positions past the mask's last word, which a model larger than its vocabulary has, are forbidden too.
    """
    size = min(logits.shape[1], 32 * bitmask.shape[1])
    logits[:, size:] = float("-inf")
    if logits.device.type == "cpu":
        # Many times faster than shifting and masking words in torch.
        bits = np.unpackbits(np.invert(bitmask).view(np.uint8), axis=1, bitorder="little")
        forbidden = torch.from_numpy(bits).view(torch.bool)
    else:
        shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
        words = torch.from_numpy(bitmask).to(logits.device, non_blocking=True).unsqueeze(-1)
        forbidden = ((words >> shifts) & 1).flatten(1) == 0
    logits[:, :size].masked_fill_(forbidden[:, :size], float("-inf"))
