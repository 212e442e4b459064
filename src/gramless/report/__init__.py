"""The report: one HTML page that shows the documents' figures and tables beside what was measured."""

from gramless.report.page import page, write_report

__all__ = ["page", "write_report"]
