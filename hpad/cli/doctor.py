"""`hpad doctor`: checks whether hpad can do its work here, and says what to do if not."""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from hpad import clock
from hpad.cli import checks, competing, output, rights
from hpad.cli import run as daemon
from hpad.cli.checks import ERROR, LEVELS, Finding
from hpad.daemon import logs
from hpad.kube import client, errors
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError
from hpad.settings import Settings, SettingsError

_EPILOG = """\
It takes the settings of `hpad run`, from the same places; run it as the same user, on the same machine. It reads
objects, asks which rights hpad has (SelfSubjectAccessReview), and asks once for each metric that HPAs name, 20 at most.
It changes nothing.

levels: ok, note (works, but good to know), warning (something does not work as it could), error (hpad cannot do its
work). A line that starts with -> says what to do.

examples:
  hpad doctor --config /etc/hpad/hpad.yaml
  hpad doctor --kubeconfig ~/.kube/config -n shop
  kubectl -n hpad exec deploy/hpad -- hpad doctor
  hpad doctor -o json                  [{"check", "level", "says", "do"}]

exit status: 0 without a finding of level error, 1 with one, 2 for wrong use
"""


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "doctor",
        help="check configuration, cluster, rights, sources and competing controllers",
        description="Check whether hpad can do its work here, and say what to do if not.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    daemon.add_settings(parser)
    parser.set_defaults(run=run, flags={})


def run(args: argparse.Namespace) -> int:
    """Prints the findings; 0 if there is no error among them, else 1."""
    logs.configure("error", "text")
    findings = asyncio.run(examine(lambda: daemon.read_settings(args)))
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        _print(findings)
    return 1 if any(finding.level == ERROR for finding in findings) else 0


async def examine(read: Callable[[], Settings]) -> list[Finding]:
    """All findings, in the order in which to correct them. A check that depends on one that failed is left out."""
    try:
        settings = read()
    except SettingsError as error:
        return [Finding("configuration", ERROR, problem, "correct it there") for problem in error.problems]
    found = await checks.check_configuration(settings, clock.SystemClock())
    try:
        where = await asyncio.to_thread(kubeconfig.load_cluster_config, settings.kubeconfig, settings.context)
    except ConfigError as error:
        found += await checks.check_store(settings, None)
        return [*found, Finding("server", ERROR, str(error), "name a kubeconfig with --kubeconfig")]
    found += await checks.check_store(settings, where.namespace)
    async with client.Client(where, clock.SystemClock()) as api:
        on_server = await checks.check_server(api)
        found += on_server
        if not any(finding.check == "server" and finding.level == ERROR for finding in on_server):
            settings = await checks.settings_on_server(api, settings)
            count, on_hpas = await _check_hpas(api, settings)
            found += [*await rights.check_rights(api, settings, count), *on_hpas]
    return found


async def _check_hpas(api: client.Client, settings: Settings) -> tuple[int, list[Finding]]:
    """The number of HPAs, and the findings on them, their targets and their metrics."""
    if settings.manifests is not None:
        found, hpas = await checks.check_manifests(settings, api.clock)
        count = len(hpas)
    else:
        try:
            listed = await competing.hpas(api, settings)
        except errors.ApiError as error:
            says = f"HPAs cannot be listed, so competing controllers and sources were not checked: {error.message}"
            return 0, [Finding("controllers", ERROR, says, "see the rights above")]
        hpas, count = checks.decode_hpas(listed.items), len(listed.items)
        found = await competing.check_controllers(api, listed)
    found += checks.check_zero(settings, hpas)
    found += await competing.check_targets(api, settings, hpas)
    return count, [*found, *await checks.check_sources(api, settings, hpas)]


def _print(findings: Sequence[Finding]) -> None:
    """Prints each finding. Advice that consecutive findings share is printed once, after the last of them."""
    for finding, following in zip_longest(findings, findings[1:]):
        print(output.wrapped(f"{finding.level:<8} {finding.check:<14} {finding.says}", 24))
        if finding.do and (following is None or (following.check, following.do) != (finding.check, finding.do)):
            print(output.wrapped(f"{'':<23} -> {finding.do}", 27))
    counts = {level: sum(finding.level == level for finding in findings) for level in reversed(LEVELS)}
    print(", ".join(f"{count} {level}" for level, count in counts.items() if count))
