"""Report of the papers' experiments: an HTML page with the papers' values beside the measured values."""

from gramless.papers.report.page import page, write_report

__all__ = ["page", "write_report"]
