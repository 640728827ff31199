"""Choosing tokens: greedy, nucleus, penalty, and rows that run in place."""

import pytest
import torch

from gristmill.engine.sampling import RowSampler, is_filler, running_in_place, seed_for
from gristmill.presets import PRESETS, Preset


def sampler(preset: Preset, *, seed: int = 1, prompt: frozenset[int] = frozenset()) -> RowSampler:
    """A sampler whose tokens below 50 are words, and those above digits and signs."""
    return RowSampler(preset, seed, prompt, lambda token: token < 50)


def test_greedy_takes_the_most_probable() -> None:
    """The default preset is argmax and draws nothing."""
    logits = torch.tensor([0.1, 3.0, 2.9])
    assert {sampler(PRESETS["extract"], seed=s).choose(logits) for s in range(20)} == {1}


def test_forbidden_tokens_are_never_drawn() -> None:
    """A token at -inf is not drawn at any temperature."""
    logits = torch.full((1000,), float("-inf"))
    logits[[3, 700]] = torch.tensor([0.0, 0.1])
    one = sampler(PRESETS["brainstorm"])
    assert {one.choose(logits.clone()) for _ in range(200)} == {3, 700}


def test_top_p_is_the_smallest_set_with_that_mass() -> None:
    """With masses .5, .3, .2 and top_p .7 the first two are drawn, in their proportion of 5 to 3."""
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    one = sampler(Preset("p", 1.0, 0.7, 1.0, 8, ""))
    drawn = [one.choose(logits) for _ in range(4000)]
    assert set(drawn) == {0, 1}
    assert drawn.count(0) / 4000 == pytest.approx(5 / 8, abs=0.03)


def test_a_flat_distribution_over_many_tokens() -> None:
    """When the first look holds too little of the mass, all tokens are looked at."""
    one = sampler(Preset("p", 1.0, 0.99, 1.0, 8, ""))
    drawn = {one.choose(torch.zeros(5000)) for _ in range(500)}
    assert max(drawn) > 3000
    assert len(drawn) > 400


def test_randomness_is_the_attempts_own() -> None:
    """The same seed, record and attempt draw the same; another record or attempt draws otherwise."""
    logits = torch.zeros(50)

    def drawn(record: str, attempt: int) -> list[int]:
        one = sampler(PRESETS["creative"], seed=seed_for(7, record, attempt))
        return [one.choose(logits) for _ in range(10)]

    assert drawn("a", 1) == drawn("a", 1)
    assert drawn("a", 1) != drawn("a", 2)
    assert drawn("a", 1) != drawn("b", 1)


@pytest.mark.parametrize(
    ("token", "prompt", "penalised"), [(3, frozenset(), True), (3, frozenset({3}), False), (60, frozenset(), False)]
)
def test_the_penalty_spares_prompt_and_structure(token: int, prompt: frozenset[int], penalised: bool) -> None:
    """A chosen word is less probable next time; a word of the prompt, a digit or a quote is not."""
    one = sampler(Preset("p", 0.01, 1.0, 1.1, 8, ""), prompt=prompt)
    first = torch.full((100,), float("-inf"))
    first[token] = 5.0
    assert one.choose(first) == token
    second = first.clone()
    # Penalised, 5.0 falls to 4.55 and loses against 4.8.
    second[10] = 4.8
    assert one.choose(second) == (10 if penalised else token)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([7] * 48, True),
        ([7] * 47, False),
        ([1, 2, 3] * 16, True),
        ([9, 9, 9, *([1, 2] * 24)], True),
        (list(range(16)) * 8, True),
        (list(range(16)) * 7, False),
        (list(range(200)), False),
        ([5] * 40 + [6] + [5] * 40, False),
        ([], False),
    ],
)
def test_running_in_place(tokens: list[int], expected: bool) -> None:
    """A cycle of up to 16 tokens counts once it has run 8 times and over 48 tokens."""
    assert running_in_place(tokens) is expected


def test_filler() -> None:
    """Endless digits or white space are filler; a number in words is not."""
    assert is_filler("1234567890" * 7)
    assert is_filler(" \n\t" * 30)
    assert not is_filler("12 eggs " * 20)
    assert not is_filler("1" * 63)
