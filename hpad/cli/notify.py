"""`hpad notify test`: sends one message to each destination of the configuration."""

import argparse
import asyncio
from pathlib import Path
from typing import Final

from hpad.api.metadata import Key
from hpad.api.text import shown
from hpad.cli import flags, program
from hpad.cli.output import WrongUse
from hpad.clock import SystemClock
from hpad.notify.causes import NoticeChange, NoticePhase
from hpad.notify.sender import NoticeSender
from hpad.notify.texts import Notice, Sender
from hpad.settings import Settings
from hpad.settings.notify import NotifyCause
from hpad.telemetry import Telemetry

HELP: Final = "send a test message to the destinations of `notify`"
DESCRIPTION: Final = "Send a test message to the destinations of `notify`."
EPILOG: Final = ""
_EPILOG: Final = """\
examples:
  hpad notify test --config hpad.yaml            one message to each destination
  hpad notify test --config hpad.yaml on-call    to this one alone

exit status: 0 if all destinations took the message, 1 if one did not, 2 for wrong use or invalid settings
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    text = "send one message, in one attempt, to each destination"
    test = program.add_command(actions, "test", run_test, text, epilog=_EPILOG)
    test.add_argument("destinations", nargs="*", metavar="NAME", help="only to these destinations (default: to all)")
    test.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")


def run_test(args: argparse.Namespace) -> int:
    """Sends the messages; 0 if all were taken, else 1. Raises WrongUse or SettingsError."""
    return asyncio.run(_test(flags.load(args.config), args.destinations))


async def _test(settings: Settings, names: list[str]) -> int:
    known = {each.name: each for each in settings.notify.destinations}
    if not known:
        raise WrongUse("the configuration has no destinations: notify: {destinations: {NAME: {form: …, url_file: …}}}")
    if unknown := [name for name in names if name not in known]:
        raise WrongUse(f"there is no destination {shown(unknown[0])}; there are {', '.join(known)}")
    clock, sender, failed = SystemClock(), Sender(settings.notify.cluster, settings.notify.page), 0
    change = NoticeChange(NotifyCause.RESCALE, NoticePhase.BEGUN, clock.now(), 0.0, 0)
    for name in names or known:
        notice = Notice(key=Key("test", "test"), at=clock.now(), change=change)
        error = await NoticeSender(known[name], sender, clock, Telemetry().notify).test(notice)
        print(f"{name}: not sent: {error}" if error else f"{name}: sent")
        failed += bool(error)
    return 1 if failed else 0
