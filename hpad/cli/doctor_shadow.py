"""The check `shadow` of `hpad doctor`: where hpad in shadow mode and the targets of its HPAs differed.

The decisions are those of the hpad that runs with the same settings; `hpad shadow-report` gives every difference.
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli import client, shadow_report
from hpad.cli.checks import NOTE, OK, Finding, listed
from hpad.cli.hpa_reader import Hpa
from hpad.cli.output import Failure, counted
from hpad.cli.shadow_differences import Report
from hpad.engine import annotations
from hpad.engine.controls import IN_SHADOW
from hpad.settings import Settings, hpas

_SPAN: Final = timedelta(hours=24)
_MOST_READ: Final = 20
"""HPAs whose decisions are read: a dry run may have thousands."""
_SHOWN: Final = 3
_ALL_ADDRESSES: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


async def check_shadow(settings: Settings, found: Iterable[HorizontalPodAutoscaler], now: datetime) -> list[Finding]:
    """Returns a finding on all HPAs in shadow mode, and one on each of the three that differed longest.

    Returns nothing without an HPA in shadow mode, and one note if no hpad answers at the address of the settings.
    """
    # The zones of schedules may have to be read from files, and the reader of the API blocks.
    return await asyncio.to_thread(_check, settings, list(found), now)


def _check(settings: Settings, found: Sequence[HorizontalPodAutoscaler], now: datetime) -> list[Finding]:
    keys = in_shadow(settings, found, now)
    if not keys:
        return []
    has = f"{counted(len(keys), 'HPA')} in shadow mode"
    if settings.listen is None:
        says = f"{has}; the settings turn the API off that would say where hpad and the targets differed"
        return [Finding("shadow", NOTE, says, "set an address with --listen")]
    try:
        reader = _reader(settings, *settings.listen)
        reader.get("/api/v1/replicas")
    except Failure as failure:
        says = f"{has}; where hpad and the targets differed is unknown: {failure}"
        return [Finding("shadow", NOTE, says, "ask a running hpad: hpad shadow-report --address HOST:PORT")]
    return _compared(has, [Hpa(reader, *key) for key in keys[:_MOST_READ]], len(keys), now - _SPAN)


def in_shadow(settings: Settings, found: Iterable[HorizontalPodAutoscaler], now: datetime) -> list[Key]:
    """Returns the HPAs that are in shadow mode now, by name: all that are not paused in a dry run."""
    own = annotations.Reader(None, hpas.defaults(settings.hpas))
    controls = [(hpa.metadata.key, own.of(hpa).controls) for hpa in found]
    return sorted(
        key for key, each in controls if not each.is_paused(now) and (settings.dry_run or each.mode == IN_SHADOW)
    )


def _reader(settings: Settings, host: str, port: int) -> client.Direct:
    """Returns a Reader of the hpad with these settings; raises Failure."""
    host = _ALL_ADDRESSES.get(host, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    serving = settings.serving
    token = None if serving.token_file is None else client.read_token(serving.token_file)
    if serving.certificate is None:
        return client.Direct(f"http://{address}", token=token, advice="")
    return client.Direct(f"https://{address}", ssl.create_default_context(), token, advice="")


def _compared(has: str, read: Sequence[Hpa], total: int, since: datetime) -> list[Finding]:
    reports, unread = [], []
    for hpa in read:
        try:
            report = shadow_report.read(hpa, since)
        except Failure as failure:
            unread.append(f"{hpa}: {failure}")
            continue
        if report is not None:
            reports.append(report)
    differed = sorted((each for each in reports if each.differences), key=_seconds, reverse=True)
    says = f"{has}; in the last 24 hours the counts of hpad and of the target differed in {len(differed)}"
    if not reports:
        says = f"{has}; no decision in shadow mode from the last 24 hours was found"
    elif len(reports) < total:
        says += f"; decisions were found for {len(reports)}"
    do = "see every difference: hpad shadow-report" if differed else ""
    found = [Finding("shadow", NOTE, _one(each), do) for each in differed[:_SHOWN]]
    if unread:
        found.append(Finding("shadow", NOTE, f"decisions could not be read: {listed(unread)}"))
    return [Finding("shadow", OK, says), *found]


def _seconds(report: Report) -> float:
    return report.fewer + report.more


def _one(report: Report) -> str:
    last = report.differences[-1]
    return (
        f"{report.namespace}/{report.name}: {counted(len(report.differences), 'difference')}: "
        f"{shadow_report.summary(report)}; the last from {last.begin:%Y-%m-%d %H:%M:%SZ} to "
        f"{last.end:%Y-%m-%d %H:%M:%SZ}, hpad {last.shadow}, target {last.target}: {last.why}"
    )
