"""`hpad doctor`: would hpad do well here, and if not, what is to be done?"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from hpad import clock, settings
from hpad.cli import checks, competing, output, rights
from hpad.cli import run as daemon
from hpad.cli.checks import ERROR, LEVELS, Finding
from hpad.daemon import logs
from hpad.kube import client, errors
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError

_EPILOG = """\
It takes the settings of `hpad run`, from the same places; run it as the same user, in the same place. It reads, asks
what may be done (SelfSubjectAccessReview), and asks each metric that HPAs name once; it changes nothing.

examples:
  hpad doctor --config /etc/hpad/hpad.yaml
  hpad doctor --kubeconfig ~/.kube/config -n shop
  kubectl -n hpad exec deploy/hpad -- hpad doctor
  hpad doctor -o json                  [{"check", "level", "says", "do"}]

The exit status is 1 if there is an error: something without which hpad cannot do its work.
"""


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "doctor",
        help="check configuration, cluster, rights, sources and rivals",
        description="Check whether hpad would do well here, and say what to do if not.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    daemon.add_settings(parser)
    parser.set_defaults(run=run, flags={})


def run(args: argparse.Namespace) -> int:
    """0 if there is no error."""
    logs.configure("error", "text")
    findings = asyncio.run(examine(lambda: daemon.read_settings(args)))
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        _print(findings)
    return 1 if any(finding.level == ERROR for finding in findings) else 0


async def examine(read: Callable[[], settings.Settings]) -> list[Finding]:
    """All findings, in the order in which one would mend them; a check that needs another's success is left out."""
    try:
        told = read()
    except settings.SettingsError as error:
        return [Finding("configuration", ERROR, problem, "correct it there") for problem in error.problems]
    found = await checks.built(told, clock.SystemClock())
    try:
        where = await asyncio.to_thread(kubeconfig.load_cluster_config, told.kubeconfig, told.context)
    except ConfigError as error:
        found += await checks.check_store(told, None)
        return [*found, Finding("server", ERROR, str(error), "name a kubeconfig with --kubeconfig")]
    found += await checks.check_store(told, where.namespace)
    async with client.Client(where, clock.SystemClock()) as api:
        greeted = await checks.check_server(api)
        found += greeted
        if not any(finding.check == "server" and finding.level == ERROR for finding in greeted):
            told = await checks.settled(api, told)
            hpas, about_hpas = await _hpas(api, told)
            found += [*await rights.check_rights(api, told, hpas), *about_hpas]
    return found


async def _hpas(api: client.Client, told: settings.Settings) -> tuple[int, list[Finding]]:
    """How many HPAs there are, and what is to be said of them."""
    if told.manifests is not None:
        found, hpas = await checks.check_manifests(told, api.clock)
        found += checks.check_zero(told, hpas)
        return len(hpas), [
            *found,
            *await competing.check_targets(api, told, hpas),
            *await checks.check_sources(api, told, hpas),
        ]
    try:
        listed = await competing.hpas(api, told)
    except errors.ApiError as error:
        says = f"HPAs cannot be listed, so neither rivals nor sources were looked for: {error.message}"
        return 0, [Finding("rivals", ERROR, says, "see the rights above")]
    hpas = checks.decoded(listed.items)
    found = [
        *await competing.check_controllers(api, told, listed),
        *checks.check_zero(told, hpas),
        *await competing.check_targets(api, told, hpas),
    ]
    return len(listed.items), [*found, *await checks.check_sources(api, told, hpas)]


def _print(findings: Sequence[Finding]) -> None:
    """Print each finding; advice that neighbours share stands once, after the last of them."""
    for finding, following in zip_longest(findings, findings[1:]):
        print(output.wrapped(f"{finding.level:<8} {finding.check:<14} {finding.says}", 24))
        if finding.do and (following is None or (following.check, following.do) != (finding.check, finding.do)):
            print(output.wrapped(f"{'':<23} -> {finding.do}", 27))
    counts = {level: sum(finding.level == level for finding in findings) for level in reversed(LEVELS)}
    print(", ".join(f"{count} {level}" for level, count in counts.items() if count))
