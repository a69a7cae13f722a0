"""The payment adapters that a market can be served with, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedbourse.market.ports import Payments
from fedbourse.payments.manual import ManualPayments
from fedbourse.registry import Choice, Registry

PAYMENT_ADAPTERS: Registry[Callable[[Path], Payments]] = Registry(
    "payments",
    Choice("manual", "by hand", "two files that the operator reads and writes", ManualPayments),
    group="payments",
)
"""Each makes ``market.ports.Payments`` from a folder of its own, where it may keep its state."""
