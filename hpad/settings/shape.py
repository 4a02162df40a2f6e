"""What settings are once they are read and checked.

How several hpads agree on who works: the figures of Kubernetes' own components and their rules.

One leads and the others stand by, or all of them share the HPAs (`shards`).

How the windows over HTTP are guarded: TLS, and who may look.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from hpad.api import duration
from hpad.api.text import shown
from hpad.engine import fallback_policy
from hpad.engine.view import Tunables

JITTER = 1.2
"""Candidates wait one to 1 + JITTER retry periods between two tries (client-go: JitterFactor)."""
LEASES = "leases"
LONGEST_LABEL = 63
_TRIES = 4
_SECOND = timedelta(seconds=1)
_LONGEST = timedelta(seconds=2**31 - 1)
_LEAST_RETRY = timedelta(milliseconds=10)


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Off by default; the other defaults are those of kube-controller-manager's `--leader-elect-*`, but for the name.

    `lease_duration`: how long others respect a Lease that they do not see renewed. `renew_deadline`: how long after its
    last renewal a leader goes on working. `retry_period`: how often a leader renews, and (with jitter) a candidate
    looks. `name` and `namespace` are the Lease's. With `shards` the figures hold for each member's own Lease, and the
    Leases of members are called after the one they have in common.
    """

    enabled: bool = False
    shards: bool = False
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    name: str = "hpad"
    namespace: str = "kube-system"


def election_problems(election: Election) -> list[str]:
    """What is wrong with the figures, a sentence each that begins with a field's name (client-go's rules).

    Some are our own: a Lease holds whole seconds, of which a fraction would be cut off behind the leader's back, and no
    more than 32 bits do; and renewals without a pause between them would keep the API server busy and nothing else.
    """
    lease, deadline, retry = election.lease_duration, election.renew_deadline, election.retry_period
    found = []
    if lease % _SECOND or lease < _SECOND:
        found.append(f"lease_duration: {duration.write(lease)} is not a whole number of seconds, as a Lease needs it")
    if lease > _LONGEST:
        found.append(f"lease_duration: {duration.write(lease)} is more than a Lease can hold, {_LONGEST // _SECOND}s")
    if retry < _LEAST_RETRY:
        found.append(f"retry_period: {duration.write(retry)} is less than {duration.write(_LEAST_RETRY)}")
    if lease <= deadline:
        found.append(
            f"lease_duration: {duration.write(lease)} is not more than the renew deadline of"
            f" {duration.write(deadline)}: work must end before others may take over"
        )
    if deadline <= retry * JITTER:
        found.append(
            f"renew_deadline: {duration.write(deadline)} is not more than {JITTER} times the retry period of"
            f" {duration.write(retry)}: a leader needs at least one more try"
        )
    return [*found, *_problems_of_shards(election)] if election.shards else found


def _problems_of_shards(election: Election) -> list[str]:
    found = []
    if election.renew_deadline < election.retry_period * _TRIES:
        found.append(
            f"renew_deadline: {duration.write(election.renew_deadline)} is less than {_TRIES} times the retry period"
            f" of {duration.write(election.retry_period)}: with shards a member learns in two rounds that another died"
        )
    if len(election.name) > LONGEST_LABEL:
        found.append(
            f"resource_name: {shown(election.name)} has more than {LONGEST_LABEL} characters: with shards it is the "
            "value of a label"
        )
    return found


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Neither TLS nor authentication by default, as befits a window that listens on loopback.

    `certificate` and `private_key` (PEM files): serve TLS; they are read anew when they change. Each of the following
    is a way to be let in, and any of those that are set suffices: `client_ca` (PEM file): a certificate signed by one
    of these authorities; `token_file`: one of the bearer tokens in that file, a line each; `review`: a bearer token
    that the cluster accepts (TokenReview), of a user that may `get` the path as a non-resource URL
    (SubjectAccessReview).
    """

    certificate: Path | None = None
    private_key: Path | None = None
    client_ca: Path | None = None
    token_file: Path | None = None
    review: bool = False

    @property
    def guarded(self) -> bool:
        """Whether one has to show who one is; probes never have to."""
        return self.client_ca is not None or self.token_file is not None or self.review


def serving_problems(serving: Serving, host: str) -> list[str]:
    """What does not go together, a sentence each that begins with a field's name; `host` is what is listened on."""
    found = []
    if serving.certificate is not None and serving.private_key is None:
        found.append("private_key: is missing: the certificate is of no use without its key")
    if serving.private_key is not None and serving.certificate is None:
        found.append("certificate: is missing: the private key is of no use without it")
    if serving.client_ca is not None and serving.certificate is None:
        found.append("client_ca: client certificates are shown over TLS alone: set the certificate, too")
    tokens = serving.token_file is not None or serving.review
    if tokens and serving.certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
        field = "token_file" if serving.token_file is not None else "review"
        found.append(f"{field}: tokens would cross the network readable by all: set the certificate, too")
    return found


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
