"""The command `gristmill`."""

import logging
import signal
import sys

from gristmill.errors import GristmillError


def main() -> None:
    """Run the command line; exit status 2 and one line where usage or set-up is at fault."""
    from gristmill.cli.app import app

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    # Ended from outside, what is in hand is given back on the way out, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except GristmillError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        sys.exit(2)
