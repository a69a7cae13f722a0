"""Formatting: numbers and times as people read them, the filters of the templates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.units import credits_text

_SPANS = (
    (365 * 86400, "year"),
    (30 * 86400, "month"),
    (86400, "day"),
    (3600, "hour"),
    (60, "minute"),
)
STATE_WORDS = {
    "draft": "not published yet",
    "open": "owners say whether they are interested",
    "announced": "owners reply to announced totals",
    "settled": "owners sign their terms",
    "training": "devices send updates round by round",
    "completed": "the model is trained and everybody is paid",
    "cancelled": "ended early; the pay of rounds that were not closed went back to the buyer",
}
PAYOUT_WORDS = {
    "requested": "the market hands it over soon",
    "sent": "handed over to the market's bank",
    "confirmed": "it has arrived",
    "failed": "the market tries again by itself",
    "returned": "the money is back on the account",
}


def credits(micro: int | None) -> str:
    """Return micro-credits as credits, without decimals that say nothing.

    >>> credits(1_234_500_000), credits(-5), credits(2_000_000)
    ('1,234.5', '-0.000005', '2')
    """
    if micro is None:
        return "–"
    whole, _, part = credits_text(micro).partition(".")
    sign, digits = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    part = part.rstrip("0")
    return f"{sign}{int(digits):,}" + (f".{part}" if part else "")


def in_credits(micro: int | None) -> str:
    """Return micro-credits with their unit.

    >>> in_credits(1_000_000), in_credits(1_500_000)
    ('1 credit', '1.5 credits')
    """
    return f"{credits(micro)} credit{'' if micro == 1_000_000 else 's'}"


def capital(text: str) -> str:
    """Return a sentence with a capital at its start, and all the rest as it was.

    >>> capital("found 'IBAN'")
    "Found 'IBAN'"
    """
    return text[:1].upper() + text[1:]


def figure(value: float | None, digits: int = 4) -> str:
    """Return a number with as many digits as people read.

    >>> figure(0.0123456), figure(1234567.0), figure(3e-9)
    ('0.01235', '1,235,000', '3e-09')
    """
    if value is None:
        return "–"
    rounded = float(f"{value:.{digits}g}")
    if rounded and not 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:.{digits}g}"
    text = f"{rounded:,.{max(digits, 10)}f}".rstrip("0").rstrip(".")
    return text or "0"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage.

    >>> percent(0.8912)
    '89.1 %'
    """
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def epsilon_one_record(rho: float | None) -> str:
    """Return the epsilon of a budget about one record.

    >>> epsilon_one_record(0.1)
    '1.915'
    """
    return "–" if rho is None else PrivacyLoss.of(rho, samples=1).one_record_text


def losses(rho: float, samples: int) -> str:
    """Return both epsilons of a budget in a task of so many records, in words.

    >>> losses(0.1, 10)
    'epsilon 1.915 about one record, 30.112 about the whole owner'
    """
    return str(PrivacyLoss.of(rho, samples=samples))


def when(ms: int | None) -> str:
    """Return a moment as a date and time that scripts and readers of the page understand.

    >>> when(0)
    Markup('<time datetime="1970-01-01T00:00:00Z">1 Jan 1970, 00:00 UTC</time>')
    """
    if ms is None:
        return "–"
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    text = f"{moment.day} {moment:%b %Y, %H:%M} UTC"
    return Markup('<time datetime="{}">{}</time>').format(f"{moment:%Y-%m-%dT%H:%M:%SZ}", text)


def relative(ms: int | None, now_ms: int) -> str:
    """Return how far away a moment is, in words.

    >>> relative(7_300_000, 0), relative(0, 86_400_000), relative(5_000, 0)
    ('in 2 hours 2 minutes', '1 day ago', 'in less than a minute')
    """
    if ms is None:
        return "–"
    text = span(abs(ms - now_ms) / 1000)
    return f"in {text}" if ms >= now_ms else f"{text} ago"


def span(seconds: float) -> str:
    """Return how long something lasts, in words of two units at most, to the nearest.

    >>> span(5400), span(86399), span(300)
    ('1 hour 30 minutes', '1 day', '5 minutes')
    """
    if round(seconds) < 60:
        return "less than a minute"
    finer = (*_SPANS[1:], _SPANS[-1])
    for (size, name), (part, part_name) in zip(_SPANS, finer, strict=True):
        if max(seconds, round(seconds / part) * part) >= size:
            count, rest = divmod(seconds, size)
            parts = round(rest / part)
            if parts >= size // part:
                count, parts = count + 1, 0
            counts = ((int(count), name), (parts, part_name))
            return " ".join(f"{each} {unit}{'s' * (each > 1)}" for each, unit in counts if each)
    return "less than a minute"


def name_of(party: str) -> str:
    """Return the name of a party without its kind.

    >>> name_of("buyer:acme")
    'acme'
    """
    return party.partition(":")[2] or party


FILTERS: dict[str, Callable[..., Any]] = {each.__name__: each for each in (
    credits, in_credits, capital, figure, percent, epsilon_one_record, losses, when, relative,
    span, name_of,
)}  # fmt: skip
