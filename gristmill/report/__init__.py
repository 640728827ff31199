"""Reports: what a run did, for machines (JSON) and people (HTML, text)."""

from gristmill.report.collect import Report, collect
from gristmill.report.render import as_markdown, as_text, find_report, headline, schema_rows, write_report

__all__ = ["Report", "as_markdown", "as_text", "collect", "find_report", "headline", "schema_rows", "write_report"]
