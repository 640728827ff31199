"""Who has work in hand: one process, told from every other, and whether it still lives."""

import os
import socket
from functools import lru_cache
from pathlib import Path

import psutil


def owner() -> str:
    """This process: host, process id, and when it started."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_here(name: str) -> bool:
    """Whether a process of that name belongs to this machine."""
    return name.rsplit(":", 2)[0] == socket.gethostname()


def lives(name: str) -> bool:
    """Whether the process of that name is still there; one on another host counts as living."""
    _, pid, started = name.rsplit(":", 2)
    if not is_here(name):
        return True
    try:
        return _started(int(pid)) == started and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False


def _started(pid: int) -> str:
    """When a process started, in words that no other process of that id has and no change of the clock alters.

    Raises:
        FileNotFoundError, psutil.NoSuchProcess: there is none.
    """
    status = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return f"{psutil.Process(pid).create_time():.2f}"
    # Field 22 (proc(5)): clock ticks since boot. The command's name before it may hold anything, but no last bracket.
    return f"{_boot()}-{status.read_text(errors='replace').rpartition(')')[2].split()[19]}"


@lru_cache(maxsize=1)
def _boot() -> str:
    found = Path("/proc/sys/kernel/random/boot_id")
    return found.read_text().strip()[:8] if found.exists() else ""
