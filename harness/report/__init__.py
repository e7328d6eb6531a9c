"""Runs -> static site, JUnit, Markdown summary, CSV, JSON and Parquet. Reads, never executes."""

from harness.report.digest import RunDigest, digest
from harness.report.inputs import ReportRun, SiteFacts
from harness.report.junit import junit
from harness.report.markdown import markdown_summary
from harness.report.rows import CaseRow, rows
from harness.report.serve import SiteServer, serve
from harness.report.site import refuse_foreign, render
from harness.report.tables import csv_table, json_table, parquet_table

__all__ = [
    "CaseRow",
    "ReportRun",
    "RunDigest",
    "SiteFacts",
    "SiteServer",
    "csv_table",
    "digest",
    "json_table",
    "junit",
    "markdown_summary",
    "parquet_table",
    "refuse_foreign",
    "render",
    "rows",
    "serve",
]
