"""The `retry` flow: queued records that are due get another attempt under what the policy chose."""

from prefect import flow
from prefect.states import State

from tasks import begin, outcome, report, settings_for, work_off


@flow(name="retry", log_prints=True, persist_result=False)
def drain_retries(model: str | None = None, ignore_due: bool = False) -> State:
    """Make one more attempt for every queued record that is due, write outbox, dead files and a report.

    Args:
        model: Model directory, or embedded; empty: the setting GRISTMILL_MODEL.
        ignore_due: Do not wait until records are due.
    """
    settings = settings_for(model=model)
    run_id = begin(settings, "retry")
    work_off(settings, run_id, ignore_due=ignore_due)
    told = report(settings, run_id)
    print(told.summary)
    return outcome(told)


if __name__ == "__main__":
    from flows._command_line import run_flow

    run_flow(drain_retries)
