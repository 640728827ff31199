"""One step of a run a file: thin wrappers that give a step of the library its Prefect task.

Parameters and results are ids, counts and settings; records and models never pass through Prefect, and no result is
cached, since a repeated attempt must be a new one.
"""

from tasks.begin import begin
from tasks.chunks import work_off
from tasks.intake import take_in
from tasks.outcome import outcome
from tasks.report import report
from tasks.settings import settings_for
from tasks.upkeep import doctor, prune

__all__ = ["begin", "doctor", "outcome", "prune", "report", "settings_for", "take_in", "work_off"]
