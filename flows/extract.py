"""The `extract` flow: everything new in the inbox, once."""

import warnings
from typing import Annotated

from prefect import flow
from prefect.states import Completed, State
from pydantic import Field

from gristmill.settings import load_settings
from tasks import begin, report, take_in, work_off

# Prefect makes a Pydantic model of the parameters, and `schema` was a method of those once.
warnings.filterwarnings("ignore", message='Field name "schema" in "ExtractModel"')


@flow(name="extract", log_prints=True, persist_result=False)
def extract(
    schema: Annotated[str | None, Field(description="schema of files that lie directly in the inbox")] = None,
    preset: Annotated[str | None, Field(description="decoding preset of first attempts, else the setting")] = None,
    model: Annotated[str | None, Field(description="model directory or embedded, else the setting")] = None,
    again: Annotated[bool, Field(description="repeat files whose content was done before")] = False,
) -> State:
    """Take in the files of the inbox, make one attempt per record, write outbox, dead files and a report."""
    settings = load_settings(preset=preset, model=model)
    run_id = begin(settings, "extract")
    take_in(settings, run_id, schema, again)
    work_off(settings, run_id)
    headline, summary = report(settings, run_id)
    print(summary)
    return Completed(message=headline)


if __name__ == "__main__":
    from flows._command_line import run_flow

    run_flow(extract)
