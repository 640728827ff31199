"""`gristmill doctor`: whether everything that must hold does, and what is off where it does not."""

import gzip
import shutil
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from gristmill import intake
from gristmill.errors import SchemaError
from gristmill.outlet import accepted_line, dead_line, output_paths
from gristmill.pipeline import Pipeline
from gristmill.records import readable
from gristmill.store import FileRow, RecordState

_LOW_DISK_BYTES = 1 << 30
_AGAIN_SECONDS = 0.5


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
        yield Finding(
            False, f"{orphans} records were left unfinished by processes that ended", "the next run takes them over"
        )
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
    for path, folder in intake.inbox_files(pipeline.inbox):
        try:
            pipeline.schema(intake.schema_name(folder, None))
        except SchemaError as error:
            yield Finding(False, f"{readable(str(path.relative_to(pipeline.inbox)))} stays in the inbox", str(error))
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
    for file in pipeline.ledger.files():
        findings = _of_file(pipeline, file)
        if findings:
            # A run that is at work may have been between two of the looks; what is off stays so.
            time.sleep(_AGAIN_SECONDS)
            yield from _of_file(pipeline, file)


def _of_file(pipeline: Pipeline, file: FileRow) -> list[Finding]:
    way_out = f"`gristmill rewrite {file.output_name} --schema {file.schema}` puts it right"
    settings = pipeline.settings
    paths = [
        output_paths(file, pipeline.outbox, pipeline.dead, compress=compress)
        for compress in (settings.compress, not settings.compress)
    ]
    found: list[Finding] = []
    with pipeline.outputs.ends(file.id) as ends:
        if ends.pruned or not ends.written or ends.states.get(RecordState.LEASED):
            return []
        accepted = (accepted_line(file, row) for row in ends.accepted())
        dead = (dead_line(*one, file.key) for one in ends.dead())
        for place, expected, state in ((0, accepted, RecordState.ACCEPTED), (1, dead, RecordState.DEAD)):
            path = next((each[place] for each in paths if each[place].exists()), paths[0][place])
            if wrong := _differs(path, expected):
                count = ends.states.get(state, 0)
                what = f"{path} {wrong}; the database has {count} {state} records"
                found.append(Finding(True, what, way_out))
        mark = paths[0][2]
        if mark.exists() != ends.complete:
            what = "is missing" if ends.complete else "says that it is done, and it is not"
            found.append(Finding(True, f"{_named(file)}: the mark {mark.name} {what}", way_out))
    return found


def _differs(path: Path, expected: Iterator[str]) -> str:
    """How a file differs from the lines that it should hold; empty where it does not."""
    if not path.exists():
        return "is missing" if next(expected, None) is not None else ""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, (is_there, should_be) in enumerate(zip_longest(file, expected), start=1):
                if is_there is None or should_be is None or is_there.rstrip("\n") != should_be:
                    return f"differs in line {number} from what it should hold"
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        return f"can't be read ({type(error).__name__})"
    return ""


def _named(file: FileRow) -> str:
    return f"{file.schema}/{file.output_name}"
