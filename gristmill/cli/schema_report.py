"""What `gristmill schema check` says of a schema, as data and as lines."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap

from gristmill.errors import SchemaError
from gristmill.faults import FaultCode
from gristmill.grammar.bounds import CHARACTERS_PER_TOKEN, bounds_of
from gristmill.grammar.constraint import bad_examples, constraint_for
from gristmill.policy import Again, Attempt, decide
from gristmill.presets import PRESETS, Preset
from gristmill.reading.fields import LEAST_EXAMPLES, read_fields, reads
from gristmill.schema import load_schema, written

_WIDTH = 110


@dataclass(frozen=True)
class FieldLine:
    """A field's worst case in tokens; where it has no end, with one of each thing that has none."""

    name: str
    tokens: int
    endless: bool


@dataclass(frozen=True)
class SchemaReport:
    """All that is to be said of a schema; `error` where it can't be used. Paths are `$.field`, `$.list[]`.

    `tokens` is the worst case of a whole answer at `characters_per_token`, `endless` what has no end and is counted
    once in it, `capped` what only `max_string` ends, `copied` what the record's text ends. `tied` are the fields that
    can be read off the text, and `read` says whether there are examples enough to do so. `budgets` are those of the
    attempts that a preset allows an answer that was cut.
    """

    name: str
    error: str | None = None
    model: str = ""
    examples: int = 0
    bad_examples: list[str] = field(default_factory=list)
    format: str = "json"
    characters_per_token: float = CHARACTERS_PER_TOKEN
    measured_with: str | None = None
    max_string: int = 0
    fields: list[FieldLine] = field(default_factory=list)
    tokens: int = 0
    endless: list[str] = field(default_factory=list)
    capped: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    left_to_validation: list[str] = field(default_factory=list)
    checked_by_nothing: list[str] = field(default_factory=list)
    tied: list[str] = field(default_factory=list)
    read: bool = False
    preset: str = ""
    budgets: list[int] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether it can be used as it is."""
        return self.error is None and not self.bad_examples


def checked(name: str, folder: Path, preset: Preset, model: str | None = None) -> SchemaReport:
    """Look at a schema of a folder; `model` is the directory whose tokenizer counts.

    Raises:
        ModelError: there is no such model.
    """
    try:
        schema = load_schema(name, folder)
        constraint = constraint_for(schema)
    except SchemaError as error:
        return SchemaReport(name, str(error))
    rate = CHARACTERS_PER_TOKEN
    if model is not None:
        from gristmill.models.locate import open_model
        from gristmill.models.measure import characters_per_token

        texts = [constraint.spell(written(example.output)) for example in schema.examples]
        rate = round(characters_per_token(open_model(model), texts), 2) if texts else rate
    unchecked = list(getattr(schema.model, "unchecked", ()))
    bounds = bounds_of(constraint.tree, xml=constraint.format == "xml", copied_characters=schema.options.max_string)
    return SchemaReport(
        name,
        None,
        schema.model.__name__,
        len(schema.examples),
        [f"example {bad.number}, by {bad.by}: {bad.where}" for bad in bad_examples(schema, constraint)],
        constraint.format,
        rate,
        model if schema.examples else None,
        schema.options.max_string,
        [FieldLine(each.name, each.size.tokens(rate), each.size.endless) for each in bounds.fields],
        bounds.whole.tokens(rate),
        list(bounds.endless),
        list(bounds.capped),
        list(bounds.copied),
        [path for path in constraint.relaxed if path not in unchecked],
        unchecked,
        [".".join(field.path) for field in read_fields(constraint.tree)],
        reads(schema),
        preset.name,
        _budgets(preset),
    )


def _budgets(preset: Preset) -> list[int]:
    """Tokens of the attempts that an answer gets which is cut each time."""
    history = [Attempt(preset.name, preset.max_new_tokens, FaultCode.TRUNCATED)]
    while isinstance(following := decide(history, FaultCode.TRUNCATED), Again):
        history.append(Attempt(following.preset, following.max_new_tokens, FaultCode.TRUNCATED))
    return [attempt.max_new_tokens for attempt in history]


def lines_of(report: SchemaReport) -> Iterator[str]:
    """The report as text."""
    if report.error is not None:
        yield f"{report.name}: {report.error}"
        return
    yield f"{report.name}: class {report.model}, grammar compiled, {_examples(report)}"
    yield from _block("refused examples; correct their output, or the field", report.bad_examples)
    if not report.examples:
        yield "  no worked example: a small model needs at least one; give it EXAMPLES (x-examples in a JSON file)"
    if report.tied:
        yield from _indented(_how_answered(report), "  ")
    yield from _indented(_longest(report), "  ")
    width = max((len(each.name) for each in report.fields), default=0)
    for each in report.fields:
        yield f"    {each.name:<{width}}  {each.tokens:>7,}{' and no end' if each.endless else ''}"
    yield from _indented(_verdict(report), "  ")
    yield from _block("without an end, so that an answer may run to its token budget", report.endless)
    yield from _block(f"ended by max_string alone, at {report.max_string:,} characters", report.capped)
    yield from _block(
        f"copied from the text, so no longer than that; reckoned with {report.max_string:,} characters", report.copied
    )
    yield from _block("not or not wholly in the grammar, left to validation", report.left_to_validation)
    yield from _block("checked by nothing", report.checked_by_nothing)


def _examples(report: SchemaReport) -> str:
    if not report.examples:
        return "no worked examples"
    count = f"{report.examples} worked example{'s' if report.examples > 1 else ''}"
    return f"{count}, of which its own schema refuses some" if report.bad_examples else f"{count} tried"


def _how_answered(report: SchemaReport) -> str:
    if report.read:
        return (
            f"read off the text, as the examples teach it: {', '.join(report.tied)}; all else is written by the model"
        )
    return (
        f"written by the model; with {LEAST_EXAMPLES} worked examples or more (OPTIONS reading) could be read off the "
        f"text: {', '.join(report.tied)}"
    )


def _longest(report: SchemaReport) -> str:
    how = "measured on the examples" if report.measured_with else "assumed; --model MODEL measures it"
    rate = f"at {report.characters_per_token} characters a token ({how})"
    if report.endless:
        counted = "counting once what has no end"
        return f"longest answer as {report.format.upper()}: no end; {report.tokens:,} tokens {counted}, {rate}:"
    return f"longest answer as {report.format.upper()}: {report.tokens:,} tokens, {rate}:"


def _verdict(report: SchemaReport) -> str:
    first, last = report.budgets[0], report.budgets[-1]
    needed, which = report.tokens, f"preset {report.preset}"
    if report.endless:
        start = (
            f"{which}: {first:,} tokens. Longer answers are cut and tried again with up to {last:,}; a part without an "
            "end (below) could need any number, so give it one"
        )
        return start if needed <= first else f"{start}. What has one needs {needed:,} already"
    if needed <= first:
        return f"{which}: its {first:,} tokens suffice"
    larger = min((one.max_new_tokens for one in PRESETS.values() if one.max_new_tokens >= needed), default=None)
    names = " or ".join(one.name for one in PRESETS.values() if one.max_new_tokens == larger)
    other = f"; {names} has {larger:,}" if larger is not None else ""
    if needed <= last:
        attempt = next(i for i, budget in enumerate(report.budgets, start=1) if budget >= needed)
        return (
            f"{which}: the first attempt has {first:,} tokens; an answer that is cut gets twice as many, and the "
            f"{report.budgets[attempt - 1]:,} of attempt {attempt} suffice{other}"
        )
    return (
        f"{which}: {needed:,} tokens would suffice, but the last attempt has {last:,}; an answer as long as that ends "
        f"dead as truncated. Shorten the longest fields{other}"
    )


def _block(title: str, items: list[str]) -> Iterator[str]:
    if not items:
        return
    yield f"  {title}:"
    for item in items:
        yield from _indented(item, "    ")


def _indented(text: str, indent: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)
