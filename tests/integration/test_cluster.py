"""A run spread over a local Dask cluster, with a fake engine."""

import subprocess
import sys

from tests.integration.place import ROOT, Place


def test_two_processes_of_a_cluster(place: Place) -> None:
    """Two processes work off one run, each record is done once, and the run ends as any other."""
    place.fresh(chunk_records="10", cluster="local:2")
    place.drop("a", [f"r{i}" for i in range(100)])
    environment = place.environment | {"FAKE_SECONDS": "0.02"}
    command = [sys.executable, "-m", "flows.extract"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "100 of 100 records accepted" in done.stdout + done.stderr
    with place.store._database.connect() as db:
        assert db.exec_driver_sql("SELECT count(*), max(number) FROM attempts").one() == (100, 1)
