"""Several processes open one new database at once: none is refused."""

from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from gristmill.store.database import open_database

PROCESSES, FILES = 6, 60

context = get_context("forkserver")


def open_all(folder: Path, together: Barrier) -> None:
    """Open new databases, each in the moment in which the others do."""
    for i in range(FILES):
        together.wait(60)
        open_database(f"sqlite:///{folder / str(i)}.sqlite3").dispose()


def test_a_new_database_is_opened_by_several_at_once(tmp_path: Path) -> None:
    """SQLite refuses at once who turns a file to WAL while another does, so openers have to wait for each other."""
    together = context.Barrier(PROCESSES)
    processes = [context.Process(target=open_all, args=(tmp_path, together)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
