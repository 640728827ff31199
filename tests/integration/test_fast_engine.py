"""The fast engine over tiny random models: the reference's answers, whatever else is in the batch."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from pydantic import BaseModel, Field, create_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    BloomForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from gristmill.engine import Candidate, Failed, FinishReason, Request, engine_for, release
from gristmill.engine.fast import FastEngine
from gristmill.engine.loading import load_model
from gristmill.engine.reference import ReferenceEngine
from gristmill.engine.weights import Int8Linear, PackedLinear
from gristmill.errors import ModelError
from gristmill.faults import FaultCode
from gristmill.grammar.constraint import constraint_for
from gristmill.presets import PRESETS, Preset
from gristmill.records import Record, read_lines
from gristmill.schema import Example, Schema, load_schema
from tests.integration.conftest import CHATML

ROOT = Path(__file__).parents[2]
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "tie_word_embeddings": True,
}


class Note(BaseModel):
    """Read it."""

    name: Annotated[str, Field(max_length=12)]
    kind: Literal["a", "bb", "ccc"]
    count: Annotated[int, Field(ge=0, le=99)]


NOTE = Schema("note", Note, (Example("x", Note(name="x", kind="a", count=1)),))
TEXTS = ["three short words", " ".join(f"word{i}" for i in range(90)), "naïve café 开心 😀", 'a\tb\n"c" \\d', "\nx"]


def requests(texts: Sequence[str], schema: Schema = NOTE, preset: str = "extract", budget: int = 48) -> list[Request]:
    return [Request(i, Record(str(i), text), schema, PRESETS[preset], budget) for i, text in enumerate(texts)]


def run(engine: FastEngine | ReferenceEngine, asked: Sequence[Request]) -> dict[int, Candidate]:
    """Candidates by key; a failure fails the test."""
    found = {outcome.key: outcome for outcome in engine.generate(asked, lambda _: None)}
    assert all(isinstance(outcome, Candidate) for outcome in found.values()), found
    return {key: outcome for key, outcome in found.items() if isinstance(outcome, Candidate)}


def fast(path: Path, **options: object) -> FastEngine:
    return FastEngine(load_model(str(path), "cpu", "float32"), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> FastEngine:
    return fast(tiny_llama)


@pytest.fixture(scope="module")
def sample_requests() -> list[Request]:
    """Twenty short messages of each sample schema."""
    asked = []
    for number, name in enumerate(("ticket", "invoice", "contact")):
        schema = load_schema(name, ROOT / "schemas")
        found = [
            line.content
            for path in sorted((ROOT / "data" / "samples" / name).glob("*.jsonl"))
            for line in read_lines(path.open("rb"), path.stem)
        ]
        short = [record for record in found if isinstance(record, Record) and len(record.text) < 250][:20]
        asked += [Request(100 * number + i, record, schema, PRESETS["extract"], 40) for i, record in enumerate(short)]
    return asked


@pytest.fixture(scope="module")
def reference_answers(tiny_llama: Path, sample_requests: list[Request]) -> dict[int, Candidate]:
    """What the reference says to the sample requests in float32."""
    return run(ReferenceEngine(load_model(str(tiny_llama), "cpu", "float32")), sample_requests)


def test_token_for_token(
    tiny_llama: Path, sample_requests: list[Request], reference_answers: dict[int, Candidate]
) -> None:
    """60 records of three schemas, float32, greedy, without fast-forward: the reference's tokens, all of them."""
    assert len(sample_requests) == 60
    assert run(fast(tiny_llama, fast_forward=False), sample_requests) == reference_answers


def test_fast_forward_gives_the_same_answers(
    engine: FastEngine, sample_requests: list[Request], reference_answers: dict[int, Candidate]
) -> None:
    """With fast-forward the answers are the same; where the forced text is split into other tokens, few differ."""
    answers = run(engine, sample_requests)
    whole = [key for key, one in reference_answers.items() if one.finish_reason is FinishReason.STOP]
    other_tokens = [key for key in answers if answers[key].tokens != reference_answers[key].tokens]
    differing = [key for key in whole if json.loads(answers[key].text) != json.loads(reference_answers[key].text)]
    assert set(differing) <= set(other_tokens)
    assert len(differing) <= len(whole) // 20


@pytest.mark.parametrize("preset", ["extract", "structured", "creative"])
def test_order_budget_and_company_change_nothing(tiny_llama: Path, engine: FastEngine, preset: str) -> None:
    """In float32 the same records give the same tokens in another order, with another budget, and alone."""
    asked = requests(TEXTS * 3, preset=preset)
    answers = run(engine, asked)
    assert run(engine, asked[::-1]) == answers
    assert run(fast(tiny_llama, max_rows=2, step_tokens=40), asked) == answers
    assert {key: run(engine, [asked[key]])[key] for key in range(5)} == {key: answers[key] for key in range(5)}


