"""Choosing the next token: greedy, or temperature and top-p with one random stream for each attempt."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gristmill.presets import Preset

_FIRST_LOOK = 256
"""How many of the most probable tokens are sorted first; they nearly always hold `top_p` of the mass."""


def seed_for(seed: int, record_id: str, attempt: int) -> int:
    """The seed of an attempt's random stream (63 bits), independent of its neighbours in a batch."""
    digest = hashlib.blake2b(f"{seed}\x00{record_id}\x00{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass
class RowSampler:
    """The choice of tokens for one attempt.

    The repetition penalty (Keskar et al. 2019, https://arxiv.org/abs/1909.05858) falls on tokens that this attempt
    chose itself, and never on the prompt's tokens nor on tokens without a letter (digits, quotes, brackets):
    structure and copied words have to repeat. A token that the grammar forces is the only one left, so no
    penalty can change it.
    """

    preset: Preset
    seed: int
    prompt_tokens: frozenset[int]
    has_letters: Callable[[int], bool]
    _penalised: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = torch.Generator(device="cpu").manual_seed(self.seed)

    def choose(self, logits: Tensor) -> int:
        """The next token from masked float32 logits of shape [vocabulary]; forbidden tokens are at -inf."""
        if not self.preset.do_sample:
            return int(logits.argmax())
        penalty = self.preset.repetition_penalty
        if penalty != 1.0 and self._penalised:
            index = torch.tensor(sorted(self._penalised), device=logits.device)
            seen = logits[index]
            logits = logits.index_copy(0, index, torch.where(seen > 0, seen / penalty, seen * penalty))
        token = self._draw(torch.softmax(logits / self.preset.temperature, dim=-1))
        if penalty != 1.0 and token not in self.prompt_tokens and self.has_letters(token):
            self._penalised.add(token)
        return token

    def _draw(self, probabilities: Tensor) -> int:
        size = probabilities.shape[-1]
        values, tokens = torch.topk(probabilities, min(_FIRST_LOOK, size))
        if float(values.sum()) < self.preset.top_p and size > _FIRST_LOOK:
            values, tokens = torch.sort(probabilities, descending=True)
        mass = values.cumsum(-1)
        kept = int((mass < self.preset.top_p).sum()) + 1
        values, mass = values[:kept], mass[:kept]
        point = torch.rand((), generator=self._random, dtype=torch.float64).item() * float(mass[-1])
        position = int(torch.searchsorted(mass, torch.tensor([point], device=mass.device, dtype=mass.dtype)))
        return int(tokens[min(position, len(values) - 1)])


def running_in_place(tokens: Sequence[int], *, span: int = 48, repeats: int = 8, longest_cycle: int = 16) -> bool:
    """Whether the last tokens are one cycle (1 to `longest_cycle` tokens) over and over.

    The cycle must have run at least `repeats` times and over at least `span` tokens: an answer may repeat a value
    in a short list, but not for so long.
    """
    size = len(tokens)
    for period in range(1, longest_cycle + 1):
        need = max(span, repeats * period)
        if size < need:
            continue
        if all(tokens[size - 1 - i] == tokens[size - 1 - i - period] for i in range(need - period)):
            return True
    return False


def is_filler(text: str, *, shortest: int = 64) -> bool:
    """Whether the end of an answer is nothing but digits and white space, which no field needs for so long."""
    return len(text) >= shortest and all(c.isdigit() or c.isspace() for c in text[-shortest:])
