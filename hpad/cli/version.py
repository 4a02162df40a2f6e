"""`hpad version`: which hpad this is."""

import argparse
from typing import Any

from hpad import __version__


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser("version", help="print the version", description="Print hpad's version.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(f"hpad {__version__}")
    return 0
