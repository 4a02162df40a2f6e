"""The flags of settings, which `hpad run`, `hpad doctor` and `hpad config show` share, and the settings they give."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hpad import settings
from hpad.cli import program, schema
from hpad.settings import Settings

_GENERAL: Final = {
    "kubeconfig": "FILE",
    "context": "NAME",
    "namespaces": "NAME",
    "hpa_selector": "LABELS",
    "manifests": "DIR",
    "competing_hpas": "WHAT",
    "record": "DIR",
    "record_limit": "SIZE",
    "record_recent": "DURATION",
    "record_recent_dir": "DIR",
    "store": "KIND",
    "decision_history": "DURATION",
    "decision_history_disk": "SIZE",
    "listen": "HOST:PORT",
    "max_staleness": "DURATION",
    "status_refresh": "DURATION",
    "log_level": "LEVEL",
    "log_format": "FORMAT",
}
_DECISIONS: Final = {
    "sync_period": "DURATION",
    "workers": "N",
    "tolerance": "FRACTION",
    "downscale_stabilization": "DURATION",
    "cpu_initialization_period": "DURATION",
    "initial_readiness_delay": "DURATION",
    "feature_gates": "A=BOOL,…",
    "kube_api_qps": "N",
}
_SERVING: Final = {
    "tls_cert_file": "FILE",
    "tls_private_key_file": "FILE",
    "listen_token_file": "FILE",
    "listen_review": "BOOL",
}
_ELECTION: Final = {
    "leader_elect": "BOOL",
    "shards": "BOOL",
    "shard_by": "WHAT",
    "leader_elect_lease_duration": "DURATION",
    "leader_elect_renew_deadline": "DURATION",
    "leader_elect_retry_period": "DURATION",
    "leader_elect_resource_name": "NAME",
    "leader_elect_resource_namespace": "NAME",
}
_ALIASES: Final = {
    "workers": "--concurrent-horizontal-pod-autoscaler-syncs",
    "sync_period": "--horizontal-pod-autoscaler-sync-period",
    **{name: f"--horizontal-pod-autoscaler-{name.replace('_', '-')}" for name in settings.TUNABLES},
}
"""The names of these flags in kube-controller-manager, where they differ from hpad's."""
_ABOUT_SERVING: Final = (
    "By default hpad admits every client that can connect to --listen; on a loopback address only for requests to "
    "a local host name, such as localhost. /livez, /readyz and /healthz need no authentication."
)
_ABOUT_ELECTION: Final = """\
Needed if several instances of hpad could own the same HPAs, such as two replicas of a Deployment. Off by default, since
hpad usually runs alone, as a service of a machine or beside one application. A dry run never takes part.
With --shards instead of --leader-elect there is no standby: the replicas divide the HPAs among them, each with a Lease
NAME-... of its own, and take over from a replica that stops or crashes. All of them need the same settings for HPAs.
With the Lease kube-system/kube-controller-manager hpad takes the place of a whole kube-controller-manager, whose
controllers all pause meanwhile: sensible only if that one runs nothing but the HPA controller.
"""


class _Flag(argparse.Action):
    """Keeps the flag as typed beside its value, for error messages. Values of a repeated list flag are joined."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        earlier = namespace.flags.get(self.dest)
        if earlier is not None and self.dest in ("namespaces", "feature_gates"):
            values = f"{earlier[1]},{values}"
        if self.nargs == 0:
            values = True
        # A new dict: the default of `flags` belongs to the parser, and the next call of the parser must find it empty.
        namespace.flags = {**namespace.flags, self.dest: (option, values)}


_COMMON: Final = (
    *("kubeconfig", "context", "namespaces", "manifests", "dry_run", "listen", "store", "log_level", "log_format"),
    *("sync_period", "leader_elect", "shards"),
)
"""The settings whose flags `--help` shows; `--help-all` shows the others as well."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of all settings, which `read` reads from the parsed arguments.

    The usage names only the first flags, since the help lists all.
    """
    parser.usage = "%(prog)s [-h] [--config FILE] [--kubeconfig FILE] [-n NAME] [FLAG ...]"
    parser.set_defaults(flags={})
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    _add_group(parser, _GENERAL)
    parser.add_argument("--dry-run", action=_Flag, nargs=0, default=argparse.SUPPRESS, help=schema.SETTINGS["dry_run"])
    title = "intervals and decisions (the flags of kube-controller-manager work as well)"
    _add_group(parser.add_argument_group(title), _DECISIONS)
    title = "authentication of clients of --listen (any one of these suffices)"
    _add_group(parser.add_argument_group(title, _ABOUT_SERVING), _SERVING)
    title = "several replicas (the flags of kube-controller-manager, except --shards and --shard-by)"
    _add_group(parser.add_argument_group(title, _ABOUT_ELECTION), _ELECTION)
    if isinstance(parser, program.Parser):
        parser.hide({**_GENERAL, **_DECISIONS, **_SERVING, **_ELECTION}.keys() - _COMMON)


def _add_group(group: argparse._ActionsContainer, settings: Mapping[str, str]) -> None:
    defaults = schema.defaults()
    for name, metavar in settings.items():
        default = defaults[name]
        shown = f" (default: {default})" if default and isinstance(default, str | int | float) else ""
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if metavar == "BOOL" else {}
        group.add_argument(
            *_names(name),
            dest=name,
            metavar=metavar,
            help=f"{schema.SETTINGS[name]}{shown}",
            action=_Flag,
            default=argparse.SUPPRESS,
            **switch,
        )


def _names(setting: str) -> list[str]:
    if setting == "namespaces":
        return ["-n", "--namespace"]
    alias = _ALIASES.get(setting)
    return [f"--{setting.replace('_', '-')}", *([alias] if alias else [])]


def read(args: argparse.Namespace) -> Settings:
    """Returns the settings of file, environment and flags; raises SettingsError."""
    return load(args.config, args.flags)


def origins(args: argparse.Namespace) -> list[tuple[str, str, Any]]:
    """Returns the settings of file, environment and flags with their origins (see hpad.settings.origins)."""
    return settings.origins(_path(args.config), os.environ, args.flags)


def load(option: Path | None, flags: Mapping[str, tuple[str, Any]] | None = None) -> Settings:
    """Returns the settings of the file of --config or HPAD_CONFIG, environment and flags. Raises SettingsError."""
    return settings.load(_path(option), os.environ, flags or {})


def _path(option: Path | None) -> Path | None:
    """Returns the configuration file: the value of --config, else that of HPAD_CONFIG, else none."""
    name = os.environ.get("HPAD_CONFIG")
    return option or (Path(name) if name else None)
