"""What the pipeline itself costs: a large file all the way from inbox to report, with an engine that costs nothing.

Prints a table and, as its last line, JSON. `--records 1000000` writes a file of about 300 MB and takes minutes.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from gristmill.engine import Outcome, Request
from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.testing import FakeEngine

SCHEMA = '''
from pydantic import BaseModel, Field
from gristmill import Example

class Note(BaseModel):
    """Read the note."""
    title: str = Field(max_length=40, description="what it is about")
    stars: int = Field(ge=1, le=5, description="how good it was")

EXAMPLES = [Example("great pizza, five stars", Note(title="pizza", stars=5))]
'''
TEXT = "The soup was cold when it came and the waiter did not care, but the view over the harbour made up for it. "
STEPS = ("take_in", "next_chunk", "generate", "check", "route", "report")


class Timed(FakeEngine):
    """The fake engine, and the seconds spent in it."""

    seconds = 0.0

    def generate(self, requests: Iterable[Request], started: Any) -> Iterator[Outcome]:
        """Answer, and count only the time between a batch's start and its last answer."""
        self.requests.clear()

        def begun(batch: Any) -> None:
            self.seconds += time.perf_counter() - self._since
            started(batch)
            self._since = time.perf_counter()

        def source() -> Iterator[Request]:
            for request in requests:
                self._since = time.perf_counter()
                yield request
                self.seconds += time.perf_counter() - self._since

        self._since = time.perf_counter()
        for outcome in super().generate(source(), begun):
            self.seconds += time.perf_counter() - self._since
            yield outcome
            self._since = time.perf_counter()


class Memory(threading.Thread):
    """Resident memory, read ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, int]] = []

    def run(self) -> None:
        """Read until the process ends."""
        process = psutil.Process()
        while True:
            self.samples.append((time.perf_counter(), process.memory_info().rss))
            time.sleep(0.1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where the data folder is made; default: the temporary folder")
    parser.add_argument("--database-url", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "schemas").mkdir()
        (folder / "schemas" / "note.py").write_text(SCHEMA)
        source = folder / "data" / "inbox" / "note" / "large.jsonl"
        source.parent.mkdir(parents=True)
        with source.open("w") as file:
            for number in range(options.records):
                file.write(
                    json.dumps(
                        {"id": f"record-{number:08}", "text": TEXT * 2 + f"Table {number} has ordered the same again."}
                    )
                    + "\n"
                )
        print(json.dumps(measured(folder, options.records, source.stat().st_size, options.database_url)))


def measured(folder: Path, records: int, size: int, url: str | None) -> dict[str, Any]:
    """Take the file through all steps; the figures."""
    settings = load_settings(data=folder / "data", schemas=folder / "schemas", settle_seconds=0.0, database_url=url)
    engine = Timed(batch=64)
    pipeline = Pipeline(settings, engine)
    seconds: dict[str, float] = defaultdict(float)
    for step in STEPS:
        setattr(pipeline, step, _timed(getattr(pipeline, step), step, seconds))
    memory = Memory()
    memory.start()
    began = time.perf_counter()
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    report = pipeline.run(run_id)
    whole = time.perf_counter() - began
    if report.states["accepted"] != records:
        raise SystemExit(f"only {report.states} of {records} records accepted")
    seconds["generate"] -= engine.seconds
    print(f"{records} records, {size / 1e6:.0f} MB, {whole:.1f} s, of which {engine.seconds:.1f} s in the fake engine")
    for step in STEPS:
        print(f"  {step:<11}{seconds[step]:>8.2f} s{seconds[step] / records * 1e3:>9.4f} ms a record")
    half = began + whole / 2
    early = max(rss for at, rss in memory.samples if at < half)
    late = max(rss for at, rss in memory.samples if at >= half)
    return {
        "records": records,
        "input_mb": round(size / 1e6, 1),
        "records_per_second": round(records / whole, 1),
        "own_ms_per_record": round((whole - engine.seconds) / records * 1e3, 4),
        "peak_rss_mb": round(max(early, late) / 1e6, 1),
        "peak_rss_mb_first_half": round(early / 1e6, 1),
        "peak_rss_mb_second_half": round(late / 1e6, 1),
        "database": pipeline.queue._engine.dialect.name,
    }


def _timed(function: Any, step: str, seconds: dict[str, float]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        before = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[step] += time.perf_counter() - before

    return call


if __name__ == "__main__":
    main()
