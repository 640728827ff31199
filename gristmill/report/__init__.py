"""Reports: what a run did, for machines (JSON) and people (HTML, text)."""

from gristmill.report.collect import FileReport, Report, collect, file_report
from gristmill.report.render import (
    as_markdown,
    as_text,
    find_report,
    headline,
    latest_report,
    list_reports,
    schema_rows,
    write_report,
)

__all__ = [
    "FileReport",
    "Report",
    "as_markdown",
    "as_text",
    "collect",
    "file_report",
    "find_report",
    "headline",
    "latest_report",
    "list_reports",
    "schema_rows",
    "write_report",
]
