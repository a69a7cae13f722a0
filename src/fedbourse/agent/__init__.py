"""What runs on a device: it guards its owner's privacy, and sells it for what it is worth."""

from fedbourse.agent.advice import Advice, Choice
from fedbourse.agent.agent import Agent
from fedbourse.agent.data import DataCheck, DataSource, FileData
from fedbourse.agent.deals import Deal, Market
from fedbourse.agent.folder import DeviceFolder, DeviceSettings
from fedbourse.agent.ledger import Entry, Ledger
from fedbourse.agent.policy import Limits, Policy
from fedbourse.agent.spend_store import SpendStore
from fedbourse.agent.verifying import Check
from fedbourse.agent.wish import Wish

__all__ = [
    "Advice",
    "Agent",
    "Check",
    "Choice",
    "DataCheck",
    "DataSource",
    "Deal",
    "DeviceFolder",
    "DeviceSettings",
    "Entry",
    "FileData",
    "Ledger",
    "Limits",
    "Market",
    "Policy",
    "SpendStore",
    "Wish",
]
