"""Engines over records of their own: grammars tied to the text, states, reading, long texts in parts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pytest
import torch
from pydantic import BaseModel, Field
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import gristmill
from gristmill import Example, Options, Split, Verbatim
from gristmill.engine import Candidate, Engine, Failed, Outcome, Request
from gristmill.engine.fast import FastEngine
from gristmill.engine.hidden import hidden
from gristmill.engine.loading import load_model
from gristmill.engine.ragged import Apart, RaggedAttention
from gristmill.engine.reading import ReadingEngine
from gristmill.engine.reference import ReferenceEngine
from gristmill.engine.splitting import SplittingEngine
from gristmill.faults import FaultCode
from gristmill.grammar.rules import MISSING, Fixed
from gristmill.presets import PRESETS
from gristmill.records import Record
from gristmill.schema import Schema
from gristmill.verbatim import find

Words = Annotated[str, Verbatim()]


class Found(BaseModel):
    """Find the parts."""

    first: Words
    second: Words | None = None
    count: Annotated[int, Field(ge=0, le=99)]


FOUND = Schema("found", Found, (Example("a b", Found(first="a", count=1)),), options=Options(reading="off"))
TEXTS = [
    'say "hello" to\nall',
    "back\\slash & <b>",
    "東京タワーへ行く。",
    "one",
    " ".join(f"word{i}" for i in range(60)),
]


def requests(texts: Sequence[str], schema: Schema = FOUND, budget: int = 48) -> list[Request]:
    """One request per text."""
    return [Request(i, Record(str(i), text), schema, PRESETS["extract"], budget) for i, text in enumerate(texts)]


def run(engine: Engine, asked: Sequence[Request]) -> dict[int, Outcome]:
    """Outcomes by key."""
    return {outcome.key: outcome for outcome in engine.generate(asked, lambda _: None)}


def fast(folder: Path, **options: object) -> FastEngine:
    """The fast engine over a model in float32 on the CPU."""
    loaded = load_model(str(folder), "cpu", "float32", 8192)
    return FastEngine(loaded, token_budget=8192, **options)  # type: ignore[arg-type]


def test_each_record_is_held_to_its_own_words(tiny_llama: Path, llama_engine: ReferenceEngine) -> None:
    """In one batch every row has its own grammar; values stand in their texts; both engines write the same tokens."""
    mine, reference = run(fast(tiny_llama, fast_forward=False), requests(TEXTS)), run(llama_engine, requests(TEXTS))
    complete = 0
    for key, text in enumerate(TEXTS):
        candidate, other = mine[key], reference[key]
        assert isinstance(candidate, Candidate)
        assert isinstance(other, Candidate)
        assert candidate.tokens == other.tokens
        if candidate.finish_reason == "stop":
            complete += 1
            output = Found.model_validate_json(candidate.text)
            assert find(output.first, text, Verbatim())
    assert complete >= 3


def test_what_is_known_is_forced_without_steps(tiny_llama: Path) -> None:
    """An answer of which all but one number is known costs as many steps as that number has tokens, and a prefill."""
    engine = fast(tiny_llama)
    (request,) = requests(["one two"])
    known = {"first": Fixed("two"), "second": Fixed(MISSING)}
    run(engine, [request])
    before = engine.steps
    forced = Request(**{**{f: getattr(request, f) for f in request.__dataclass_fields__}, "known": known})
    (outcome,) = run(engine, [forced]).values()
    assert isinstance(outcome, Candidate)
    assert json.loads(outcome.text).keys() == {"first", "count"}
    assert json.loads(outcome.text)["first"] == "two"
    assert engine.steps - before <= 5


@pytest.mark.parametrize("length", [1, 7, 40])
def test_states_are_those_of_a_pass_on_its_own(tiny_llama: Path, llama_engine: ReferenceEngine, length: int) -> None:
    """Sequences that go through the model side by side know nothing of each other."""
    sequences = [[5 + i for i in range(length)], [9, 8, 7], [100 + i for i in range(2 * length)]]
    together = list(fast(tiny_llama).states(sequences, [1, 2]))
    alone = list(llama_engine.states(sequences, [1, 2]))
    for mine, theirs in zip(together, alone, strict=True):
        assert mine.shape == theirs.shape
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_states_behind_a_sliding_window() -> None:
    """A model whose layers look back a few tokens only has the same states through our attention as through its own."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    model = Gemma3ForCausalLM(config).eval()
    tokens, device = list(range(3, 20)), torch.device("cpu")
    with torch.inference_mode():
        own = hidden(model, tokens, range(len(tokens)), [1, 2], device)
        attention = RaggedAttention("gristmill_test_apart")
        model.set_attn_implementation("gristmill_test_apart")
        attention.step = Apart([len(tokens)])
        ours = hidden(model, tokens, range(len(tokens)), [1, 2], device)
    assert torch.allclose(own, ours, atol=1e-4)


