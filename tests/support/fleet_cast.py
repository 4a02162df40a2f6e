"""The HPAs of the fleet: a few with a day of history in every state, and thousands of ordinary ones."""

import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from support.engine import Answer, Workload, container, external, pods_metric, resource
from support.fleet import END, Fleet, Member

from hpad.api.metadata import Key
from hpad.api.sample import AdapterError, ExternalSample
from hpad.engine.view import Competitor, Gates, ScaleError

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\x1b[2J"
"""A text that a page must show and never interpret."""

_GENTLE: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 3, "periodSeconds": 60},
            {"type": "Percent", "value": 40, "periodSeconds": 60},
        ],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "selectPolicy": "Min",
        "policies": [
            {"type": "Pods", "value": 2, "periodSeconds": 60},
            {"type": "Percent", "value": 15, "periodSeconds": 120},
        ],
    },
}
"""A behavior of which each part shows in a day: policies both ways, and a window for scaling down."""


def day(now: datetime, low: float, high: float, *, seed: int = 0) -> float:
    """Returns a load that follows the hours of the day, with waves of minutes and a burst every two hours."""
    seconds = (now - END).total_seconds() + 7 * 86400 + seed * 1777
    slow = 0.5 + 0.5 * math.sin(seconds / 86400 * 2 * math.pi + 1.1)
    waves = 0.12 * math.sin(seconds / 1700) + 0.06 * math.sin(seconds / 390 + seed)
    burst = 0.55 if seconds % 7300 < 500 else 0.0
    return low + (high - low) * max(0.0, min(1.25, slow * 0.75 + waves + burst))


def checkout() -> Member:
    """Three metrics, policies and windows: every stage of a decision occurs."""

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        load = day(now, 900, 9000)
        depth = round(max(0.0, day(now, -120, 700, seed=5)) * member.dice.uniform(0.9, 1.1))
        stamp = now - timedelta(seconds=3)
        return [
            member.shares(load * 1000 / 1000, now),
            member.shares(load * 160, now, 0.05),
            ExternalSample((depth * 600, depth * 400), stamp),
        ]

    queue = external("orders_ready", {"queue": "orders"}, averageValue="30")
    metrics = resource("cpu", averageUtilization=60), pods_metric("http_requests_per_second", "90"), queue
    workload = Workload(*metrics, replicas=6, low=3, high=24, behavior=_GENTLE)
    return Member(Key("shop", "checkout"), workload, answers)


def storefront() -> Member:
    """Wants more than its maximum."""

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        return [member.shares(day(now, 4000, 6500) + 2600, now)]

    return Member(
        Key("shop", "storefront"), Workload(resource("cpu", averageUtilization=70), replicas=9, low=4, high=12), answers
    )


def ledger() -> Member:
    """Fails since its broker is unreachable."""
    error = AdapterError("rabbitmq: GET http://rabbitmq.payments:15672/api/queues/%2F/ledger: connection refused")

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        waiting = round(day(now, 100, 900, seed=2))
        broken = END - now < timedelta(minutes=17)
        return [error if broken else ExternalSample((waiting * 1000,), now)]

    metric = external("ledger_ready", {"queue": "ledger"}, averageValue="50")
    return Member(Key("payments", "ledger-worker"), Workload(metric, replicas=5, low=2, high=20), answers)


def fraud() -> Member:
    """One metric is in fallback, another decides."""
    error = AdapterError('prometheus: no series for scoring_backlog{namespace="payments"} in the last 5m')

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        broken = END - now < timedelta(minutes=42)
        backlog = day(now, 20, 260, seed=4) * len(member.pods)
        return [
            member.shares(day(now, 700, 2600, seed=4), now),
            error if broken else member.shares(backlog * 1000, now),
        ]

    workload = Workload(
        resource("cpu", averageUtilization=75),
        pods_metric("scoring_backlog", "100"),
        replicas=4,
        low=2,
        high=16,
        annotations={"hpad.io/fallback": "scoring_backlog=replicas:8"},
    )
    return Member(Key("payments", "fraud-scoring"), workload, answers)


def transcoder() -> Member:
    """Scales to zero and back."""

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        jobs = max(0, round(day(now, -60, 90, seed=9)))
        return [ExternalSample((jobs * 1000,), now - timedelta(seconds=2))]

    metric = external("transcode_jobs", {"queue": "transcode"}, averageValue="6")
    workload = Workload(metric, replicas=2, low=0, high=15, gates=Gates(HPAScaleToZero=True))
    return Member(Key("media", "transcoder"), workload, answers, requests={"cpu": 4000})


def indexer() -> Member:
    """A step up is limited by its policy just now."""

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        burst = 9000 if END - now < timedelta(seconds=50) else 0
        return [member.shares(day(now, 1200, 3000, seed=7) + burst, now)]

    workload = Workload(resource("cpu", averageUtilization=65), replicas=7, low=2, high=40, behavior=_GENTLE)
    return Member(Key("search", "indexer"), workload, answers, kind="StatefulSet")


def query() -> Member:
    """Another client writes the replicas of the target."""

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        return [member.shares(day(now, 1500, 4200, seed=3), now)]

    competitor = Competitor("scale", "argocd-controller")
    workload = Workload(resource("cpu", averageUtilization=60), replicas=6, low=3, high=30)
    return Member(Key("search", "query"), workload, answers, fields=lambda _: {"competitors": (competitor,)})


