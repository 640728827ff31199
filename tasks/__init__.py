"""One step of a run a file: thin wrappers that give a step of the library its Prefect task.

Parameters and results are ids, counts and settings; records and models never pass through Prefect, and no result is
cached, since a repeated attempt must be a new one.
"""

from tasks.begin import begin
from tasks.chunks import work_off
from tasks.intake import take_in
from tasks.report import report

__all__ = ["begin", "report", "take_in", "work_off"]