def test_schemas_and_presets_share_a_batch(engine: FastEngine, sample_requests: list[Request]) -> None:
    """Rows of different schemas and presets in one batch answer as they do among their own kind."""
    names = ["extract", "stable", "chat"]
    mixed = [Request(r.key, r.record, r.schema, PRESETS[names[i % 3]], 40) for i, r in enumerate(sample_requests[::3])]
    together = run(engine, mixed)
    for name in names:
        own = [r for r in mixed if r.preset.name == name]
        assert run(engine, own) == {r.key: together[r.key] for r in own}


MODELS: dict[str, tuple[type[PreTrainedConfig], Callable[..., torch.nn.Module], dict[str, object]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, {"sliding_window": 24, "query_pre_attn_scalar": 16}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": 20}),
    "mistral, no window": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
}


def saved(folder: Path, embedded: Path, kind: str) -> Path:
    """A tiny random model of a class, with the embedded model's tokenizer."""
    config_class, model_class, extra = MODELS[kind]
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(embedded, local_files_only=True)
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    config = config_class(vocab_size=len(tokenizer), **SIZES | extra, eos_token_id=2, pad_token_id=0, bos_token_id=1)
    model_class(config).save_pretrained(folder)  # type: ignore[operator]
    return folder


@pytest.mark.parametrize("kind", list(MODELS))
def test_model_classes(tmp_path: Path, embedded: Path, kind: str) -> None:
    """Each class answers as under the reference, sliding windows included, with prompts longer than the window."""
    path = saved(tmp_path / "m", embedded, kind)
    asked = requests(TEXTS, budget=24)
    expected = run(ReferenceEngine(load_model(str(path), "cpu", "float32")), asked)
    assert run(fast(path, fast_forward=False), asked) == expected


def innermost(engine: Any) -> Any:
    """The engine that writes, within those that read and that split texts."""
    while hasattr(engine, "_inner"):
        engine = engine._inner
    return engine


def test_a_class_without_the_interface(tmp_path: Path, embedded: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A class that has attention of its own is run by the reference, with one log line; asked for, it is refused."""
    tokenizer = AutoTokenizer.from_pretrained(embedded, local_files_only=True)
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(tmp_path)
    BloomForCausalLM(BloomConfig(vocab_size=len(tokenizer), hidden_size=32, n_layer=1, n_head=2)).save_pretrained(
        tmp_path
    )
    with caplog.at_level(logging.INFO, logger="gristmill.engine.owner"):
        assert isinstance(innermost(engine_for(str(tmp_path), dtype="float32", device="cpu")), ReferenceEngine)
    assert [r.getMessage() for r in caplog.records if r.name == "gristmill.engine.owner"] == [
        "BloomForCausalLM has no attention interface; the reference engine runs it"
    ]
    with pytest.raises(ModelError, match="BloomForCausalLM has no attention interface, which the fast engine needs"):
        engine_for(str(tmp_path), dtype="float32", device="cpu", way="fast")
    release()


def test_the_fast_engine_is_the_default(tiny_llama: Path) -> None:
    """A class with the interface is run by the fast engine unless the reference is asked for."""
    assert isinstance(innermost(engine_for(str(tiny_llama), device="cpu")), FastEngine)
    assert isinstance(innermost(engine_for(str(tiny_llama), device="cpu", way="reference")), ReferenceEngine)
    release()


class Yes(BaseModel):
    """Say yes."""

    answer: Literal["yes"]


FIELDS = {
    "text": (Annotated[str, Field(max_length=8)], ...),
    "number": (Annotated[int, Field(ge=-5, le=500)], ...),
    "share": (Annotated[float, Field(ge=0, le=1)], ...),
    "flag": (bool, ...),
    "choice": (Literal["one", "two", "zwölf"], ...),
    "maybe": (Annotated[str, Field(max_length=5)] | None, None),
    "items": (Annotated[list[Annotated[str, Field(max_length=4)]], Field(max_length=2)], ...),
}


def twenty_schemas() -> list[Schema]:
    """Twenty schemas with different sets of fields, nested ones among them."""
    made = []
    names = list(FIELDS)
    for i in range(20):
        chosen = {name: FIELDS[name] for k, name in enumerate(names) if (i * 37 + 11) >> k & 1} or {
            "flag": FIELDS["flag"]
        }
        model = create_model(f"M{i}", **chosen)  # type: ignore[call-overload]
        if i % 4 == 3:
            model = create_model(f"Outer{i}", inner=(model, ...), flag=(bool, ...))
        made.append(Schema(f"m{i}", model))
    return made


def test_two_thousand_random_generations(tiny_llama: Path, engine: FastEngine) -> None:
    """At temperature 1.5 every whole answer of 2,000 is valid JSON, and a fresh matcher accepts every row's tokens."""
    wild = Preset("wild", 1.5, 1.0, 1.0, 64, "")
    schemas = twenty_schemas()
    asked = [Request(i, Record(str(i), f"text {i}"), schemas[i % 20], wild, 64) for i in range(2000)]
    answers = run(engine, asked)
    tokenizer = from_tokenizer(engine._loaded.tokenizer, eos_token=engine._loaded.eos_id)
    matchers = [LLMatcher(tokenizer, constraint_for(schema).grammar("")) for schema in schemas]
    whole = 0
    for key, answer in answers.items():
        matcher = matchers[key % 20].deep_copy()
        assert matcher.consume_tokens(list(answer.tokens)), (key, matcher.get_error())
        if answer.finish_reason is FinishReason.STOP:
            whole += 1
            json.loads(answer.text)
            assert matcher.is_accepting()
    assert whole > 1000


def test_steps_saved_by_fast_forward(tiny_llama: Path) -> None:
    """Forced tokens cost no step of their own: a schema with one possible answer takes one step after the prompt."""
    schema = Schema("yes", Yes)
    with_it, without = fast(tiny_llama), fast(tiny_llama, fast_forward=False)
    for one in (with_it, without):
        run(one, requests(["warm up"], schema))
        one.steps = 0
        (answer,) = run(one, requests(["x"], schema)).values()
        assert json.loads(answer.text) == {"answer": "yes"}
    assert with_it.steps <= 1
    assert without.steps > 4


def test_prefixes_are_shared_and_kept(engine: FastEngine, sample_requests: list[Request]) -> None:
    """What the prompts of a schema have in common is fed once, also over several calls."""
    run(engine, sample_requests[:20])
    engine.tokens_fed = 0
    answers = run(engine, sample_requests[:20])
    shared = len(engine._prefixes[sample_requests[0].schema.fingerprint].tokens)
    assert shared > 300
    prompts = sum(answer.prompt_tokens for answer in answers.values())
    assert engine.tokens_fed <= prompts - 20 * shared + sum(answer.completion_tokens for answer in answers.values())


def test_prompts_that_share_everything_or_nothing(tiny_llama: Path) -> None:
    """A template that puts the record first shares nothing; a record of one letter shares all but its end."""
    first = Schema("note", Note, (), "{text} -- read this")
    for schema, texts in ((first, TEXTS), (NOTE, ["A", "7", "B"])):
        asked = requests(texts, schema)
        expected = run(ReferenceEngine(load_model(str(tiny_llama), "cpu", "float32")), asked)
        assert run(fast(tiny_llama, fast_forward=False), asked) == expected


def test_more_rows_than_fit(tiny_llama: Path) -> None:
    """With memory for a few rows only, all records are done, one that is larger than the budget among them."""
    asked = requests([*TEXTS * 4, "word " * 500, *TEXTS])
    small = fast(tiny_llama, token_budget=700)
    assert run(small, asked) == run(fast(tiny_llama), asked)


def test_out_of_memory_with_one_row(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that does not fit into memory even alone fails alone; its neighbours are done."""
    engine = fast(tiny_llama)
    forward = engine._loaded.model.forward

    def limited(**given):  # type: ignore[no-untyped-def]
        if int(given["position_ids"].max()) > 400:
            raise torch.OutOfMemoryError("out of memory")
        return forward(**given)

    monkeypatch.setattr(engine._loaded.model, "forward", limited)
    outcomes = {o.key: o for o in engine.generate(requests([*TEXTS, "word " * 500]), lambda _: None)}
    failed = [o for o in outcomes.values() if isinstance(o, Failed)]
    assert [(o.key, o.fault.code) for o in failed] == [(5, FaultCode.OUT_OF_MEMORY)]
    assert len(outcomes) == 6


def test_out_of_memory_goes_on_with_half(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the model runs out of memory, rows start again with half as many, and the answers are the same."""
    engine = fast(tiny_llama)
    expected = run(engine, requests(TEXTS * 3, preset="creative"))
    forward = engine._loaded.model.forward
    rows: list[int] = []

    def limited(**given):  # type: ignore[no-untyped-def]
        rows.append(len(given["logits_to_keep"]))
        if len(given["logits_to_keep"]) > 5:
            raise torch.OutOfMemoryError("out of memory")
        return forward(**given)

    monkeypatch.setattr(engine._loaded.model, "forward", limited)
    started: list[int] = []
    outcomes = {
        o.key: o
        for o in engine.generate(
            requests(TEXTS * 3, preset="creative"), lambda batch: started.extend(r.key for r in batch)
        )
    }
    assert outcomes == expected
    assert sorted(started) == list(range(15))
    assert max(rows) > 5
    # New pools have room for the rows that are left, not for those that did not fit.
    assert max(pool.slots for pool in engine._pools._pools.values()) <= 8


def test_an_error_or_a_stop_leaves_the_engine_whole(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an exception in a step, and after the caller stopped half-way, slots are free and answers unchanged."""
    engine = fast(tiny_llama)
    expected = run(engine, requests(TEXTS))
    with monkeypatch.context() as patch:
        patch.setattr(engine._loaded.model, "forward", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(engine, requests(TEXTS))
    half = engine.generate(requests(TEXTS * 5), lambda _: None)
    next(half)
    half.close()
    assert engine._pools.free()
    assert run(engine, requests(TEXTS)) == expected


def test_results_stream(engine: FastEngine) -> None:
    """The first outcome comes before the last request was read."""
    read = 0

    def source():  # type: ignore[no-untyped-def]
        nonlocal read
        for request in requests(["text"] * 500):
            read += 1
            yield request

    next(engine.generate(source(), lambda _: None))
    assert read < 300


def test_nothing_grows(engine: FastEngine) -> None:
    """Run after run, pools, prefixes and matchers stay as they are."""
    run(engine, requests(TEXTS * 4))
    before = (engine._pools.positions, len(engine._prefixes), len(engine._matchers._compiled))
    for _ in range(3):
        run(engine, requests(TEXTS * 4))
    assert (engine._pools.positions, len(engine._prefixes), len(engine._matchers._compiled)) == before


def test_the_budget_follows_the_free_memory(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others take or give back between two batches changes how much is held at once."""
    loaded = load_model(str(tiny_llama), "cpu", "float32")
    engine = FastEngine(loaded)
    before = engine._pools.budget
    monkeypatch.setattr("gristmill.engine.fast.free_bytes", lambda _: 0)
    assert list(engine.generate([], lambda _: None)) == []
    assert engine._pools.budget == 4096 < before


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_quantized_weights(tiny_llama: Path, sample_requests: list[Request], dtype: str) -> None:
    """Weights of 8 bits are another model by name and fingerprint, whose rows know nothing of their neighbours."""
    loaded = load_model(str(tiny_llama), "cpu", dtype, quantize="int8")
    assert loaded.info.name.endswith("-int8")
    assert loaded.info.fingerprint != load_model(str(tiny_llama), "cpu", dtype).info.fingerprint
    layers = [module for module in loaded.model.modules() if isinstance(module, Int8Linear)]
    plain = load_model(str(tiny_llama), "cpu", dtype).model.model.layers[0].mlp.up_proj
    states = torch.randn(1, 33, plain.in_features).to(loaded.model.dtype)
    exact, rounded = plain(states), loaded.model.model.layers[0].mlp.up_proj(states)
    assert rounded.dtype == states.dtype
    assert float((exact - rounded).float().norm() / exact.float().norm()) < 0.02
    alone = loaded.model.model.layers[0].mlp.up_proj(states[:, 5:6])
    assert torch.equal(alone[0, 0], rounded[0, 5])
    assert len(layers) == 7 * loaded.model.config.num_hidden_layers + 1
    together = FastEngine(loaded).generate(sample_requests[:6], lambda _: None)
    assert all(isinstance(outcome, Candidate) for outcome in together)


def test_packed_weights_give_the_plain_product(tiny_llama: Path) -> None:
    """In bfloat16 on a CPU weights are packed once; what comes out differs by the order of sums at most."""
    loaded = load_model(str(tiny_llama), "cpu", "bfloat16")
    packed = loaded.model.model.layers[0].mlp.down_proj
    assert isinstance(packed, PackedLinear)
    plain = torch.nn.Linear(packed.in_features, packed.out_features, bias=False, dtype=torch.bfloat16)
    weights = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.bfloat16).model.layers[0].mlp.down_proj
    plain.load_state_dict(weights.state_dict())
    states = torch.randn(1, 70, packed.in_features, dtype=torch.bfloat16)
    torch.testing.assert_close(packed(states), plain(states), rtol=0.01, atol=0.01)
