"""`kubectl hpad version`: the versions of the plugin and of the hpad in the cluster."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from hpad import build
from hpad.cli.kubectl import connection, flags

_EPILOG: Final = """\
examples:
  kubectl hpad version             the versions of the plugin and of the hpad in the cluster
  kubectl hpad version --client    only that of the plugin, without a cluster

exit status: 0 success, 1 if no hpad answers, 2 wrong use
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "version",
        help="print the versions of the plugin and of the hpad in the cluster",
        description="Print the versions of the plugin and of the hpad in the cluster.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--client", action="store_true", help="only the version of the plugin")
    flags.add_to_command(parser, ("json", "yaml"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the versions, first that of the plugin; raises Failure."""
    own = build.read()
    client = {"version": own.version, "commit": own.commit, "buildDate": own.date}
    found: dict[str, Any] = {"client": {name: value for name, value in client.items() if value}}
    if not args.output:
        print(f"Client Version: {_text(found['client'])}")
    if not args.client:
        with connection.opened(args) as (reader, _):
            found["server"] = reader.get("/api/v1/version")
    if args.output:
        flags.show(found, args.output)
        return 0
    if "server" in found:
        print(f"Server Version: {_text(found['server'])}")
    return 0


def _text(version: Mapping[str, Any]) -> str:
    origin = ", ".join(filter(None, (version.get("commit"), version.get("buildDate"))))
    kubernetes = version.get("kubernetes")
    return (
        f"{version['version']}{f' ({origin})' if origin else ''}{f', as Kubernetes {kubernetes}' if kubernetes else ''}"
    )
