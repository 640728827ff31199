"""The Python API: an engine and batches of records, without Prefect and without folders."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from gristmill.checking import check
from gristmill.engine.base import Candidate, Engine, Failed, ModelInfo, Request
from gristmill.errors import SetupError
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import announce
from gristmill.policy import Again, Attempt, decide
from gristmill.presets import get_preset
from gristmill.records import Record, record_from
from gristmill.schema import Example, Schema, schema_of
from gristmill.settings import load_settings
from gristmill.spans import Spans

M = TypeVar("M", bound=BaseModel)
RecordLike = str | Mapping[str, Any] | Record


@dataclass(frozen=True, slots=True)
class Result(Generic[M]):
    """What came of one record: `output` is an instance of the schema's class, or None and `fault` says why.

    `index` is the record's position in the input from 0; tokens are summed over all attempts. `spans` says where in the
    text the values of verbatim fields stand.
    """

    id: str
    index: int
    output: M | None
    fault: Fault | None
    attempts: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    spans: Spans = field(default_factory=Spans)

    @property
    def ok(self) -> bool:
        """Whether there is an accepted output."""
        return self.fault is None


class Batcher:
    """An engine for ad-hoc batches; `gristmill.load` makes one. Not thread-safe."""

    def __init__(self, engine: Engine, preset: str = "extract") -> None:
        self._engine = engine
        self._preset = preset

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._engine.model

    def run(
        self,
        records: Iterable[RecordLike],
        schema: type[M],
        *,
        examples: Sequence[Example] | None = None,
        preset: str | None = None,
        attempts: int = 1,
    ) -> Iterator[Result[M]]:
        """Yield one result per record, in the order in which they finish.

        A record is a text, a mapping with `text` (and perhaps `id` and other fields), or a `Record`; ids that are
        missing are the position from 0. Worked examples stand as `EXAMPLES` beside the class unless given.
        With `attempts` above 1, failed records are tried again by the retry policy, without its waits.

        Raises:
            SetupError: the preset or `attempts` can't be used. SchemaError: the schema can't be made a grammar.
        """
        if not isinstance(attempts, int) or attempts < 1:
            raise SetupError(f"attempts={attempts!r} would do nothing; use a whole number from 1")
        if isinstance(records, str | bytes | Mapping):
            raise SetupError(f"records is one {type(records).__name__}, not many; put it into a list")
        first = get_preset(preset or self._preset)
        return self._run(records, schema_of(schema, examples), first.name, attempts)

    def run_schema(
        self, records: Iterable[RecordLike], schema: Schema, *, preset: str | None = None, attempts: int = 1
    ) -> Iterator[Result[Any]]:
        """As `run`, for a schema that was loaded from a schema file or made by hand."""
        return self._run(records, schema, get_preset(preset or self._preset).name, attempts)

    def _run(self, records: Iterable[RecordLike], schema: Schema, preset: str, attempts: int) -> Iterator[Result[Any]]:
        announce(schema)
        budget = get_preset(preset).max_new_tokens
        again: list[_Tried] = []
        unreadable: list[Result[Any]] = []

        def first_round() -> Iterator[_Tried]:
            for index, value in enumerate(records):
                record = _record(value, index)
                if isinstance(record, Fault):
                    unreadable.append(Result(str(index), index, None, record, 0))
                else:
                    yield _Tried(index, record, preset, budget)

        source: Iterable[_Tried] = first_round()
        for attempt in range(1, attempts + 1):
            for tried, result in self._round(source, schema, attempt):
                yield from unreadable
                unreadable.clear()
                following = tried.after(result, attempt) if attempt < attempts else None
                if following is None:
                    yield result
                else:
                    again.append(following)
            yield from unreadable
            unreadable.clear()
            source, again = again, []

    def _round(
        self, source: Iterable["_Tried"], schema: Schema, attempt: int
    ) -> Iterator[tuple["_Tried", Result[Any]]]:
        held: dict[int, _Tried] = {}

        def requests() -> Iterator[Request]:
            for tried in source:
                held[tried.index] = tried
                preset = get_preset(tried.preset)
                request = Request(tried.index, tried.record, schema, preset, tried.max_new_tokens, attempt)
                request = request.mending(tried.candidate, tried.fault, repaired=tried.repaired)
                held[tried.index] = replace(tried, repaired=request.repair is not None)
                yield request

        for outcome in self._engine.generate(requests(), lambda _: None):
            tried = held.pop(outcome.key)
            candidate = outcome.text if isinstance(outcome, Candidate) else None
            yield replace(tried, candidate=candidate), _result(tried, outcome, schema, attempt)


@dataclass(frozen=True)
class _Tried:
    index: int
    record: Record
    preset: str
    max_new_tokens: int
    history: tuple[Attempt, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    candidate: str | None = None
    fault: Fault | None = None
    repaired: bool = False

    def after(self, result: Result[Any], attempt: int) -> "_Tried | None":
        """This record as it is tried next, or None where it is done."""
        if result.fault is None or result.fault.code.permanent:
            return None
        history = (*self.history, Attempt(self.preset, self.max_new_tokens, result.fault.code))
        decision = decide(history, result.fault.code, max_attempts=attempt + 1)
        if not isinstance(decision, Again):
            return None
        return replace(
            self,
            preset=decision.preset,
            max_new_tokens=decision.max_new_tokens,
            history=history,
            prompt_tokens=result.prompt_tokens,
            completion_tokens=result.completion_tokens,
            fault=result.fault,
        )


def load(
    model: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    preset: str = "extract",
    seed: int | None = None,
    token_budget: int | None = None,
    quantize: str | None = None,
) -> Batcher:
    """Load a model, or hand out the one that this process has loaded with the same settings.

    `model` is a directory or "embedded"; what is None comes from the environment (`GRISTMILL_MODEL` ...).

    Raises:
        ModelError: the model is not there, incomplete, or does not fit. SetupError: another value can't be used.
    """
    from gristmill.engine import engine_for

    s = load_settings(
        model=str(model) if model is not None else None,
        device=device,
        dtype=dtype,
        preset=preset,
        seed=seed,
        token_budget=token_budget,
        quantize=quantize,
    )
    engine = engine_for(
        s.model,
        device=s.device,
        dtype=s.dtype,
        seed=s.seed,
        token_budget=s.token_budget,
        way=s.engine,
        quantize=s.quantize,
    )
    return Batcher(engine, s.preset)


def run_batch(
    records: Iterable[RecordLike],
    schema: type[M],
    *,
    model: str | None = None,
    examples: Sequence[Example] | None = None,
    preset: str = "extract",
    attempts: int = 3,
) -> list[Result[M]]:
    """Load, run and wait: one result per record, in input order.

    Raises:
        ModelError, SchemaError, SetupError: as `load` and `Batcher.run`.
    """
    results = load(model, preset=preset).run(records, schema, examples=examples, attempts=attempts)
    return sorted(results, key=lambda result: result.index)


def _record(value: RecordLike, index: int) -> Record | Fault:
    match value:
        case Record():
            return record_from({**value.fields, "id": value.id, "text": value.text}, str(index))
        case str():
            return record_from({"text": value}, str(index))
        case Mapping():
            return record_from(value, str(index))
        case _:
            kind = type(value).__name__
            return Fault(FaultCode.NOT_OBJECT, f"the record is a {kind}; give a text, a mapping with text, or a Record")


def _result(tried: _Tried, outcome: Candidate | Failed, schema: Schema, attempt: int) -> Result[Any]:
    base = (tried.record.id, tried.index)
    if isinstance(outcome, Failed):
        return Result(*base, None, outcome.fault, attempt, tried.prompt_tokens, tried.completion_tokens)
    checked = check(outcome.text, outcome.finish_reason, schema, lambda: tried.record.text)
    tokens = (tried.prompt_tokens + outcome.prompt_tokens, tried.completion_tokens + outcome.completion_tokens)
    if isinstance(checked, Fault):
        return Result(*base, None, checked, attempt, *tokens)
    return Result(*base, checked.output, None, attempt, *tokens, checked.spans)
