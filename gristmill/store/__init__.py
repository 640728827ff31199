"""The durable store: files, records, attempts and runs, in SQLite by default."""

from gristmill.store.database import open_database
from gristmill.store.desk import Desk
from gristmill.store.figures import Figures
from gristmill.store.invariants import Invariants
from gristmill.store.ledger import FileRow, Ledger, RunRow
from gristmill.store.life import ACCEPTED, Claim, Failing, Held, QueueRow, RecordState, Settled, Verdict
from gristmill.store.outputs import Ends, Outputs
from gristmill.store.queue import Queue
from gristmill.store.retention import Old, Retention

__all__ = [
    "ACCEPTED",
    "Claim",
    "Desk",
    "Ends",
    "Failing",
    "Figures",
    "FileRow",
    "Held",
    "Invariants",
    "Ledger",
    "Old",
    "Outputs",
    "Queue",
    "QueueRow",
    "RecordState",
    "Retention",
    "RunRow",
    "Settled",
    "Verdict",
    "open_database",
]
