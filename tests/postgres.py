"""A PostgreSQL server of the tests' own: on loopback, in a temporary folder, ended with them."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_FOLDERS = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"
_START_SECONDS = 30


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL server that is installed."""
    found = [path for pattern in _FOLDERS for path in Path("/").glob(f"{pattern[1:]}/postgres")]
    on_path = shutil.which("postgres")
    found += [Path(on_path)] if on_path else []
    return max(found).parent if found else None


class Server:
    """A running server; `url()` gives a database of its own each time."""

    def __init__(self, folder: Path, bin_folder: Path, account: dict[str, int]) -> None:
        self._bin, self._account, self._folder = bin_folder, account, folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._count = 0
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        # Nothing is ever fsynced in vain here: a killed client is what is tested, not a power cut.
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-c", "fsync=off"]
        options += ["-c", f"unix_socket_directories={self._folder}", "-c", "max_connections=400"]
        command = [str(self._bin / "postgres"), "-D", str(self._folder / "data"), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._account)
        for _ in range(_START_SECONDS * 20):
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise RuntimeError(f"PostgreSQL did not start:\n{(self._folder / 'log').read_text()}")

    def stop(self) -> None:
        """End it at once, as `pg_ctl stop -m fast` does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    def execute(self, statement: str) -> None:
        """Run one statement in the server's first database."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def url(self) -> str:
        """The URL of a new, empty database."""
        self._count += 1
        self.execute(f"CREATE DATABASE t{self._count} STRATEGY file_copy")
        return self._address(f"t{self._count}")

    def forget(self, url: str) -> None:
        """Drop a database with whoever is still connected to it."""
        self.execute(f"DROP DATABASE {url.rsplit('/', 1)[1]} WITH (FORCE)")

    def _address(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"


@contextmanager
def server() -> Iterator[Server]:
    """A new server, gone with its data at the end.

    Raises:
        LookupError: none is installed.
    """
    bin_folder = binaries()
    if bin_folder is None:
        raise LookupError("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    # It refuses to run as root.
    account = {"user": pwd.getpwnam("postgres").pw_uid, "group": pwd.getpwnam("postgres").pw_gid}
    account = account if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="gristmill-postgres-"))
    try:
        if account:
            os.chown(folder, account["user"], account["group"])
        command = [str(bin_folder / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-N"]
        command += ["--no-locale", "-E", "UTF8"]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **account)
        running = Server(folder, bin_folder, account)
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