def gateway() -> Member:
    """Many pods: some start, some have no value, one is deleted."""

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        cpu, memory = member.shares(day(now, 21000, 31000, seed=6), now), member.shares(41e12, now)
        fewer = {name: value for index, (name, value) in enumerate(cpu.values.items()) if index % 17}
        return [msgspec.structs.replace(cpu, values=fewer), memory]

    def fields(member: Member) -> dict[str, Any]:
        odd = {3: {"deleted": True}, 8: {"ready": "False"}, 21: {"phase": "Failed"}}
        pods = [msgspec.structs.replace(pod, **odd.get(index, {})) for index, pod in enumerate(member.pods)]
        return {"pods": pods}

    metrics = container("cpu", "app", averageUtilization=80), resource("memory", averageUtilization=85)
    return Member(Key("platform", "gateway"), Workload(*metrics, replicas=64, low=20, high=120), answers, fields=fields)


def importer() -> Member:
    """Stopped by hand: zero replicas."""
    workload = Workload(resource("cpu", averageUtilization=60), replicas=0)
    return Member(Key("data", "importer"), workload, lambda member, now: [member.shares(0, now)])


def auth() -> Member:
    """The scale of the target cannot be read."""
    error = ScaleError('deployments.apps "auth" is forbidden: hpad cannot get resource "deployments/scale"')
    workload = Workload(resource("cpu", averageUtilization=60), replicas=3)
    fields = {"scale": None, "scale_error": error}
    return Member(
        Key("platform", "auth"), workload, lambda member, now: [member.shares(500, now)], fields=lambda _: fields
    )


def hostile() -> Member:
    """Names and errors that must not be interpreted by a page."""
    metric = external(HOSTILE, {"queue": "x"}, averageValue="5")
    workload = Workload(metric, replicas=2, annotations={"hpad.io/fallback": HOSTILE})
    return Member(Key("test", "hostile"), workload, lambda member, now: [AdapterError(HOSTILE)])


def long() -> Member:
    """The longest names that Kubernetes allows, without a place where a line would break."""
    metric = external("m" * 63, {"k" * 63: "v" * 63}, value="2Gi")
    workload = Workload(metric, resource("memory", averageValue="500Mi"), replicas=1200, low=900, high=12000)
    sample = 3 * 1024**3 * 1000

    def answers(member: Member, now: datetime) -> Sequence[Answer]:
        return [ExternalSample((sample,), now), member.shares(6e14, now)]

    return Member(Key("n" * 63, "h" * 253), workload, answers)


CAST = (checkout, storefront, ledger, fraud, transcoder, indexer, query, gateway)
"""Those with a long history."""
EXTRAS = (importer, auth, long, hostile)
_ODD = (long, hostile)


def rich(hours: float = 24, *, odd: bool = True) -> Fleet:
    """Returns the fleet of the cast with so many hours of history, decided until the present."""
    fleet = Fleet([make() for make in (*CAST, *EXTRAS) if odd or make not in _ODD], [Key("platform", "new-service")])
    for key in fleet.members:
        # Turns every 30 s rather than 15 s: half the time to make, and no visible difference.
        long = any(key == make().key for make in CAST)
        turns = round(hours * 120)
        fleet.live(key, END, turns if long else min(turns, 40), timedelta(seconds=30))
    return fleet


_TEAMS = (
    "shop",
    "payments",
    "media",
    "search",
    "data",
    "platform",
    "mail",
    "billing",
    "risk",
    "growth",
    "maps",
    "chat",
)
_PARTS = ("api", "worker", "consumer", "web", "gateway", "cache", "sync", "export", "import", "notifier", "scheduler")
_TOPICS = ("orders", "users", "catalog", "prices", "images", "events", "invoices", "reports", "carts", "stock", "feeds")


def enlarge(fleet: Fleet, count: int, *, seed: int = 1) -> None:
    """Adds ordinary HPAs until the fleet has `count`, each with two turns and some in trouble."""
    dice = random.Random(seed)
    number = 0
    while len(fleet.members) + len(fleet.idle) < count:
        number += 1
        name = f"{dice.choice(_TOPICS)}-{dice.choice(_PARTS)}-{number}"
        member = _ordinary(Key(dice.choice(_TEAMS), name), dice)
        fleet.members[member.key] = member
        fleet.live(member.key, END - timedelta(seconds=dice.uniform(0, 15)), 2)


def _ordinary(key: Key, dice: random.Random) -> Member:
    replicas, high = dice.randint(1, 8), dice.randint(8, 40)
    chance = dice.random()
    use = 1.9 if chance < 0.03 else dice.uniform(0.4, 1.05)
    if dice.random() < 0.3:
        depth = round(30 * replicas * use)
        failing = chance > 0.985
        error = AdapterError(f"rabbitmq: no queue {key.name!r} in vhost '/'", "spec")
        metric = external("queue_ready", {"queue": key.name}, averageValue="30")
        return Member(
            key,
            Workload(metric, replicas=replicas, high=high),
            lambda member, now: [error if failing else ExternalSample((depth * 1000,), now)],
        )
    workload = Workload(
        resource("cpu", averageUtilization=60), replicas=replicas, high=replicas if chance < 0.01 else high
    )
    return Member(key, workload, lambda member, now: [member.shares(300 * use * replicas, now)])
