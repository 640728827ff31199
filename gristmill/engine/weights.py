"""Weights in the form in which this machine multiplies them fastest: prepacked, or as 8-bit integers.

On a CPU oneDNN brings the weights of a bfloat16 product into blocks before each product, which for few rows costs as
much as the product itself; packed once, they stay so. The results are those of the plain product, but for the order of
sums.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gristmill.errors import ModelError

QUANTIZE = ("none", "int8")


class PackedLinear(nn.Module):
    """A linear layer over weights that oneDNN has packed; bfloat16 on a CPU."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, states: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(states, self._packed, self._bias, "none", [], "")
        return out


class Int8Linear(nn.Module):
    """A linear layer over weights of 8 bits, one scale for each output; inputs are rounded to 8 bits too, with one
    scale for each token, so that no token's result depends on its neighbours."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float()
        self._scales = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        rounded = torch.round(weight / self._scales.unsqueeze(1)).to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self._zeros = torch.zeros(len(weight), dtype=torch.int64)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, states: Tensor) -> Tensor:
        """[..., in] to [..., out], in the dtype of the input."""
        flat = states.flatten(0, -2).float()
        scales = (flat.abs().amax(-1, keepdim=True) / 127).clamp_(min=torch.finfo(torch.float32).tiny)
        rounded = (flat / scales).round_().to(torch.int8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rounded, 1.0, 0, self._packed, self._scales, self._zeros, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        out = out.mul_(scales)
        if self._bias is not None:
            out += self._bias
        return out.to(states.dtype).view(*states.shape[:-1], self.out_features)


def prepare(model: Any, quantize: str) -> None:
    """Replace a loaded model's linear layers by faster ones, in place.

    Raises:
        ModelError: it can't be quantized on this device.
    """
    first = next(model.parameters())
    if quantize == "int8":
        if first.device.type != "cpu" or not hasattr(torch.ops.onednn, "qlinear_pointwise"):
            raise ModelError(f"quantize='int8' is for CPUs, and the model is on {first.device}; use 'none' there")
        _replace(model, Int8Linear)
    elif (
        first.device.type == "cpu" and first.dtype == torch.bfloat16 and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        _replace(model, PackedLinear)


def _replace(model: Any, kind: type[PackedLinear] | type[Int8Linear]) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, kind(child))
