"""The version, in one place: metadata, command line and studies read it here."""

__version__ = "0.1.0"
