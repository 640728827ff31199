"""SIGKILL at random moments: nothing is lost, nothing accepted is done twice, the outputs are the same."""

import gzip
import json
import random
import shutil
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from pydantic import SecretStr

from gristmill.pipeline import Pipeline
from gristmill.settings import Settings, load_settings
from gristmill.store import RecordState
from gristmill.testing import FakeEngine
from tests.durability import worker
from tests.unit.conftest import NOTE_SCHEMA

RECORDS = 500

context = get_context("forkserver")
context.set_forkserver_preload(["tests.durability.worker", "gristmill.grammar", "psycopg"])


class Scene:
    """A data folder with an inbox of `RECORDS` lines in two files, and the processes that work on it."""

    def __init__(self, folder: Path, url: str, chunk: int) -> None:
        self.data, self.schemas, self.log, self.chunk = folder / "data", folder / "schemas", folder / "log", chunk
        self.url = url or f"sqlite:///{folder / 'data' / 'gristmill.sqlite3'}"
        self.schemas.mkdir(parents=True)
        (self.schemas / "note.py").write_text(NOTE_SCHEMA)
        inbox = self.data / "inbox" / "note"
        inbox.mkdir(parents=True)
        lines = [json.dumps({"id": f"r{i}", "text": f"text {i}"}).encode() + b"\n" for i in range(RECORDS - 5)]
        (inbox / "a.jsonl").write_bytes(b"".join(lines[:300]) + b"not json\n" * 5)
        (inbox / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[300:]), mtime=0))
        self.log.touch()
        self.done: set[str] = set()
        self.looked = 0

    def start(self) -> BaseProcess:
        """Start one more worker."""
        process = context.Process(target=worker.work, args=(self.data, self.schemas, self.url, self.log, self.chunk))
        process.start()
        return process

    def pipeline(self) -> Pipeline:
        """A look into the store from outside."""
        settings: Settings = load_settings(data=self.data, schemas=self.schemas, settle_seconds=0.0)
        return Pipeline(settings.model_copy(update={"database_url": SecretStr(self.url)}), FakeEngine())

    def check_nothing_is_done_twice(self, store: Pipeline) -> None:
        """No record that was accepted when this was called last has entered the model since."""
        with self.log.open() as log:
            log.seek(self.looked)
            since = set(log.read().split())
        assert not since & self.done
        accepted = {row.record_id for row in store.desk.rows([RecordState.ACCEPTED])}
        assert self.done <= accepted
        # What entered the model before this moment may be what was accepted in it; what comes later may not.
        self.done, self.looked = accepted, self.log.stat().st_size

    def outputs(self) -> dict[str, list[object]]:
        """Outbox and dead files, without the number of attempts and the run's time: those tell of the kills."""
        found: dict[str, list[object]] = {}
        for path in sorted([*(self.data / "outbox").rglob("*.*"), *(self.data / "dead").rglob("*.*")]):
            told = ("attempts", "written")
            found[str(path.relative_to(self.data))] = [
                {key: value for key, value in json.loads(line).items() if key not in told}
                for line in path.read_text().splitlines()
            ]
        return found

    def check_it_is_whole(self, undisturbed: dict[str, list[object]]) -> None:
        """Every line is accepted or dead, the outputs are those of an undisturbed run, and nothing else is off."""
        store = self.pipeline()
        states: dict[str, int] = {}
        for file in store.ledger.files():
            for state, count in store.figures.states_of_file(file.id).items():
                states[state] = states.get(state, 0) + count
        assert states.keys() == {"accepted", "dead"}
        assert sum(states.values()) == RECORDS
        self.check_nothing_is_done_twice(store)
        store.report(store.begin("extract"))
        assert self.outputs() == undisturbed
        assert list(store.invariants.broken()) == []
        assert list(self.data.rglob("*.part")) == []
        store.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """The outputs of a run that nobody disturbs."""
    scene = Scene(tmp_path_factory.mktemp("undisturbed"), "", 100)
    process = scene.start()
    process.join()
    assert process.exitcode == 0
    return scene.outputs()


@pytest.mark.parametrize(("processes", "kills"), [(1, 200), (2, 60), (4, 60)])
def test_sigkill(
    processes: int, kills: int, database_url: str, tmp_path: Path, undisturbed: dict[str, list[object]]
) -> None:
    """Workers are killed at random moments and started again, until each of many runs is complete."""
    kills = kills if not database_url else kills // 5
    chance = random.Random(processes)
    killed, round_ = 0, 0
    while killed < kills:
        round_ += 1
        scene = Scene(tmp_path / str(round_), _emptied(database_url), chance.choice([20, 100, 1000]))
        running = [scene.start() for _ in range(processes)]
        while running:
            time.sleep(chance.uniform(0, 0.25))
            victim = chance.choice(running)
            if killed < kills and victim.is_alive():
                victim.kill()
                victim.join()
                killed += 1
                store = scene.pipeline()
                scene.check_nothing_is_done_twice(store)
                store.close()
                running[running.index(victim)] = scene.start()
            for ended in [process for process in running if not process.is_alive()]:
                assert ended.exitcode == 0
                running.remove(ended)
        scene.check_it_is_whole(undisturbed)
        shutil.rmtree(tmp_path / str(round_))
    assert killed == kills


def _emptied(url: str) -> str:
    if url:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
    return url


def test_poison(database_url: str, tmp_path: Path) -> None:
    """A record that kills the process dies after its attempts, and every neighbour of it lives."""
    scene = Scene(tmp_path / "scene", database_url, 100)
    for path in scene.data.rglob("*.jsonl*"):
        path.unlink()
    ids = [*(f"r{i}" for i in range(20)), "poison", *(f"r{i}" for i in range(20, 40))]
    (scene.data / "inbox" / "note" / "a.jsonl").write_text(
        "".join(json.dumps({"id": name, "text": "t"}) + "\n" for name in ids)
    )
    exits = []
    for _ in range(10):
        process = context.Process(target=worker.poisoned, args=(scene.data, scene.schemas, scene.url))
        process.start()
        process.join()
        exits.append(process.exitcode)
        if process.exitcode == 0 and not scene.pipeline().ledger.unfinished():
            break
    assert exits.count(-9) == 3
    (mark,) = (scene.data / "outbox" / "note").glob("*.done")
    assert json.loads(mark.read_text())["accepted"] == 40
    (line,) = (scene.data / "dead" / "note" / "a.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == "poison"
    assert json.loads(line)["error"]["code"] == "interrupted"
