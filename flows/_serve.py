"""`make serve`: a Prefect server, the work pool, all deployments and a worker, on this machine, until Ctrl-C.

Run again it finds what is there and uses it. A server that PREFECT_API_URL names is used as it is and not started.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import available_timezones

import httpx
import psutil
import yaml

from gristmill.errors import SetupError
from gristmill.settings import SERVE_PORT, load_settings

ROOT = Path(__file__).parents[1]
POOL = "gristmill"
_START_SECONDS = 120
_END_SECONDS = 15


def main() -> None:
    """Set everything up, say where it is, and wait."""
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    # `prefect deploy` writes this into the pull step.
    os.environ["PWD"] = str(ROOT)
    port = os.environ.get("GRISTMILL_SERVE_PORT", SERVE_PORT)
    given = os.environ.get("PREFECT_API_URL")
    url = given or f"http://127.0.0.1:{port}/api"
    _see_that_settings_can_be_used()
    os.environ["PREFECT_API_URL"] = url
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    server = worker = None
    try:
        if not _answers(url):
            if given:
                sys.exit(f"make serve: nothing answers at PREFECT_API_URL={given}; start that server, or unset it")
            server = _start("server", "start", "--host", "127.0.0.1", "--port", port)
            _wait_for(url, server)
        _prefect("work-pool", "create", POOL, "--type", "process", "--overwrite")
        worker = _start("worker", "start", "--pool", POOL, "--name", f"{POOL}-{socket.gethostname()}")
        _prefect("--no-prompt", "deploy", "--all")
        see_to_automation()
        print(f"\nThe UI is at {url.removesuffix('/api')}; Ctrl-C ends everything that was started here.", flush=True)
        print("Now, for example: prefect deployment run extract/nightly --watch", flush=True)
        print(f"with PREFECT_API_URL={url}\n", flush=True)
        while all(process is None or process.poll() is None for process in (server, worker)):
            time.sleep(0.5)
        sys.exit("make serve: the server or the worker ended; its last lines above say why")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _end_worker(worker)
        _end(server)


def _see_that_settings_can_be_used() -> None:
    try:
        zone = load_settings().timezone
    except SetupError as error:
        sys.exit(f"make serve: {error}")
    if zone not in available_timezones():
        sys.exit(f"make serve: GRISTMILL_TIMEZONE={zone!r} is no time zone; give a name such as Europe/Berlin")


def see_to_automation() -> None:
    """Have the automation on the server that PREFECT_API_URL names, once; one that is there stays as it is."""
    # Not before the address is set: Prefect reads its settings when it is imported.
    from prefect.client.orchestration import get_client
    from prefect.events.schemas.automations import AutomationCore

    (described,) = yaml.safe_load((ROOT / "automations.yaml").read_text(encoding="utf-8"))["automations"]
    automation = AutomationCore.model_validate(described)
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(automation.name):
            client.create_automation(automation)


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    """A Prefect command that goes on; Ctrl-C does not reach it by itself, since the order of ending matters."""
    return subprocess.Popen([sys.executable, "-m", "prefect", *arguments], cwd=ROOT, start_new_session=True)


def _prefect(*arguments: str) -> str:
    """A Prefect command; its output.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"make serve: prefect {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).is_success
    except httpx.TransportError:
        return False


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(_START_SECONDS * 2):
        if _answers(url):
            return
        if server.poll() is not None:
            sys.exit("make serve: the server did not start; its last lines above say why")
        time.sleep(0.5)
    sys.exit(f"make serve: the server did not answer within {_START_SECONDS} s")


def _end_worker(worker: subprocess.Popen[bytes] | None) -> None:
    """End the flow runs first, so that they give their work back and say so, then the worker."""
    if worker is None or worker.poll() is not None:
        return
    runs = [child for child in psutil.Process(worker.pid).children(recursive=True) if _is_run(child)]
    for run in runs:
        run.terminate()
    psutil.wait_procs(runs, timeout=_END_SECONDS)
    _end(worker)


def _is_run(process: psutil.Process) -> bool:
    try:
        return _runs_flow(process.cmdline())
    except psutil.Error:
        return False


def _runs_flow(command: Sequence[str]) -> bool:
    """Whether a command line is that of a process in which the worker runs a flow."""
    return any(part in ("prefect.engine", "prefect.flow_engine") for part in command) or "flow-run" in command


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()


if __name__ == "__main__":
    main()
