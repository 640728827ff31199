"""Who has work in hand: one process, told from every other, and whether it still lives."""

import os
import socket

import psutil

_CLOCK_STEP_SECONDS = 60.0
"""A start time read later may differ by so much, because it is reckoned from a clock that can be set."""


def owner() -> str:
    """This process: host, process id, and when it started."""
    return f"{socket.gethostname()}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def lives(name: str) -> bool:
    """Whether the process of that name is still there; one on another host counts as living."""
    host, pid, started = name.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - float(started)) < _CLOCK_STEP_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
