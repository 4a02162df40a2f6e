"""The types of validated settings, and the rules between fields of leader election and of the HTTP server."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from hpad.api import duration
from hpad.api.text import shown
from hpad.engine import fallback_policy
from hpad.engine.view import Tunables

FieldProblem = tuple[str, str]
"""A field, and what is wrong with it."""
JITTER = 1.2
"""Candidates wait one to 1 + JITTER retry periods between two attempts (client-go, leaderelection.go: JitterFactor)."""
SHARD_BY_HPA, SHARD_BY_NAMESPACE = "hpa", "namespace"
SHARD_BY = (SHARD_BY_HPA, SHARD_BY_NAMESPACE)
"""What belongs to one replica of a shard group as a whole."""
_MAX_LABEL_LENGTH = 63
_SHARD_RETRIES = 4
_SECOND = timedelta(seconds=1)
_MAX_LEASE_DURATION = timedelta(seconds=2**31 - 1)
_MIN_RETRY_PERIOD = timedelta(milliseconds=10)


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Leader election or shards, off by default. Other defaults, except `name`, are those of kube-controller-manager.

    `lease_duration`: how long other replicas respect a Lease that is not renewed. `renew_deadline`: how long after its
    last renewal a leader continues to work. `retry_period`: how often a leader renews and, with jitter, a candidate
    reads the Lease. `name` and `namespace` are those of the Lease. With `shards` each member has a Lease of its own,
    whose name begins with `name`; `shard_by` (SHARD_BY) is what belongs to one member as a whole.
    """

    enabled: bool = False
    shards: bool = False
    shard_by: str = SHARD_BY_HPA
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    name: str = "hpad"
    namespace: str = "kube-system"


def election_problems(election: Election) -> list[FieldProblem]:
    """Returns the violated rules between the durations.

    The rules on lease duration, deadline and jitter are client-go's (leaderelection.go: NewLeaderElector). hpad also
    requires whole seconds of at most 32 bits, since a Lease holds nothing else, and a minimal retry period, since
    renewals without a pause would only load the API server.
    """
    lease, deadline, retry = election.lease_duration, election.renew_deadline, election.retry_period
    written = {each: duration.write(each) for each in (lease, deadline, retry)}
    found: list[FieldProblem] = []
    if lease % _SECOND or lease < _SECOND:
        found.append(("lease_duration", f"{written[lease]} is not a whole number of seconds, as a Lease requires"))
    if lease > _MAX_LEASE_DURATION:
        maximum = _MAX_LEASE_DURATION // _SECOND
        found.append(("lease_duration", f"{written[lease]} is more than a Lease can hold, {maximum}s"))
    if retry < _MIN_RETRY_PERIOD:
        found.append(("retry_period", f"{written[retry]} is less than {duration.write(_MIN_RETRY_PERIOD)}"))
    if lease <= deadline:
        text = f"is not more than the renew deadline of {written[deadline]}: work must end before others may take over"
        found.append(("lease_duration", f"{written[lease]} {text}"))
    if deadline <= retry * JITTER:
        text = f"is not more than {JITTER} times the retry period of {written[retry]}: a leader needs a second attempt"
        found.append(("renew_deadline", f"{written[deadline]} {text}"))
    if election.shards and deadline < retry * _SHARD_RETRIES:
        text = f"is less than {_SHARD_RETRIES} times the retry period of {written[retry]}"
        found.append(("renew_deadline", f"{written[deadline]} {text}: with shards members need two rounds"))
    if election.shards and len(election.name) > _MAX_LABEL_LENGTH:
        text = f"has more than {_MAX_LABEL_LENGTH} characters: with shards it is the value of a label"
        found.append(("name", f"{shown(election.name)} {text}"))
    return found


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """TLS and authentication of the HTTP server. By default it has neither, and listens on loopback.

    `certificate` and `private_key` (PEM files) turn TLS on; changed files are reloaded. Each of the other fields turns
    on one way to authenticate, and a client needs one of them. `token_file`: a bearer token from this file, which holds
    one per line. `review`: a bearer token that the cluster accepts (TokenReview), of a user that may `get` the path as
    a non-resource URL (SubjectAccessReview).
    """

    certificate: Path | None = None
    private_key: Path | None = None
    token_file: Path | None = None
    review: bool = False


def serving_problems(serving: Serving, host: str) -> list[FieldProblem]:
    """Returns combinations of fields that cannot work; `host` is the address to listen on."""
    found: list[FieldProblem] = []
    if serving.certificate is not None and serving.private_key is None:
        found.append(("private_key", "is missing: a certificate needs its key"))
    if serving.private_key is not None and serving.certificate is None:
        found.append(("certificate", "is missing: a private key needs its certificate"))
    tokens = serving.token_file is not None or serving.review
    if tokens and serving.certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
        field = "token_file" if serving.token_file is not None else "review"
        found.append((field, "tokens would cross the network unencrypted: set the certificate, too"))
    return found


LOG_LEVELS = ("debug", "info", "warning", "error")
STORES = ("memory", "sqlite", "cluster")
HISTORY_FILE = "history.db"
LOG_FORMATS = ("auto", "text", "json")
ZERO = "HPAScaleToZero"
_ZERO_BY_DEFAULT = (1, 37)
YIELD = "yield"
COMPETING = (YIELD, "write")
RABBITMQ_METRICS = (
    "queue_messages",
    "queue_messages_ready",
    "queue_messages_unacknowledged",
    "queue_workers_to_clear",
    "queue_time_to_clear",
    "queue_growth",
    "queue_head_age",
)
"""The metrics of RabbitMQ that need no configuration."""
BUILT_IN_SOURCES = ("metrics-server", "custom-metrics", "external-metrics")


