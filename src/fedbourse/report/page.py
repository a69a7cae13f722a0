"""A finished trade for readers: as one HTML file that needs no network, or as part of a page.

Both come from one template. What a report does not know is None in its document, and is left out.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedbourse.privacy.loss import NOTES, PrivacyLoss
from fedbourse.report.charts import charts_of
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSFERS_SHOWN = 20  # of the ledger; all of them are in the JSON document


def trade_page(report: Mapping[str, Any]) -> str:
    """Return the report of a trade as a page with its charts inside."""
    template = _environment().get_template("trade.html")
    return template.render(report=report, body=trade_body(report))


def trade_body(report: Mapping[str, Any]) -> Markup:
    """Return the report without a frame, for a page that has its own style and policy."""
    template = _environment().get_template("trade_body.html")
    text = template.render(
        report=report,
        transfers_shown=_TRANSFERS_SHOWN,
        charts=charts_of(report),
        unknown=report.get("unknown", ()),
        left_out=report.get("owners_left_out", 0),
        hidden=report.get("owners_hidden", 0),
    )
    return Markup(text)


def readable(item: object) -> str:
    """Return an item of a card in words, whatever it is made of.

    >>> readable({"columns": ({"name": "age", "scale": 10.0},), "label": "ill", "classes": ()})
    'columns: age (scale 10.0); label: ill'
    """
    if isinstance(item, dict):
        rest = {name: value for name, value in item.items() if value not in ((), [], None)}
        if "name" in rest:
            inner = ", ".join(f"{name} {rest[name]}" for name in rest if name != "name")
            return f"{rest['name']} ({inner})" if inner else str(rest["name"])
        nested = any(isinstance(value, (dict, list, tuple)) for value in rest.values())
        parts = [f"{name.replace('_', ' ')}: {readable(value)}" for name, value in rest.items()]
        return ("; " if nested else ", ").join(parts)
    if isinstance(item, (list, tuple)):
        return ", ".join(readable(each) for each in item)
    return str(item)


def finding_words(owner: Mapping[str, Any]) -> str:
    """Return what an owner's updates showed.

    >>> finding_words({"finding": {"verdict": "dismissed", "dismissed_round": 0, "score": -1.4}})
    'dismissed in round 1 (z -1.4)'
    """
    finding = owner["finding"]
    if finding is None:
        return "no updates"
    fell = finding["dismissed_round"]
    round = f" in round {fell + 1}" if finding["verdict"] == "dismissed" else ""
    return f"{finding['verdict']}{round} (z {finding['score']:.1f})"


def without_data_payment(report: Mapping[str, Any]) -> int:
    """Return what settlement gave owners without data, in micro-credits."""
    without = set(report["without_data"])
    return sum(each["payment_micro"] for each in report["owners"] if each["owner"] in without)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fedbourse.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["credits"] = credits_text
    environment.filters["readable"] = readable
    environment.globals["privacy_loss"] = PrivacyLoss.of
    environment.globals["notes"] = NOTES
    environment.globals["finding"] = finding_words
    environment.globals["without_data_payment"] = without_data_payment
    return environment
