"""Mechanisms: how budgets are bought for a reward, each with what it promises and what not."""

from fedbourse.game.mechanisms.choices import (
    MECHANISMS,
    choose_mechanism,
    market_choices,
    market_mechanism,
    market_settlement,
)
from fedbourse.game.mechanisms.clock import DescendingClock, exit_order, order_commitment
from fedbourse.game.mechanisms.equal_lots import LotSale, first_best, sell_lots
from fedbourse.game.mechanisms.optimal import OptimalPurchase, buy_optimally
from fedbourse.game.mechanisms.protocol import (
    Ask,
    Guarantees,
    Mechanism,
    MechanismRule,
    Outcome,
    Purchase,
    checked_mechanism,
    is_clock,
    run_mechanism,
    settlement_of,
)
from fedbourse.game.mechanisms.settlement import (
    Payments,
    Read,
    Settlement,
    pay_proportionally,
    proportional,
)
from fedbourse.game.mechanisms.virtual_values import VirtualValues

__all__ = [
    "MECHANISMS",
    "Ask",
    "DescendingClock",
    "Guarantees",
    "LotSale",
    "Mechanism",
    "MechanismRule",
    "OptimalPurchase",
    "Outcome",
    "Payments",
    "Purchase",
    "Read",
    "Settlement",
    "VirtualValues",
    "buy_optimally",
    "checked_mechanism",
    "choose_mechanism",
    "exit_order",
    "first_best",
    "is_clock",
    "market_choices",
    "market_mechanism",
    "market_settlement",
    "order_commitment",
    "pay_proportionally",
    "proportional",
    "run_mechanism",
    "sell_lots",
    "settlement_of",
]
