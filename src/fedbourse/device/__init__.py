"""What runs on a device: it guards its owner's privacy, and sells it for what it is worth."""

from fedbourse.device.advice import Advice, BudgetChoice
from fedbourse.device.agent import Agent
from fedbourse.device.bidding_strategy import BiddingStrategy
from fedbourse.device.data import DataCheck, DataSource, FileData
from fedbourse.device.deal import Deal, KnownMarket
from fedbourse.device.folder import DeviceFolder, DeviceSettings
from fedbourse.device.ledger import Ledger, SpendEntry
from fedbourse.device.policy import Limits, Policy
from fedbourse.device.spend_store import SpendStore
from fedbourse.device.verification import DeviceCheck

__all__ = [
    "Advice",
    "Agent",
    "BiddingStrategy",
    "BudgetChoice",
    "DataCheck",
    "DataSource",
    "Deal",
    "DeviceCheck",
    "DeviceFolder",
    "DeviceSettings",
    "FileData",
    "KnownMarket",
    "Ledger",
    "Limits",
    "Policy",
    "SpendEntry",
    "SpendStore",
]
