"""The `extract` flow: everything new in the inbox, once."""

import warnings

from prefect import flow
from prefect.states import Completed, State

from gristmill.settings import load_settings
from tasks import begin, report, take_in, work_off

# Prefect makes a Pydantic model of the parameters, and `schema` was a method of those once.
warnings.filterwarnings("ignore", message='Field name "schema" in "ExtractModel"')


@flow(name="extract", log_prints=True, persist_result=False)
def extract(
    schema: str | None = None, preset: str | None = None, model: str | None = None, again: bool = False
) -> State:
    """Take in the files of the inbox, make one attempt per record, write outbox, dead files and a report.

    Args:
        schema: Schema of files that lie directly in the inbox; a folder in the inbox names its own.
        preset: Decoding preset of first attempts; empty: the setting GRISTMILL_PRESET.
        model: Model directory, or embedded; empty: the setting GRISTMILL_MODEL.
        again: Repeat files whose content was done before.
    """
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
