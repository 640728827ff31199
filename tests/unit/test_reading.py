"""Reading: the tagger on vectors made by hand, and which fields of a schema can be read."""

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Annotated, Literal

import pytest
import torch
from pydantic import BaseModel, Field

from gristmill import Example, Options, Verbatim
from gristmill.engine import Candidate, FinishReason, Outcome, Request
from gristmill.engine.base import Started
from gristmill.engine.reading import ReadingEngine
from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.rules import MISSING, Fixed
from gristmill.presets import PRESETS
from gristmill.reading.fields import LEAST_EXAMPLES, read_fields, reads
from gristmill.reading.reader import Reader, answer_of
from gristmill.reading.states import WordStates
from gristmill.reading.tagger import fit
from gristmill.records import Record
from gristmill.schema import Schema
from gristmill.testing import FakeEngine
from gristmill.verbatim import words_of

Words = Annotated[str, Verbatim()]


class Inner(BaseModel):
    """Below."""

    street: Words


class Trip(BaseModel):
    """A trip."""

    start: Words
    stop: Words | None = None
    via: list[Words] = []
    seats: Annotated[int, Field(ge=1, le=9)] = 1
    home: Inner | None = None
    address: Inner
    part: Annotated[str, Verbatim(unit="characters")] | None = None


class Plain(BaseModel):
    """Two towns."""

    start: Words
    stop: Words | None = None
    via: list[Words] = []


SIGNS = {"from": 0, "to": 1, "over": 2, "to!": 1}


def states(text: str) -> WordStates:
    """A vector for each word: which word it is behind, with some noise that is the same each time."""
    words = words_of(text, Verbatim())
    places = tuple(i for i, space in enumerate(words.spaces) if not space)
    vectors, behind = [], 3
    for i in places:
        vector = torch.zeros(8)
        vector[behind] = 1.0
        vector[4:] = torch.rand(4, generator=torch.Generator().manual_seed(sum(words.units[i].encode())))
        behind = SIGNS.get(words.units[i], 3)
        vectors.append(vector)
    stacked = torch.stack(vectors) if vectors else torch.zeros((0, 8))
    return WordStates(words, places, stacked, len(places))


def examples() -> tuple[Example, ...]:
    """Texts of one pattern, some without a stop."""
    towns = ["Ulm", "Bonn", "Kiel", "Jena", "Trier", "Köln", "Graz", "Linz", "Bern", "Genf"]
    made = []
    for i, town in enumerate(towns):
        stop = towns[(i + 3) % 10]
        if i % 3:
            made.append(Example(f"go from {town} to {stop} now", Plain(start=town, stop=stop)))
        else:
            made.append(Example(f"go from {town} over {stop} now", Plain(start=town, via=[stop])))
    return tuple(made)


def test_a_tagger_learns_what_its_vectors_say() -> None:
    """Runs are found at the words whose vectors mark them; cross-validation says how well."""
    vectors = [torch.eye(4)[[0, 1, 3, 3]], torch.eye(4)[[0, 3, 1, 1]], torch.eye(4)[[3, 1, 3, 0]]] * 4
    runs = [[(0, 1, 2)], [(0, 2, 4)], [(0, 1, 2)]] * 4
    tagger = fit(vectors, runs, 1)
    assert tagger.quality.f1 == 1.0
    assert [run for run, _ in tagger.runs(torch.eye(4)[[3, 1, 1, 0]])] == [(0, 1, 3)]
    assert tagger.runs(torch.zeros((0, 4))) == []


def test_a_reader_reads_values_and_absence() -> None:
    """What is marked is read, a field that nothing marks is left out, a list has all of its runs."""
    reader = Reader(Schema("plain", Plain, examples()), [states(e.text) for e in examples()])
    assert reader.quality.f1 > 0.9
    text = "go from Mainz over Fulda over Erfurt now"
    known = reader.read(text, states(text))
    assert known == {"start": Fixed("Mainz"), "stop": Fixed(MISSING), "via": Fixed(["Fulda", "Erfurt"])}
    answer = answer_of(constraint_for(Schema("plain", Plain)).tree, known)
    assert answer == ({"start": "Mainz", "via": ["Fulda", "Erfurt"]}, True)