class Visit(BaseModel):
    """Read the note and fill in who comes, from where, and when."""

    guest: Words
    town: Words | None = None
    day: Words | None = None


NAMES = ["Anna Berg", "Tom", "Maria da Silva", "Dr. Kim", "Ole", "Ines Roth", "J. Weber", "Li Wei", "Sara", "Paul Ny"]
TOWNS = ["Oslo", "New York", "Graz", "Porto Alegre", "Kiel", "Ulm", "Bad Aibling", "Lyon", "Turin", "Bern"]
DAYS = ["Monday", "next week", "tomorrow", "Friday at noon", "May 3"]


def visits() -> list[Example]:
    """Worked examples of three patterns."""
    made = []
    for i, (name, town) in enumerate(zip(NAMES, TOWNS, strict=True)):
        day = DAYS[i % 5]
        made.append(Example(f"{name} from {town} comes {day}.", Visit(guest=name, town=town, day=day)))
        made.append(Example(f"On the list: {name}, no day yet.", Visit(guest=name)))
    return made


def test_reading_with_a_real_model(embedded: Path) -> None:
    """Values are read off texts of the examples' patterns with other names in them; nothing is generated for it."""
    engine = gristmill.load(str(embedded), device="cpu", dtype="float32")
    texts = [
        "Ruth Klein from Bonn comes tomorrow.",
        "On the list: Hans Moor, no day yet.",
        "Eva from Rome comes May 3.",
    ]
    results = sorted(engine.run(texts, Visit, examples=visits()), key=lambda result: result.index)
    assert [result.output for result in results] == [
        Visit(guest="Ruth Klein", town="Bonn", day="tomorrow"),
        Visit(guest="Hans Moor"),
        Visit(guest="Eva", town="Rome", day="May 3"),
    ]
    assert all(result.completion_tokens == 0 for result in results)
    assert results[0].spans.places == {"guest": (0, 10), "town": (16, 20), "day": (27, 35)}


class Guest(Visit):
    """Read the note and fill in who comes, from where and when, and whether a day is given."""

    dated: bool


def test_the_rest_is_written_around_what_was_read(embedded: Path) -> None:
    """A schema with a field that is no text is written by the model, the read values forced."""
    examples = [
        Example(e.text, Guest(**e.output.model_dump(exclude_unset=True), dated="comes" in e.text)) for e in visits()
    ]
    engine = gristmill.load(str(embedded), device="cpu", dtype="float32")
    texts = ["Ruth Klein from Bonn comes tomorrow.", "On the list: Hans Moor, no day yet."]
    results = sorted(engine.run(texts, Guest, examples=examples), key=lambda result: result.index)
    assert [(r.output.guest, r.output.town) for r in results if r.output] == [
        ("Ruth Klein", "Bonn"),
        ("Hans Moor", None),
    ]
    assert all(result.completion_tokens > 0 for result in results)


def test_long_texts_are_answered_in_parts(tiny_llama: Path) -> None:
    """A text beyond the context is dead without `split`, and one answer of its parts' with it; it begins once."""
    loaded = load_model(str(tiny_llama), "cpu", "float32", 8192)
    engine = ReadingEngine(SplittingEngine(FastEngine(loaded, token_budget=8192), loaded), loaded)
    text = "\n\n".join(f"Paragraph {i} has a few words. It ends here." for i in range(200))
    split = Options(reading="off", split=Split(merge={"first": "longest", "count": max}))
    whole = Schema("found", Found, FOUND.examples, options=split)
    (refused,) = run(engine, requests([text])).values()
    assert isinstance(refused, Failed)
    assert refused.fault.code is FaultCode.TOO_LONG
    begun: list[int] = []
    asked = requests([text, "one two"], whole, budget=160)
    outcomes = {o.key: o for o in engine.generate(asked, lambda batch: begun.extend(r.key for r in batch))}
    assert sorted(begun) == [0, 1]
    merged = outcomes[0]
    assert isinstance(merged, Candidate)
    assert merged.prompt_tokens > loaded.info.context_tokens
    if merged.finish_reason == "stop":
        assert find(Found.model_validate_json(merged.text).first, text, Verbatim())
