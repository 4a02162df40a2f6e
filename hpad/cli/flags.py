"""The flags of settings, which `hpad run`, `hpad doctor` and `hpad config show` share, and the settings they give."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hpad import settings
from hpad.cli import program
from hpad.settings import Settings
from hpad.settings.rows import Group, SettingRow

_ABOUT_SERVING: Final = (
    "By default hpad admits every client that can connect to --listen; on a loopback address only for requests to "
    "a local host name, such as localhost. /livez, /readyz and /healthz need no authentication."
)
_ABOUT_ELECTION: Final = """\
Needed if several instances of hpad could own the same HPAs, such as two replicas of a Deployment. Off by default, since
hpad usually runs alone, as a service of a machine or beside one application. A dry run never takes part.
Two instances with different --namespace need no common Lease: give each a --leader-elect-resource-name of its own.
With the Lease kube-system/kube-controller-manager hpad takes the place of a whole kube-controller-manager, whose
controllers all pause meanwhile: sensible only if that one runs nothing but the HPA controller.
"""


_ABOUT: Final = {Group.SERVING: _ABOUT_SERVING, Group.ELECTION: _ABOUT_ELECTION}


class _Flag(argparse.Action):
    """Keeps the flag as typed beside its value, for error messages. Values of a repeated list flag are joined."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        earlier = namespace.flags.get(self.dest)
        if earlier is not None and settings.TABLE[self.dest].setting.parser.repeatable:
            values = f"{earlier[1]},{values}"
        elif earlier is not None and self.dest == "manifests":  # where kubectl's -f would take both
            parser.error(f"{option} is given twice: put the files into one folder, and name that")
        # A new dict: the default of `flags` belongs to the parser, and the next call of the parser must find it empty.
        namespace.flags = {**namespace.flags, self.dest: (option, values)}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of all settings, which `read` reads from the parsed arguments.

    The usage names only the first flags, since the help lists all.
    """
    parser.usage = "%(prog)s [-h] [--config FILE] [--kubeconfig FILE] [-n NAME] [FLAG ...]"
    parser.set_defaults(flags={})
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    for group in Group:
        whole = parser if group == Group.GENERAL else parser.add_argument_group(group, _ABOUT.get(group))
        for row in settings.TABLE.values():
            if row.setting.group == group:
                _add(whole, row)
    if isinstance(parser, program.CommandParser):
        parser.hide(name for name, row in settings.TABLE.items() if not row.setting.common)


def _add(group: argparse._ActionsContainer, row: SettingRow) -> None:
    default = "true" if row.written is True else row.written
    shown = f" (default: {default})" if default and isinstance(default, str | int | float) else ""
    switch: dict[str, Any] = {"nargs": "?", "const": "true"} if row.metavar == "BOOL" else {}
    group.add_argument(
        *_names(row),
        dest=row.name,
        metavar=row.metavar,
        help=f"{row.setting.meaning}{shown}",
        action=_Flag,
        default=argparse.SUPPRESS,
        **switch,
    )


def _names(row: SettingRow) -> list[str]:
    own = row.setting.flags or (f"--{row.name.replace('_', '-')}",)
    return [*own, *filter(None, [row.setting.kubernetes])]


def read(args: argparse.Namespace) -> Settings:
    """Returns the settings of file, environment and flags; raises SettingsError."""
    return load(args.config, args.flags)


def origins(args: argparse.Namespace) -> list[tuple[str, str, Any]]:
    """Returns the settings of file, environment and flags with their origins (see hpad.settings.origins)."""
    return settings.origins(config_file(args.config), os.environ, args.flags)


def load(option: Path | None, flags: Mapping[str, tuple[str, Any]] | None = None) -> Settings:
    """Returns the settings of the file of --config or HPAD_CONFIG, environment and flags. Raises SettingsError."""
    return settings.load(config_file(option), os.environ, flags or {})


def config_file(option: Path | None) -> Path | None:
    """Returns the configuration file: the value of --config, else that of HPAD_CONFIG, else none."""
    name = os.environ.get("HPAD_CONFIG")
    return option or (Path(name) if name else None)
