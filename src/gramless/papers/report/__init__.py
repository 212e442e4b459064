"""The report: one HTML page that shows the papers' figures and tables beside what was measured."""

from gramless.papers.report.page import page, write_report

__all__ = ["page", "write_report"]