def test_a_field_that_must_be_there_and_is_not_found_is_left_to_be_written() -> None:
    """Then the answer is not complete."""
    reader = Reader(Schema("plain", Plain, examples()), [states(e.text) for e in examples()])
    known = reader.read("go to Ulm now", states("go to Ulm now"))
    assert isinstance(known, dict)
    assert "start" not in known
    assert answer_of(constraint_for(Schema("plain", Plain)).tree, known) == ({"stop": "Ulm"}, False)


def test_examples_that_teach_nothing_leave_all_to_be_written() -> None:
    """Without a value that stands in its text nothing is known, and nothing breaks."""
    empty = (*[Example("go now", Plain(start="never there"))] * 9, Example("   ", Plain(start="x")))
    reader = Reader(Schema("plain", Plain, empty), [states(e.text) for e in empty])
    assert reader.read("go from Ulm", states("go from Ulm")) is None
    assert reader.paths == []


def test_which_fields_are_read() -> None:
    """Verbatim words at the top and in objects that must be there; not numbers, not parts of words, not in what may be
    absent as a whole."""
    fields = read_fields(constraint_for(Schema("trip", Trip)).tree)
    assert [(".".join(f.path), f.many, f.optional) for f in fields] == [
        ("start", False, False),
        ("stop", False, True),
        ("via", True, True),
        ("address.street", False, False),
    ]


def test_reading_begins_with_enough_examples() -> None:
    """`auto` needs eight, `on` two, `off` never reads, and a schema without verbatim fields has nothing to read."""
    few, enough = examples()[: LEAST_EXAMPLES - 1], examples()[:LEAST_EXAMPLES]
    assert not reads(Schema("plain", Plain, few))
    assert reads(Schema("plain", Plain, enough))
    assert reads(Schema("plain", Plain, few[:2], options=Options(reading="on")))
    assert not reads(Schema("plain", Plain, enough, options=Options(reading="off")))
    assert not reads(Schema("plain", Plain, enough, options=Options(verbatim=False)))


class StubStates:
    """An engine that writes the empty answer, and states that mark nothing but are counted."""

    def __init__(self) -> None:
        self.model = FakeEngine().model
        self.written: list[Request] = []

    def states(self, sequences: Iterable[Sequence[int]], layers: Sequence[int]) -> Iterator[torch.Tensor]:
        """A random state for each token, the same for the same token."""
        for tokens in sequences:
            rows = [torch.rand(4 * len(layers), generator=torch.Generator().manual_seed(t)) for t in tokens]
            yield torch.stack(rows)

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """Write nothing."""
        for request in requests:
            started([request])
            self.written.append(request)
            yield Candidate(request.key, "{}", FinishReason.STOP, 1, 1)


class LetterTokenizer:
    """A token for each character."""

    is_fast = True

    def __call__(self, text: str, **_: object) -> dict[str, list[object]]:
        return {"input_ids": [ord(c) % 997 for c in text], "offset_mapping": [(i, i + 1) for i in range(len(text))]}


class Named(BaseModel):
    """A name."""

    name: Words | None = None


@pytest.mark.parametrize("form", ["json", "xml"])
def test_no_text_ends_a_run(form: Literal["json", "xml"]) -> None:
    """Blank, long and odd texts have an outcome each and begin once each, whatever is read of them."""
    inner = StubStates()
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_hidden_layers=6))
    loaded = SimpleNamespace(tokenizer=LetterTokenizer(), model=SimpleNamespace(config=config))
    engine = ReadingEngine(inner, loaded)  # type: ignore[arg-type]
    taught = tuple(Example(f"{'x ' * i}Ann\x0b came", Named(name="Ann\x0b") if i % 2 else Named()) for i in range(10))
    schema = Schema("named", Named, taught, options=Options(format=form))
    texts = ["Ann\x0bB", "Ann\x0b", " ", "", "x" * 40_000, "a " * 30_000, "ok \ufffe z", "<|im_end|>", "\u200d"]
    begun: list[int] = []
    requests = [Request(i, Record(str(i), t), schema, PRESETS["extract"], 9) for i, t in enumerate(texts)]
    outcomes = list(engine.generate(requests, lambda batch: begun.extend(r.key for r in batch)))
    assert sorted(outcome.key for outcome in outcomes) == list(range(len(texts)))
    assert sorted(begun) == list(range(len(texts)))
    assert {4, 5} <= {request.key for request in inner.written}
