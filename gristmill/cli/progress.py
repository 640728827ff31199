"""Progress: a bar on a terminal, now and then a plain line in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LINE_EVERY_SECONDS = 15.0


@contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function that counts records as they finish, shown on standard error."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda count: bar.advance(task, count)
    else:
        yield _plain(total)


def _plain(total: int) -> Callable[[int], None]:
    done, said = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, said
        done += count
        if time.monotonic() - said >= _LINE_EVERY_SECONDS:
            said = time.monotonic()
            print(f"{done} of {total} records", file=sys.stderr, flush=True)

    return advance
