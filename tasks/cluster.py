"""Chunks on a Dask cluster: as many pieces of a run at once as the cluster has workers."""

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from gristmill.errors import SetupError
from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings


@task(name="chunks", cache_policy=NO_CACHE)
def chunks(settings: Settings, run_id: str, ignore_due: bool) -> int:
    """Work through chunks until none is due, in whatever process this runs; how many records that were.

    Each process of the cluster loads the model once and claims for itself: what travels are settings and a run's id.
    """
    return pipeline_for(settings).work_off(run_id, ignore_due=ignore_due)


def spread(settings: Settings, run_id: str, *, ignore_due: bool = False) -> int:
    """Work off a run on the cluster of the settings: `local:N` for so many processes here, else a scheduler's address.

    Raises:
        SetupError: prefect-dask is not installed, or the address is none.
    """
    try:
        from distributed import Client
        from prefect_dask import DaskTaskRunner
    except ImportError as error:
        raise SetupError("GRISTMILL_CLUSTER needs prefect-dask; pip install 'gristmill[dask]'") from error
    kind, _, number = settings.cluster.partition(":")
    if kind == "local":
        if not number.isdigit() or int(number) < 1:
            raise SetupError(f"GRISTMILL_CLUSTER={settings.cluster!r}: give a number of processes, such as local:4")
        pieces = int(number)
        runner = DaskTaskRunner(cluster_kwargs={"n_workers": pieces, "threads_per_worker": 1})
    else:
        with Client(settings.cluster) as client:
            pieces = len(client.scheduler_info(n_workers=-1)["workers"])
        runner = DaskTaskRunner(address=settings.cluster)

    @flow(name="spread", task_runner=runner, persist_result=False)
    def pieces_of_run() -> int:
        futures = [chunks.submit(settings, run_id, ignore_due) for _ in range(pieces)]
        return sum(future.result() for future in futures)

    return pieces_of_run()
