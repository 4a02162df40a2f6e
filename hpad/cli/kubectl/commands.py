"""The commands of `kubectl hpad` that print what commands of hpad print: explain, history, sources and version."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from hpad.api import numbers
from hpad.cli import client, explain, moments, output
from hpad.cli.fetch import Hpa
from hpad.cli.kubectl import connection, flags, names
from hpad.cli.program import add_command

_EXPLAIN: Final = """\
Explain the last decision for an HPA, or an earlier one: its metrics with their samples and pods, how they became the
replica count, and what would have to change for the next step."""
_EXPLAIN_EPILOG: Final = f"""\
examples:
  kubectl hpad explain web                    why the HPA web has its count, and what comes next
  kubectl hpad explain deployment/web         the HPA that scales the Deployment web
  kubectl hpad explain autoscaler/web         the Autoscaler web, beside an HPA of that name
  kubectl hpad explain web --at 02:40        the decision in force when it was last 02:40, local time
  kubectl hpad explain web --watch            the last decision, then each new one, until Ctrl-C
  kubectl hpad explain web --pods             all pods of each metric
  kubectl hpad explain web --save web.jsonl   the last minutes as a recording, for `hpad replay`
  kubectl hpad explain web -o json            every number, as the API gives it

A TIME is {moments.FORMS}.
Times in the output are UTC.

exit status: 0 success; 1 if there is no such HPA, no decision at that time, or hpad does not answer; 2 wrong use;
130 after Ctrl-C
"""
_LAST: Final = 20
_MOST: Final = 1000
_HISTORY_EPILOG: Final = f"""\
examples:
  kubectl hpad history web                      the last {_LAST} decisions
  kubectl hpad history deployment/web --last 100
  kubectl hpad history web --since 2h           all decisions of the last two hours
  kubectl hpad history web -o json              with what each metric asked for

A TIME is {moments.FORMS}.
Times in the output are UTC. `kubectl hpad explain NAME --at TIME` explains one of the decisions.

exit status: 0 success; 1 if there is no such HPA, no decision in that time, or hpad does not answer; 2 wrong use
"""
_SOURCES_EPILOG: Final = """\
examples:
  kubectl hpad sources                        the metric sources: state, latency, hit rate, last error
  kubectl hpad sources -o json | jq '.items[] | select(.state != "ok")'

states: ok; failing (the last call brought no answer); open (its circuit breaker is open: no calls during its cooldown);
trial (a first call after that); idle (no query yet); broken (cannot be built). HIT-RATE is the fraction of queries
answered from the cache.

exit status: 0 if all sources work, 1 if a source is broken, failing or open, or if no hpad answers; 2 wrong use
"""
_VERSION_EPILOG: Final = """\
examples:
  kubectl hpad version             the versions of the plugin and of the hpad in the cluster
  kubectl hpad version --client    only that of the plugin, without a cluster

exit status: 0 success, 1 if no hpad answers, 2 wrong use
"""


def add_explain(commands: Any) -> None:
    text = "explain why an HPA has its replica count"
    parser = add_command(commands, "explain", _explain, text, _EXPLAIN, _EXPLAIN_EPILOG, allow_abbrev=False)
    parser.add_argument("name", metavar="NAME", help=names.FORMS)
    explain.add_choices(parser)
    flags.add_to_command(parser)


def _explain(args: argparse.Namespace) -> int:
    """Explains, or lists decisions, as the arguments say. Raises Failure."""
    named = names.parse(args.name)
    with connection.opened(args) as (reader, namespace):
        if namespace is None or named.kind:
            return explain.show(names.only(reader, namespace, named), args)
        return explain.show(Hpa(reader, namespace, named.name, named.of), args)


def add_history(commands: Any) -> None:
    text = "list the past decisions for an HPA"
    parser = add_command(commands, "history", _history, text, epilog=_HISTORY_EPILOG, allow_abbrev=False)
    parser.add_argument("name", metavar="NAME", help=names.FORMS)
    last = f"the last N decisions (default: {_LAST})"
    parser.add_argument("--last", metavar="N", type=numbers.whole(1, _MOST), help=last)
    parser.add_argument("--since", metavar="TIME", help="the decisions since that time, or of that duration")
    flags.add_to_command(parser, ("text", "json", "yaml"))
    parser.set_defaults(at=None, watch=False, pods=False, save=None, color="auto")


def _history(args: argparse.Namespace) -> int:
    """Lists the decisions. Raises Failure."""
    if args.last is None and args.since is None:
        args.last = _LAST
    args.output = args.output or "text"
    return _explain(args)


def add_sources(commands: Any) -> None:
    text = "show the state of the metric sources"
    parser = add_command(commands, "sources", _sources, text, epilog=_SOURCES_EPILOG, allow_abbrev=False)
    flags.add_to_command(parser, ("wide", "json", "yaml"))


def _sources(args: argparse.Namespace) -> int:
    """Prints a table of sources; 0 if all work, else 1. Raises Failure."""
    with connection.opened(args) as (reader, _):
        rows = reader.get("/api/v1/sources")["items"]
    return client.show_sources(rows, {"items": rows}, args.output)


def add_version(commands: Any) -> None:
    text = "print the versions of the plugin and of the hpad in the cluster"
    parser = add_command(commands, "version", _version, text, epilog=_VERSION_EPILOG, allow_abbrev=False)
    parser.add_argument("--client", action="store_true", help="only the version of the plugin")
    flags.add_to_command(parser, ("json", "yaml"))


def _version(args: argparse.Namespace) -> int:
    """Prints the versions, first that of the plugin; raises Failure."""
    from hpad import build  # imported late: no other command needs it

    own = build.read()
    plugin = {"version": own.version, "commit": own.commit, "buildDate": own.date}
    found: dict[str, Any] = {"client": {name: value for name, value in plugin.items() if value}}
    if not args.output:
        print(f"Client Version: {_text(found['client'])}")
    if not args.client:
        with connection.opened(args) as (reader, _):
            found["server"] = reader.get("/api/v1/version")
    if args.output:
        output.print_value(found, args.output)
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
