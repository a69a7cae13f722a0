"""A finished trade as one HTML file that needs no network."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fedbourse.errors import MissingExtra
from fedbourse.report.charts import accuracy_by_round, pay_and_budget, predicted_and_measured
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINES_SHOWN = 20  # of the ledger; all of them are in the JSON document


def trade_page(report: Mapping[str, Any]) -> str:
    """Return the report of a trade as a page with its charts inside."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtra("reports need jinja2: pip install 'fedbourse[study]'") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["credits"] = credits_text
    template = environment.from_string(
        files("fedbourse.report").joinpath("trade.html").read_text(encoding="utf-8")
    )
    return template.render(
        report=report,
        lines_shown=_LINES_SHOWN,
        charts={
            "rounds": accuracy_by_round(report),
            "predicted": predicted_and_measured(report),
            "pay": pay_and_budget(report),
        },
    )
