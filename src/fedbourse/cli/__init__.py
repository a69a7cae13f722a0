"""The command line: ``fedbourse COMMAND``."""

from fedbourse.cli.main import main

__all__ = ["main"]
