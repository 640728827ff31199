"""Inbox and outbox in object storage, against a local server that speaks S3."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gristmill.errors import SetupError, StorageError
from gristmill.pipeline import Pipeline
from gristmill.report import Report
from gristmill.settings import Settings, load_settings
from gristmill.testing import FakeEngine, first_example
from gristmill.watching import Watcher
from tests.unit.conftest import NOTE_SCHEMA

BAD = '{"title": "soup", "stars": 9}'


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server on loopback; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for _ in range(240):
            try:
                httpx.get(address, timeout=1)
                break
            except httpx.TransportError:
                time.sleep(0.25)
        yield address
        process.terminate()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A bucket of the test's own."""
    import boto3
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = tmp_path.name.replace("_", "-")
    boto3.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def settings(bucket: str, tmp_path: Path) -> Settings:
    """A machine whose inbox and outbox are in the bucket."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.py").write_text(NOTE_SCHEMA)
    return load_settings(
        data=tmp_path / "data", schemas=tmp_path / "schemas", settle_seconds=0.0, remote=f"s3://{bucket}/mill"
    )


def keys(bucket: str) -> dict[str, str]:
    """What lies in the bucket."""
    import boto3

    client = boto3.client("s3")
    listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {o["Key"]: client.get_object(Bucket=bucket, Key=o["Key"])["Body"].read().decode() for o in listed}


def drop(bucket: str, name: str, *ids: str) -> None:
    """Put a file into the remote inbox."""
    import boto3

    lines = "".join(json.dumps({"id": i, "text": "t"}) + "\n" for i in ids)
    boto3.client("s3").put_object(Bucket=bucket, Key=f"mill/inbox/note/{name}.jsonl", Body=lines.encode())


def run(pipeline: Pipeline, kind: str = "extract") -> None:
    """One run."""
    run_id = pipeline.begin(kind)
    if kind == "extract":
        pipeline.take_in(run_id)
    pipeline.run(run_id)


def test_in_and_out(bucket: str, settings: Settings) -> None:
    """A file of the remote inbox is done once and leaves it; results, and at last the mark, appear in the outbox."""
    pipeline = Pipeline(settings, FakeEngine(lambda r: BAD if r.record.id == "y" else first_example(r)))
    drop(bucket, "a", "x", "y")
    run(pipeline)
    found = keys(bucket)
    assert found.keys() == {"mill/outbox/note/a.jsonl"}
    assert json.loads(found["mill/outbox/note/a.jsonl"])["id"] == "x"
    for _ in range(2):
        run(pipeline, "retry")
    found = keys(bucket)
    assert found.keys() == {"mill/outbox/note/a.jsonl", "mill/outbox/note/a.done", "mill/dead/note/a.jsonl"}
    assert found["mill/outbox/note/a.done"] == (settings.data / "outbox" / "note" / "a.done").read_text()
    pipeline.requeue()
    assert keys(bucket).keys() == {"mill/outbox/note/a.jsonl"}


def test_watched(bucket: str, settings: Settings) -> None:
    """A watcher takes what appears in the remote inbox, with nothing in the local one, and puts results out."""
    reports: list[Report] = []
    watcher = Watcher(Pipeline(settings, FakeEngine()), None, reports.append)
    assert not watcher.look()
    drop(bucket, "a", "x", "y")
    for _ in range(200):
        if watcher.look():
            break
        time.sleep(0.1)
    assert [report.states["accepted"] for report in reports] == [2]
    assert keys(bucket).keys() == {"mill/outbox/note/a.jsonl", "mill/outbox/note/a.done"}


def test_a_new_version_is_not_removed_unread(bucket: str, settings: Settings) -> None:
    """An object that was replaced after it was copied stays, and is taken by the next run."""

    def replaces(request: object) -> str:
        return '{"title": "soup", "stars": 3}'

    pipeline = Pipeline(settings, FakeEngine(replaces))
    drop(bucket, "a", "x")
    remote = pipeline._remote
    assert remote is not None
    pull = remote.pull

    def pull_then_replaced(inbox: Path) -> None:
        pull(inbox)
        remote.pull = pull  # type: ignore[method-assign]
        drop(bucket, "a", "z")

    remote.pull = pull_then_replaced  # type: ignore[method-assign]
    run(pipeline)
    assert "mill/inbox/note/a.jsonl" in keys(bucket)
    run(pipeline)
    assert "mill/inbox/note/a.jsonl" not in keys(bucket)
    assert {json.loads(text)["id"] for key, text in keys(bucket).items() if key.endswith(".jsonl")} == {"x", "z"}


def test_storage_that_is_away(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that can't be reached is one line without keys; nothing is lost."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    pipeline = Pipeline(settings, FakeEngine())
    with pytest.raises(StorageError, match=r"s3://.*/mill: \w+; what was committed before is safe; see that") as caught:
        run(pipeline)
    assert "hunter2" not in str(caught.value)


def test_a_kind_that_is_not_known(settings: Settings) -> None:
    """A URL of another kind says what to install."""
    with pytest.raises(SetupError, match=r"GRISTMILL_REMOTE: nosuch:// can't be used"):
        Pipeline(settings.model_copy(update={"remote": "nosuch://x"}), FakeEngine())
