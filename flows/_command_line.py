"""`python -m flows.NAME`: a flow's parameters as options, run once without a server of one's own."""

import argparse
import os
import signal
import sys
import threading
import time
from typing import Any

import psutil
from prefect import Flow

from gristmill.cli import STOPPED, stop
from gristmill.errors import GristmillError

_GOODBYE_SECONDS = 3.0
"""How long Prefect may take to report that a run was stopped; its temporary server may have been stopped as well."""


def run_flow(flow: Flow[..., Any]) -> None:
    """Run the flow with the command line's options; exit status 2 and one line where the set-up is at fault.

    Stopped by SIGTERM or Ctrl-C, it gives back what it had in hand; the exit status is 143 or 130 then.
    """
    summary = (flow.description or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog=f"python -m flows.{flow.fn.__name__}", description=summary)
    for name, described in flow.parameters.properties.items():
        option = f"--{name.replace('_', '-')}"
        if described.get("type") == "boolean":
            parser.add_argument(option, action="store_true", help=described["description"])
        else:
            parser.add_argument(option, help=described["description"])
    options = vars(parser.parse_args())
    _stop_in_time()
    try:
        flow(**options)
    except GristmillError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _stop_in_time() -> None:
    """See to it that the process ends soon after it was asked to, whatever Prefect's client still waits for."""
    signal.signal(signal.SIGTERM, stop)
    read, write = os.pipe()
    os.set_blocking(write, False)
    # Told to this descriptor, a signal is noticed whoever has put which handler in our handler's place.
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait() -> None:
        while (number := os.read(read, 1)[0]) not in (signal.SIGINT, signal.SIGTERM):
            pass
        time.sleep(_GOODBYE_SECONDS)
        for child in psutil.Process().children():
            child.terminate()
        print(STOPPED, file=sys.stderr, flush=True)
        os._exit(128 + number)

    threading.Thread(target=wait, daemon=True).start()
