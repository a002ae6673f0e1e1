"""The command line."""

from anchorlab.cli.main import main

__all__ = ["main"]
