"""Pages for people, laid out from the plain documents of the market."""

from fedbourse.report.page import finding_words, trade_body, trade_page, without_data_payment

__all__ = ["finding_words", "trade_body", "trade_page", "without_data_payment"]
