"""Runs a module of ours as a command, with a fake engine that takes its time: `slow.py SECONDS MODULE ARGUMENTS`."""

import runpy
import signal
import sys

from gristmill import pipeline
from gristmill.testing import FakeEngine


class Directory:
    """What stands for the model's folder."""

    name, fingerprint = "fake", "fingerprint of fake"


def main() -> None:
    """Put the fake in the model's place, and run the module."""
    # What a shell starts in the background ignores Ctrl-C, and so do its children; the tests send it all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    engine = FakeEngine(seconds_per_record=float(sys.argv[1]))
    pipeline.open_model = lambda path: Directory()  # type: ignore[assignment, return-value]
    pipeline.engine_for = lambda *given, **options: engine  # type: ignore[assignment]
    module = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
