"""`hpad config`: which settings there are, and which are in force."""

import argparse
import json
import sys
import textwrap
from typing import Any

import yaml

from hpad import settings
from hpad.cli import run as daemon
from hpad.cli import schema, shown

_EPILOG = """\
examples:
  hpad config show --config hpad.yaml      every setting in force, and where it comes from
  hpad config show -o json --workers=9     {"workers": {"value": 9, "from": "--workers"}, ...}
  hpad config schema > hpad.schema.json    the JSON schema of hpad.yaml, for editors and for CI

`config show` takes the settings of `hpad run`. Of sources it shows addresses and queries, but no credentials: fields
that may hold one are "(not shown)", user info and values of a URL's query string are ***.
The exit status is 2 if the settings are not good.
"""
_SHORT = 60


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "config",
        help="show the settings in force, or the schema of the configuration",
        description="Show the settings in force, or the schema of the configuration.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="the settings in force, and where each comes from")
    show.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    daemon.add_settings(show)
    show.set_defaults(run=run_show, flags={})
    actions.add_parser("schema", help="the JSON schema of the configuration").set_defaults(run=run_schema)


def run_schema(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(schema.document(), indent=2))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """0, or 2 if the settings are not good."""
    try:
        told = daemon.read_settings(args)
    except settings.SettingsError as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    rows = shown.rows(daemon.origins(args), told.store)
    if args.output == "json":
        print(json.dumps({row.name: {"value": row.value, "from": row.origin} for row in rows}, indent=2))
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(_line(row, width))
    return 0


def _line(row: shown.Row, width: int) -> str:
    """Name, value and origin; a long list or mapping stands below, as in a file."""
    value = json.dumps(row.value, ensure_ascii=False)
    if len(value) <= _SHORT or not isinstance(row.value, list | dict):
        return f"{row.name:<{width}}  {value}  # {row.origin}"
    below = yaml.safe_dump(row.value, sort_keys=False, allow_unicode=True, width=10_000).rstrip()
    return f"{row.name:<{width}}  # {row.origin}\n{textwrap.indent(below, '  ')}"