class SettingsError(ValueError):
    """One or more invalid settings. The message has one line per problem.

    `places`: the keys and list positions of each problem in the configuration; empty if it has no place there.
    """

    def __init__(self, *problems: str, places: Sequence[tuple[str | int, ...]] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.places = tuple(places) or ((),) * len(problems)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Selects metrics. Each list holds names or shell-style patterns ("queue_*"); an empty list matches any name.

    `labels`: label -> value or pattern, required in the metric's own selector. They choose the source, whose adapter
    gets the selector without them, unless they are parameters of the adapter (routes.py: Offer.chosen_by).
    """

    types: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}


class SourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on calls to a source: `concurrency` at a time, `rate` per second, `retries` of a failed call.

    `fresh`: the age up to which an answer is shared with other HPAs (0s: never; default: a third of the sync period).
    `max_age`: the greatest age of a sample by its own timestamp. After `failures` failed calls in a row the source is
    called once per `rest` (default: the sync period).
    """

    concurrency: int = 4
    rate: float = 20.0
    retries: int = 1
    fresh: timedelta | None = None
    max_age: timedelta | None = None
    failures: int = 5
    rest: timedelta | None = None


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One configured instance of an adapter, whose own schema validates `settings`.

    `timeout` limits one call, None for the default. `match` selects the metrics it answers unless a route decides
    (empty: those the adapter serves by default). `namespaces`: names or patterns of the namespaces whose HPAs may use
    the source (empty: all). `fallback` applies while its metrics fail, to HPAs without a policy of their own (see
    `hpad.engine.fallback_policy`). `origin`: the file or variable that configures it.
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
    """Sends metrics that match to the named source. The first matching route wins."""

    match: Match
    source: str


class HpaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Gives annotations to HPAs that cannot be annotated; those of the HPA itself win.

    `namespaces` and `names` hold names or patterns ("worker-*"), `labels` label -> value or pattern of the HPA; what is
    empty selects every HPA. `annotations`: annotation -> text.
    """

    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the state of HPAs is kept: the file `path` (`sqlite`), ConfigMaps NAME-0, NAME-1, ... (`cluster`), or
    only in the process (`memory`).

    `namespace` is that of the ConfigMaps, None for that of the Lease or of hpad. `chosen`: the settings name a kind.
    """

    kind: str = "memory"
    path: Path | None = None
    namespace: str | None = None
    name: str = "hpad-history"
    chosen: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All validated settings.

    `manifests`: HPAs come from this folder instead of the API server. `competing_hpas`: whether hpad writes to a target
    that another HPA of the API server scales. `workers` is the number of concurrent reconciles, not counting those that
    wait for metrics. `max_staleness`: replicas are kept once a watch has received nothing for this long; bookmarks come
    about once a minute and a silent watch is restarted after 150 s, so five minutes are two such rounds. `kube_api_qps`
    None: no client-side limit. `status_refresh`: measured values alone are written to the status of an HPA at most once
    per this time; 0: whenever they change. `names_zero`: the settings set the feature gate HPAScaleToZero.
    `record_limit`: disk space for recordings in bytes, 0 for no limit. `record_recent`: how long each reconcile is kept
    in memory, to be saved to `recent_folder` on request. `decision_history`: how long past decisions are kept, in a
    file of at most `decision_history_disk` bytes. 0 turns each of these off.
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
    kube_api_qps: float | None = None
    status_refresh: timedelta = timedelta(0)
    tunables: Tunables = Tunables()
    election: Election = Election()
    sources: tuple[SourceSettings, ...] = ()
    routes: tuple[Route, ...] = ()
    hpas: tuple[HpaEntry, ...] = ()
    listen: tuple[str, int] | None = ("127.0.0.1", 8473)
    serving: Serving = Serving()
    log_level: str = "info"
    log_format: str = "auto"
    record: Path | None = None
    record_limit: int = 1 << 30
    record_recent: timedelta = timedelta(minutes=10)
    record_recent_dir: Path | None = None
    store: StoreSettings = StoreSettings()
    decision_history: timedelta = timedelta(hours=24)
    decision_history_disk: int = 256 << 20
    dry_run: bool = False
    names_zero: bool = False

    @property
    def recent_folder(self) -> Path | None:
        """The folder for saved reconciles: `record_recent_dir`, else that of the state file; None if neither is set.

        Not `record`: a replay of that folder would read the same reconciles twice.
        """
        beside = None if self.store.path is None else self.store.path.parent
        return self.record_recent_dir or beside

    def on_server(self, version: tuple[int, int] | None) -> "Settings":
        """Returns the settings for an API server of this version (None: unknown).

        HPAScaleToZero is on by default since Kubernetes 1.37 (KEP-2021), unless the settings set the gate.
        """
        if version is None or version < _ZERO_BY_DEFAULT or self.names_zero:
            return self
        gates = msgspec.structs.replace(self.tunables.gates, HPAScaleToZero=True)
        return msgspec.structs.replace(self, tunables=msgspec.structs.replace(self.tunables, gates=gates))
