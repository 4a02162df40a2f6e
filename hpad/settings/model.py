"""The table of all settings: the struct Settings.

A new setting is a field here, or of a struct in it: flag, variable, schema, reference and sample (`make docs`) are made
of it. rows.py says what a row holds.
"""

import operator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from hpad.api.loopback import is_loopback
from hpad.api.problem import Problem
from hpad.engine.view import Tunables
from hpad.settings import hpas as of_hpas
from hpad.settings import notify as of_notify
from hpad.settings import parsers, rows
from hpad.settings import sources as sections

# "import X as X" makes a name part of this module, too (PEP 484).
from hpad.settings.election import JITTER as JITTER
from hpad.settings.election import Election as Election
from hpad.settings.election import election_problems as election_problems
from hpad.settings.rows import Group, Setting

LOG_LEVELS = ("debug", "info", "warning", "error")
HISTORY_FILE = "history.db"
LOG_FORMATS = ("auto", "text", "json")
_ZERO_BY_DEFAULT = (1, 37)
YIELD = "yield"
COMPETING = (YIELD, "write")
HPAS, AUTOSCALERS, BOTH = "hpas", "autoscalers", "both"
BUILT_IN_SOURCES = ("metrics-server", "custom-metrics", "external-metrics")
_serving = partial(Setting, group=Group.SERVING)
_decision = partial(Setting, group=Group.DECISIONS)


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """TLS and authentication of the HTTP server. By default it has neither, and listens on loopback.

    `certificate` and `private_key` turn TLS on. Each of the other fields turns on one way to authenticate, and a client
    needs one of them. `review`: a bearer token that the cluster accepts (TokenReview), of a user that may `get` the
    path as a non-resource URL (SubjectAccessReview).
    """

    certificate: Annotated[
        Path | None,
        _serving(
            parsers.path,
            "serve TLS with this certificate (PEM), reloaded when it changes",
            name="tls_cert_file",
        ),
    ] = None
    private_key: Annotated[
        Path | None,
        _serving(
            parsers.path,
            "private key of tls_cert_file (PEM)",
            name="tls_private_key_file",
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        _serving(
            parsers.path,
            "admit clients with one of the bearer tokens in this file, one per line",
            name="listen_token_file",
        ),
    ] = None
    review: Annotated[
        bool,
        _serving(
            parsers.flag,
            "admit clients whose bearer token the cluster allows to `get` the path (a non-resource URL; `/` for the "
            "JSON API, too); needs the ClusterRole system:auth-delegator (config/rbac/review)",
            name="listen_review",
        ),
    ] = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the certificate, its key and the tokens, as far as they are configured."""
        return tuple(file for file in (self.certificate, self.private_key, self.token_file) if file is not None)


def serving_problems(serving: Serving, host: str) -> list[Problem]:
    """Returns combinations of fields that cannot work; `host` is the address to listen on."""
    found: list[Problem] = []
    if serving.certificate is not None and serving.private_key is None:
        found.append(Problem("private_key", "is missing: a certificate needs its key"))
    if serving.private_key is not None and serving.certificate is None:
        found.append(Problem("certificate", "is missing: a private key needs its certificate"))
    tokens = serving.token_file is not None or serving.review
    if tokens and serving.certificate is None and not is_loopback(host):
        field = "token_file" if serving.token_file is not None else "review"
        found.append(Problem(field, "tokens would cross the network unencrypted: set the certificate, too"))
    return found


_TUNABLES = {
    "tolerance": _decision(
        parsers.fraction,
        "no scaling while a metric is within this fraction (0.1 is ten percent) of its target",
        kubernetes="--horizontal-pod-autoscaler-tolerance",
        reloadable=True,
    ),
    "downscale_stabilization": _decision(
        parsers.duration,
        "scale-down window of HPAs whose spec.behavior sets none",
        kubernetes="--horizontal-pod-autoscaler-downscale-stabilization",
        reloadable=True,
    ),
    "cpu_initialization_period": _decision(
        parsers.duration,
        "how long after a pod's start its CPU counts only while it is ready",
        kubernetes="--horizontal-pod-autoscaler-cpu-initialization-period",
        reloadable=True,
    ),
    "initial_readiness_delay": _decision(
        parsers.duration,
        "how long after a pod's start its readiness changes count as its first",
        kubernetes="--horizontal-pod-autoscaler-initial-readiness-delay",
        reloadable=True,
    ),
    "gates": _decision(
        parsers.gates,
        "feature gates by name, as with kube-controller-manager, such as HPAScaleToZero (on by default if the API "
        "server is Kubernetes 1.37 or later; without it minReplicas 0 counts as 1)",
        name="feature_gates",
        reloadable=True,
        join=operator.or_,
    ),
}
"""The settings in Tunables, which belongs to the engine."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All validated settings.

    `max_staleness`: bookmarks come about once a minute and a silent watch is restarted after 150 s, so five minutes are
    two such rounds. `record_limit` in bytes, 0 for no limit. 0 turns `record_recent`, `decision_history` and
    `decision_history_disk` off. `names_zero`: the settings set the feature gate HPAScaleToZero.
    """

    kubeconfig: Annotated[
        str | None,
        Setting(
            parsers.optional_text,
            "how to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)",
            "FILE",
            common=True,
        ),
    ] = None
    context: Annotated[
        str | None, Setting(parsers.optional_text, "context of the kubeconfig (default: its current one)", common=True)
    ] = None
    namespaces: Annotated[
        tuple[str, ...],
        Setting(
            parsers.namespaces,
            "only HPAs, targets and pods of these namespaces (default: all); the flag may be repeated",
            flags=("-n", "--namespace"),
            common=True,
            selects=True,
        ),
    ] = ()
    hpa_selector: Annotated[
        str, Setting(parsers.selector, "only HPAs with these labels, such as autoscaler=hpad", selects=True)
    ] = ""
    kinds: Annotated[
        str,
        Setting(
            parsers.one_of(HPAS, AUTOSCALERS, BOTH),
            "what hpad acts on: hpas, autoscalers, or both (Autoscalers where the kind is installed and rights allow)",
            "WHAT",
            selects=True,
        ),
    ] = BOTH
    manifests: Annotated[
        Path | None,
        Setting(
            parsers.path,
            "read HPAs from this file, or the files of this folder, not from the API server",
            "PATH",
            common=True,
            selects=True,
        ),
    ] = None
    competing_hpas: Annotated[
        str,
        Setting(
            parsers.one_of(*COMPETING),
            "if an HPA of the API server that hpad does not own scales the same target: yield (hpad decides and "
            "reports it, but does not write) or write (both write)",
            "WHAT",
            reloadable=True,
        ),
    ] = YIELD
    sync_period: Annotated[
        timedelta,
        _decision(
            parsers.period,
            "reconcile every HPA once per period, at least 100ms",
            kubernetes="--horizontal-pod-autoscaler-sync-period",
            common=True,
            reloadable=True,
        ),
    ] = timedelta(seconds=15)
    workers: Annotated[
        int,
        _decision(
            parsers.count,
            "concurrent reconciles, not counting those that wait for metrics",
            kubernetes="--concurrent-horizontal-pod-autoscaler-syncs",
            reloadable=True,
        ),
    ] = 64
    max_staleness: Annotated[
        timedelta,
        Setting(
            parsers.staleness,
            "keep replicas once a watch that decisions need has delivered nothing for this long (an idle watch "
            "delivers a bookmark about once a minute)",
        ),
    ] = timedelta(minutes=5)
    kube_api_qps: Annotated[
        float | None,
        Setting(parsers.qps, "requests per second to the API server (default: no limit)", group=Group.DECISIONS),
    ] = None
    status_refresh: Annotated[
        timedelta,
        Setting(
            parsers.duration,
            "write metric values alone to an HPA's status at most once per this time; 0s: at each change",
            reloadable=True,
        ),
    ] = timedelta(0)
    tunables: Annotated[Tunables, _TUNABLES] = Tunables()
    sources: Annotated[
        tuple[sections.SourceSettings, ...],
        Setting(
            sections.sources,
            "metric sources: a name of your choice -> an adapter and its settings",
            group=None,
            reloadable=True,
            join=sections.joined,
            written={},
        ),
    ] = ()
    routes: Annotated[
        tuple[sections.Route, ...],
        Setting(
            sections.routes,
            "exceptions to the sources' own `match`; the first that matches wins",
            group=None,
            reloadable=True,
        ),
    ] = ()
    budgets: Annotated[
        tuple[of_hpas.SharedBudget, ...],
        Setting(
            of_hpas.budgets,
            "what HPAs share by hpad.io/budget: a name -> a number of replicas or of cores",
            group=None,
            reloadable=True,
            written={},
        ),
    ] = ()
    notify: Annotated[
        of_notify.NotifySettings,
        Setting(
            of_notify.notify,
            "messages about HPAs over HTTP: destinations, and how long a condition lasts before it is told",
            group=None,
            reloadable=True,
            written={},
        ),
    ] = of_notify.NotifySettings()
    hpas: Annotated[
        tuple[of_hpas.HpaEntry, ...],
        Setting(of_hpas.entries, "annotations for HPAs that cannot be annotated", group=None, reloadable=True),
    ] = ()
    listen: Annotated[
        tuple[str, int] | None,
        Setting(parsers.address, "host:port of metrics, health, JSON API and status page, or none", common=True),
    ] = ("127.0.0.1", 8473)
    serving: Serving = Serving()
    log_level: Annotated[
        str,
        Setting(
            parsers.one_of(*LOG_LEVELS),
            "lowest level that is logged: debug, info, warning or error",
            "LEVEL",
            common=True,
            reloadable=True,
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Setting(
            parsers.one_of(*LOG_FORMATS),
            "text, json, or auto: text on a terminal, json otherwise",
            "FORMAT",
            common=True,
            reloadable=True,
        ),
    ] = "auto"
    record: Annotated[
        Path | None,
        Setting(
            parsers.path,
            "folder for recordings (mode 0600) of the inputs and outputs of each decision, for `hpad replay`",
            "DIR",
        ),
    ] = None
    record_limit: Annotated[
        int, Setting(parsers.disk, "disk space for recordings, such as 1Gi, or none; the oldest are deleted first")
    ] = 1 << 30
    record_recent: Annotated[
        timedelta,
        Setting(
            parsers.span,
            "how long each decision stays in memory with its inputs, for `hpad explain --save`; off: not at all",
            reloadable=True,
        ),
    ] = timedelta(minutes=10)
    store: Annotated[
        sections.StoreSettings,
        Setting(
            sections.store,
            "where the state of HPAs survives a restart: sqlite[:FILE], cluster (ConfigMaps), or memory (it is lost)",
            common=True,
            written=None,
        ),
    ] = sections.StoreSettings()
    decision_history: Annotated[
        timedelta,
        Setting(
            parsers.span, "how long past decisions of each HPA are kept, for the API and the page; off: not at all"
        ),
    ] = timedelta(hours=24)
    decision_history_disk: Annotated[
        int, Setting(parsers.budget, "disk space for past decisions, beside the file of --store sqlite:FILE, or off")
    ] = 256 << 20
    dry_run: Annotated[
        bool, Setting(parsers.flag, "decide for counts of its own (shadow mode), and write nothing", common=True)
    ] = False
    election: Election = Election()
    names_zero: bool = False

    def on_server(self, version: tuple[int, int] | None) -> "Settings":
        """Returns the settings for an API server of this version (None: unknown).

        HPAScaleToZero is on by default since Kubernetes 1.37 (KEP-2021), unless the settings set the gate.
        """
        if version is None or version < _ZERO_BY_DEFAULT or self.names_zero:
            return self
        gates = msgspec.structs.replace(self.tunables.gates, HPAScaleToZero=True)
        return msgspec.structs.replace(self, tunables=msgspec.structs.replace(self.tunables, gates=gates))


TABLE = rows.table(Settings())
"""All settings by name."""
