"""The `maintenance` flow: is everything as it must be, and what is old enough to go."""

from typing import Annotated

from prefect import flow
from prefect.states import Completed, Failed, State
from pydantic import Field

from tasks import doctor, prune, settings_for


@flow(name="maintenance", log_prints=True, persist_result=False)
def maintain(keep_days: Annotated[float, Field(ge=0)] | None = None, keep_everything: bool = False) -> State:
    """Check the invariants, then remove rows, archived input, dead files and reports of what ended long ago.

    Where something is broken, nothing is removed and the run fails with what it is.

    Args:
        keep_days: What ended longer ago goes; empty: the setting GRISTMILL_KEEP_DAYS.
        keep_everything: Only say what would be removed.
    """
    settings = settings_for(keep_days=keep_days)
    broken = doctor(settings)
    if broken:
        return Failed(message="; ".join(broken)[:1000])
    sentence = prune(settings, not keep_everything)
    print(sentence)
    return Completed(message=sentence)


if __name__ == "__main__":
    from flows._command_line import run_flow

    run_flow(maintain)
