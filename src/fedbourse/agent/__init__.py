"""What runs on an owner's device, and guards its owner."""

from fedbourse.agent.spend_store import SpendStore

__all__ = ["SpendStore"]
