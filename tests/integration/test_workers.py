"""Flow runs by real workers, with a fake engine: what they say of themselves, and how they share."""

import json
import signal

import httpx
import pytest

from tests.integration.place import DONE, Place, run_processes
from tests.postgres import Server


@pytest.fixture(scope="module", autouse=True)
def killed(place: Place) -> tuple[str, dict[str, str]]:
    """A nightly run that was killed with its worker, and its settings. Until that is noticed, other tests can go on."""
    place.fresh()
    place.drop("a", [f"r{i}" for i in range(300)])
    run = place.run("extract/nightly", cost=0.05)
    place.wait(place.generated)
    processes = run_processes(place.worker)
    place.worker.kill()
    place.worker.wait()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    place.worker = place.start_worker()
    return run, place.given


def test_a_run_tells_the_truth(place: Place) -> None:
    """Dead and queued records are in the run's state, message, tags and artifacts; its texts are nowhere."""
    place.fresh(chunk_records="1000", max_attempts="1")
    place.drop("a", [*(f"r{i}" for i in range(9_990)), *(f"dead{i}" for i in range(10))])
    run = place.run("extract/on-arrival")
    (seen,) = place.ended(run)
    assert (seen["state_type"], seen["state_name"]) == ("COMPLETED", "With dead records")
    assert seen["state"]["message"] == "9990 of 10000 records accepted, 0 queued for another attempt, 10 dead."
    assert {"records-dead", "gristmill", "extract"} <= set(seen["tags"])
    kept = place.artifacts()
    assert {"extract-report", "extract-counts", "extract-progress"} <= kept.keys()
    assert kept["extract-progress"]["data"] == 100.0
    count = {"flow_runs": {"id": {"any_": [run]}}}
    assert httpx.post(f"{place.api}/task_runs/count", json=count).json() < 60
    logged = place.logs_to(run, "With dead records")
    assert len([line for line in logged if " records; of the last 1000, " in line]) == 10
    assert any("GRISTMILL_CHUNK_RECORDS=1000 (Prefect variable)" in line for line in logged)
    said = "\n".join([*logged, *(str(artifact["data"]) for artifact in kept.values())])
    assert "secret text" not in said
    if place.url:
        assert f"postgresql://.../{place.url.rsplit('/', 1)[1]}" in said
    results = httpx.post(f"{place.api}/task_runs/filter", json=count | {"limit": 200}).text
    assert "secret text" not in results


def test_a_broken_run_is_failed(place: Place) -> None:
    """A run that can't begin is Failed with the sentence that says why."""
    (seen,) = place.ended(place.run("extract/on-arrival", model="/nowhere"))
    assert seen["state_type"] == "FAILED"
    assert "no model directory '/nowhere'" in seen["state"]["message"]


def test_upkeep(place: Place) -> None:
    """The weekly run checks and prunes; where something is broken it fails with what it is."""
    place.fresh()
    place.drop("a", ["x"])
    place.work_here()
    (place.data / "outbox" / "note" / "a.jsonl").unlink()
    (seen,) = place.ended(place.run("maintenance/weekly", keep_days=0))
    assert seen["state_type"] == "FAILED"
    assert "a.jsonl is missing; the database has 1 accepted records" in seen["state"]["message"]
    assert place.states() == {"accepted": 1}
    (file,) = place.store.ledger.files()
    place.store.rewrite(file)
    (seen,) = place.ended(place.run("maintenance/weekly", keep_days=0))
    assert seen["state"]["message"].startswith("1 files with 1 records")
    assert place.states() == {}


def test_cancelled(place: Place) -> None:
    """A cancelled run stops, says so, and what it had in hand can be taken over at once."""
    place.fresh()
    place.drop("a", [f"r{i}" for i in range(400)])
    run = place.run("extract/on-arrival", cost=0.05)
    place.wait(place.generated)
    cancelling = {"state": {"type": "CANCELLING"}}
    assert httpx.post(f"{place.api}/flow_runs/{run}/set_state", json=cancelling, timeout=30).is_success
    place.wait(lambda: place.seen(run)["state_type"] == "CANCELLED", 20)
    states = place.states()
    assert sum(states.values()) == 400
    assert states["waiting"] > 200
    # Another machine would have to wait for the lease of a run that did not let go of it.
    assert place.store.queue.recover("another", lease_seconds=100).records == states.get("leased", 0)


def test_a_killed_run_does_not_block_the_next(place: Place, killed: tuple[str, dict[str, str]]) -> None:
    """After SIGKILL of a nightly run's process and of its worker, the next nightly run starts and finishes."""
    first, given = killed
    place.use(given)
    second = place.run("extract/nightly")
    assert place.wait(lambda: place.seen(first)["state_type"] in DONE)
    assert place.seen(first)["state"]["message"].startswith("The process of this run fell silent")
    (seen,) = place.ended(second)
    assert seen["state_type"] == "COMPLETED"
    states = place.states()
    assert states["accepted"] + states.get("queued", 0) == 300


def test_four_workers(postgres: Server, place: Place) -> None:
    """Four runs at once have three and a half times the rate of one, never do a record twice, and survive a loss."""
    cost = 0.04
    place.fresh(chunk_records="50")
    workers = [place.worker, *(place.start_worker() for _ in range(3))]
    feeder = place.store.begin("extract")
    names: list[str] = []

    def feed() -> None:
        """See that nobody runs out of work before all are there, however long that takes."""
        if place.states().get("waiting", 0) < 400:
            names.append(f"f{len(names)}")
            place.drop(names[-1], [f"{names[-1]}-{i}" for i in range(400)])
            place.store.take_in(feeder)

    def rate(ends: list[float]) -> float:
        """Records a second."""
        return (len(ends) - 1) / (ends[-1] - ends[0])

    def while_all_work() -> list[float]:
        """When attempts ended, as long as each of four runs is known to be at work."""
        feed()
        found = place.generated()
        began, last = dict(reversed(found)), dict(found)
        return [at for _, at in found if max(began.values()) <= at <= min(last.values())] if len(last) == 4 else []

    feed()
    runs = [place.run("extract/on-arrival", cost=cost)]
    first = place.wait(lambda: len(found := place.generated()) > 100 and found)
    alone = [at for _, at in first]
    runs += [place.run("extract/on-arrival", cost=cost) for _ in range(3)]
    together = place.wait(lambda: len(found := while_all_work()) > 400 and found)
    print(f"one worker {rate(alone):.1f} records/s, four {rate(together):.1f}")
    assert rate(together) > 3.5 * rate(alone)
    assert all(run_processes(worker) for worker in workers)

    (victim,) = run_processes(workers[-1])
    victim.kill()
    place.ended(*runs)
    records = 400 * len(names)
    states = place.states()
    assert states["accepted"] + states.get("queued", 0) == records
    assert states.get("queued", 0) <= 50  # its chunk
    with place.store._database.connect() as db:
        tried = db.exec_driver_sql("SELECT count(*), count(DISTINCT record_pk) FROM attempts").one()
    assert tried == (records, records)
    place.store.run(place.store.begin("retry"), ignore_due=True)
    assert place.states() == {"accepted": records}
    for name in names:
        assert json.loads((place.data / "outbox" / "note" / f"{name}.done").read_text())["accepted"] == 400
    for worker in workers[1:]:
        worker.terminate()
    for worker in workers[1:]:
        worker.wait(60)
