"""The durable store: files, records, attempts and runs, in SQLite by default."""

from gristmill.store.database import open_database
from gristmill.store.ledger import FileRow, Ledger, RunRow
from gristmill.store.queue import Claim, Held, Judged, Queue, QueueRow, RecordState, Settled, Verdict

__all__ = [
    "Claim",
    "FileRow",
    "Held",
    "Judged",
    "Ledger",
    "Queue",
    "QueueRow",
    "RecordState",
    "RunRow",
    "Settled",
    "Verdict",
    "open_database",
]
