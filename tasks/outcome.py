"""What a flow run says of itself at its end."""

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Completed, State

from tasks.report import Told

_TAGS = ("dead", "queued")


def outcome(told: Told) -> State:
    """The run's last state: records that died or wait are told by its name and message and by tags of the run.

    Such a run is not a crash: its records are where they belong, and a person can look at them.
    """
    found = [tag for tag in _TAGS if getattr(told, tag)]
    if found and flow_run.id:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, tags=sorted({*flow_run.tags, *(f"records-{tag}" for tag in found)}))
    name = "With dead records" if told.dead else "With queued records" if told.queued else None
    return Completed(message=told.headline, name=name)
