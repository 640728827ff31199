"""The `extract` flow: everything new in the inbox, once."""

import warnings

from prefect import flow
from prefect.states import State

from gristmill.presets import PresetName
from tasks import begin, outcome, report, settings_for, take_in, work_off

# Prefect makes a Pydantic model of the parameters, and `schema` was a method of those once.
warnings.filterwarnings("ignore", message='Field name "schema" in "ExtractModel"')


@flow(name="extract", log_prints=True, persist_result=False)
def extract(
    schema: str | None = None, preset: PresetName | None = None, model: str | None = None, again: bool = False
) -> State:
    """Take in the files of the inbox, make one attempt per record, write outbox, dead files and a report.

    Args:
        schema: Schema of files that lie directly in the inbox; a folder in the inbox names its own.
        preset: Decoding preset of first attempts; empty: the setting GRISTMILL_PRESET.
        model: Model directory, or embedded; empty: the setting GRISTMILL_MODEL.
        again: Repeat files whose content was done before.
    """
    settings = settings_for(preset=preset, model=model)
    run_id = begin(settings, "extract")
    take_in(settings, run_id, schema, again)
    work_off(settings, run_id)
    told = report(settings, run_id)
    print(told.summary)
    return outcome(told)


if __name__ == "__main__":
    from flows._command_line import run_flow

    run_flow(extract)
