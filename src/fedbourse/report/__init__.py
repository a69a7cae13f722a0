"""Pages for people, laid out from the plain documents of the market."""

from fedbourse.report.page import trade_body, trade_page

__all__ = ["trade_body", "trade_page"]
