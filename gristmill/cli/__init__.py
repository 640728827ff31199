"""The command `gristmill`."""

import logging
import os
import signal
import sys
from typing import NoReturn

from gristmill.errors import GristmillError


def main() -> None:
    """Run the command line; exit status 2 and one line where usage or set-up is at fault.

    Ended from outside, by SIGTERM or Ctrl-C, it gives back on the way out what it had in hand; the exit status is 143
    or 130 then.
    """
    from gristmill.cli.app import app

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        app()
    except GristmillError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        sys.exit(2)


STOPPED = "stopped: what is finished is kept, the rest given back; run again to go on"


def stop(number: int, _frame: object) -> NoReturn:
    """Handle a signal that asks the process to end: say so, and leave by an exception, so that work is given back."""
    # Straight to the descriptor: the signal may have come in the middle of a print.
    os.write(2, f"{STOPPED}\n".encode())
    sys.exit(128 + number)
