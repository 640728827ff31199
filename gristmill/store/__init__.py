"""The durable store: files, records, attempts and runs, in SQLite by default."""

from gristmill.store.database import open_database
from gristmill.store.desk import Desk
from gristmill.store.ledger import FileRow, Ledger, RunRow
from gristmill.store.life import ACCEPTED, Claim, Held, Judged, QueueRow, RecordState, Settled, Verdict
from gristmill.store.queue import Queue

__all__ = [
    "ACCEPTED",
    "Claim",
    "Desk",
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
