"""What settings are once they are read and checked."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from hpad.engine import fallback_policy
from hpad.engine.view import Tunables
from hpad.model.election import Election
from hpad.model.serving import Serving

LOG_LEVELS = ("debug", "info", "warning", "error")
STORES = ("memory", "sqlite", "cluster")
HISTORY_FILE = "history.db"
LOG_FORMATS = ("auto", "text", "json")
ZERO = "HPAScaleToZero"
_ZERO_BY_DEFAULT = (1, 37)
YIELD = "yield"
COMPETING = (YIELD, "write")
RABBITMQ_METRICS = ("queue_messages", "queue_messages_ready", "queue_messages_unacknowledged")
BUILT_IN_SOURCES = ("metrics-server", "custom-metrics", "external-metrics")


class SettingsError(ValueError):
    """One or more settings are wrong; the message has a line for each.

    `places`: where each problem stands in the configuration, as keys and positions in lists; empty where that is no
    place in it.
    """

    def __init__(self, *problems: str, places: Sequence[tuple[str | int, ...]] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.places = tuple(places) or ((),) * len(problems)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Which metrics are meant: each list holds names or shell-style patterns ("queue_*"); an empty list means any.

    `labels`: what the metric's own selector must say, label -> value or pattern.
    """

    types: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}


class SourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a source is asked: at most `concurrency` calls at a time, `rate` a second, a failed one `retries` times more.

    `fresh`: how old an answer may be that another HPA's question brought (0s: never shared; default: a third of the
    sync period). `max_age`: how old a sample may be by its own timestamp. After `failures` calls that failed in a row
    the source is asked only once a `rest` (default: the sync period).
    """

    concurrency: int = 4
    rate: float = 20.0
    retries: int = 1
    fresh: timedelta | None = None
    max_age: timedelta | None = None
    failures: int = 5
    rest: timedelta | None = None


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One configured instance of an adapter. `settings` is for the adapter's own schema to judge.

    `timeout` is how long one question may take, None for the default; `match` says which metrics go there
    unless a route says otherwise (empty: whatever the adapter serves by itself). `namespaces`: names or patterns of
    those whose HPAs may use the source (empty: all). `fallback`: what stands in for its metrics while they fail, for
    HPAs that don't say so themselves (see `hpad.engine.fallback_policy`). `origin`: the file or variable that says all
    this.
    """

    name: str
    adapter: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    timeout: timedelta | None = None
    match: tuple[Match, ...] = ()
    namespaces: tuple[str, ...] = ()
    limits: SourceLimits = SourceLimits()
    fallback: fallback_policy.Fallback | None = None
    origin: str = ""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics that match go to the source of that name; the first route that matches wins."""

    match: Match
    source: str


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where histories survive: `sqlite` in the file `path`, `cluster` in the ConfigMaps NAME-0, NAME-1, ..., `memory`
    nowhere.

    `namespace` is that of the ConfigMaps, None for that of the Lease or of hpad itself. `chosen`: somebody said so.
    """

    kind: str = "memory"
    path: Path | None = None
    namespace: str | None = None
    name: str = "hpad-history"
    chosen: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, checked. `manifests` set: HPAs come from that folder instead of the API server.

    `competing_hpas`: what to do about a target that an HPA of the API server scales which is not hpad's.
    `workers` reconciles are at work at a time; those that wait for metrics do not count.
    `max_staleness`: once a watch that decisions need has brought nothing for that long, replicas are kept. Bookmarks
    come about once a minute and a silent watch is begun anew after two and a half, so five minutes are two such rounds.
    `kube_api_qps` None: requests to the API server are not limited on this side.
    `memory_limit` in bytes; None: what the process's cgroup and resource limits say; 0: none.
    `names_zero`: the feature gate HPAScaleToZero has been set, whatever to.
    `record_limit` is what recordings may take, in bytes; 0: as much as there is.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    hpa_selector: str = ""
    manifests: Path | None = None
    competing_hpas: str = YIELD
    sync_period: timedelta = timedelta(seconds=15)
    workers: int = 64
    max_staleness: timedelta = timedelta(minutes=5)
    memory_limit: int | None = None
    kube_api_qps: float | None = None
    kube_api_burst: int = 30
    event_component: str = "horizontal-pod-autoscaler"
    tunables: Tunables = Tunables()
    election: Election = Election()
    sources: tuple[SourceSettings, ...] = ()
    routes: tuple[Route, ...] = ()
    listen: tuple[str, int] | None = ("127.0.0.1", 8473)
    serving: Serving = Serving()
    log_level: str = "info"
    log_format: str = "auto"
    record: Path | None = None
    record_limit: int = 1 << 30
    store: StoreSettings = StoreSettings()
    dry_run: bool = False
    names_zero: bool = False

    def on_server(self, version: tuple[int, int] | None) -> "Settings":
        """The settings with an API server of this version (None: not known), whose defaults some gates follow.

        HPAScaleToZero is on by default since Kubernetes 1.37 (KEP-2021), unless a setting names the gate.
        """
        if version is None or version < _ZERO_BY_DEFAULT or self.names_zero:
            return self
        gates = msgspec.structs.replace(self.tunables.gates, HPAScaleToZero=True)
        return msgspec.structs.replace(self, tunables=msgspec.structs.replace(self.tunables, gates=gates))
