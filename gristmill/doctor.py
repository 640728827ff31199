"""`gristmill doctor`: whether everything that must hold does, and what is off where it does not."""

import gzip
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gristmill import intake
from gristmill.errors import SchemaError
from gristmill.outlet import output_paths
from gristmill.pipeline import Pipeline
from gristmill.records import readable
from gristmill.store import FileRow, RecordState

_LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is off. `broken`: it should never be; otherwise the next run or a person settles it."""

    broken: bool
    what: str
    way_out: str


def examine(pipeline: Pipeline) -> Iterator[Finding]:
    """Go through database, outputs, inbox, schemas and disk; everything that is off."""
    backup = "put a backup of the database in its place, or ask for help with these ids"
    for broken in chain(pipeline.invariants.damaged(), pipeline.invariants.broken()):
        yield Finding(True, broken, backup)
    orphans, half_read = pipeline.invariants.left_by_the_dead()
    if orphans:
        yield Finding(False, f"{orphans} records are held by processes that died", "the next run takes them over")
    if half_read:
        what = f"{half_read} files were half read by processes that died"
        yield Finding(False, what, "the next run reads them again")
    yield from _outputs(pipeline)
    for file in pipeline.outputs.behind():
        what = f"{_named(file)}: outbox and dead file are behind the database"
        yield Finding(False, what, "the next run writes them")
    for path in intake.strangers(pipeline.inbox):
        name = readable(str(path.relative_to(pipeline.inbox)))
        yield Finding(False, f"{name} lies in the inbox and is never taken", "name it .jsonl, in a schema's folder")
    for name, counts in pipeline.ledger.unfinished().items():
        try:
            pipeline.schema(name)
        except SchemaError as error:
            yield Finding(False, f"{sum(counts.values())} records of schema {name!r} wait", str(error))
    free = shutil.disk_usage(pipeline.settings.data).free
    if free < _LOW_DISK_BYTES:
        yield Finding(False, f"{free / 1e6:.0f} MB are free in {pipeline.settings.data}", "free some space")


def _outputs(pipeline: Pipeline) -> Iterator[Finding]:
    """Files whose outputs are said to be written and are not what they should be."""
    behind = {file.id for file in pipeline.outputs.behind()}
    for file in pipeline.ledger.files():
        if file.id in behind or file.pruned:
            continue
        states = pipeline.figures.states_of_file(file.id)
        if states.get(RecordState.LEASED):
            continue
        compress = pipeline.settings.compress
        accepted, dead, mark = output_paths(file, pipeline.outbox, pipeline.dead, compress=compress)
        other, other_dead, _ = output_paths(file, pipeline.outbox, pipeline.dead, compress=not compress)
        for path, other_path, state in (
            (accepted, other, RecordState.ACCEPTED),
            (dead, other_dead, RecordState.DEAD),
        ):
            expected = states.get(state, 0)
            found = _lines(path if path.exists() else other_path)
            if found != expected:
                way_out = f"`gristmill rewrite {file.output_name} --schema {file.schema}` writes it anew"
                yield Finding(True, f"{path} holds {found} lines, the database {expected} {state} records", way_out)
        done = states.keys() <= {RecordState.ACCEPTED, RecordState.DEAD}
        if mark.exists() != done:
            way_out = f"`gristmill rewrite {file.output_name} --schema {file.schema}` puts it right"
            what = "is missing" if done else "says that it is done, and it is not"
            yield Finding(True, f"{_named(file)}: the mark {mark.name} {what}", way_out)


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return sum(1 for _ in file)


def _named(file: FileRow) -> str:
    return f"{file.schema}/{file.output_name}"
