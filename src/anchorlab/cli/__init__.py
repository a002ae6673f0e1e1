"""The command line."""

from anchorlab.cli.main import main
