"""Twenty HPAs: twelve with one planted fault each, eight good ones. All figures depend on a seed alone.

A fault is planted as an operator makes it, by a setting that does not fit the load or the pods; what follows from it
is left to the plain HPA.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from support import advice_seeds_loads as loads
from support.plain_hpa import PERIOD
from support.plain_world import Container, Run, Workload, run

from hpad.simulation.advice.assessment import HpaFault

Manifest = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One HPA, its target, and its load. `fault` is None for a good one; `also` are other true names for the fault."""

    manifest: Manifest
    workload: Workload
    fault: HpaFault | None = None
    also: frozenset[HpaFault] = frozenset()
    begin: int = 0
    """Seconds from the begin of the week at which the HPA was made."""
    earlier: Manifest | None = None
    """What the HPA was until `changed`, in seconds from `begin`."""
    changed: int = 0
    scaled: bool = True
    """False for a workload without an HPA."""
    cgroups: bool = False
    """Whether the series of the pods themselves are there, beside those of their containers."""

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.manifest["metadata"]["namespace"])

    @property
    def target(self) -> tuple[str, str]:
        """Kind and name of the target."""
        ref = self.manifest["spec"]["scaleTargetRef"]
        return ref["kind"], ref["name"]

    @property
    def memory(self) -> bool:
        """Whether it is scaled by memory; the series of memory of others are left out, to save samples."""
        return any(metric.get("resource", {}).get("name") == "memory" for metric in self.manifest["spec"]["metrics"])

    def bounds(self, now: int) -> tuple[int, int]:
        """Returns minReplicas and maxReplicas at a time."""
        spec = (self.earlier if self.earlier and now < self.changed else self.manifest)["spec"]
        return spec["minReplicas"], spec["maxReplicas"]

    def run(self) -> Run:
        """Runs it as it was."""
        if self.earlier is None:
            return run(self.manifest, self.workload)
        return run(self.earlier, self.workload, {self.changed: self.manifest})


def cpu(goal: int) -> dict[str, Any]:
    """Returns a Resource metric by CPU utilization."""
    target = {"type": "Utilization", "averageUtilization": goal}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def average(kind: str, name: str, value: int) -> dict[str, Any]:
    """Returns an External or Pods metric by its average value."""
    target = {"type": "AverageValue", "averageValue": str(value)}
    return {"type": kind, kind.lower(): {"metric": {"name": name}, "target": target}}


def hpa(name: str, bounds: tuple[int, int], *metrics: Any, kind: str = "Deployment", **behavior: Any) -> Manifest:
    """Returns a manifest; the namespace is before the slash."""
    namespace, name = name.split("/")
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
        "minReplicas": bounds[0],
        "maxReplicas": bounds[1],
        "metrics": list(metrics),
    }
    if behavior:
        spec["behavior"] = behavior
    head = {"name": name, "namespace": namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": spec}


def _app(request: float, memory: float = 256 * 2**20) -> list[Container]:
    return [Container(name="app", cpu=request, memory=memory)]


def _served(load: loads.Load, request: float, **options: Any) -> Workload:
    """Returns a workload whose pods may use twice what they request. `load` is in requests of a pod."""
    cores = [value * request for value in load]
    return Workload(load=cores, most=options.pop("most", 2.0) * request, containers=_app(request), **options)


def at_maximum(random: Random) -> Case:
    """A shop has grown: at its peak it needs nearly twice the maximum."""
    goal, most = random.choice([60, 65, 70]), random.choice([4, 5, 6])
    peak = most * random.uniform(1.6, 1.9) * goal / 100
    load = loads.noisy(loads.daily(peak * 0.25, peak, random.uniform(13, 20)), random, 0.05)
    manifest = hpa("shop/checkout", (2, most), cpu(goal))
    return Case(manifest=manifest, workload=_served(load, 0.5, most=2.5), fault=HpaFault.AT_MAXIMUM)


def flapping(random: Random) -> Case:
    """Scale-downs without any window, under a load that swings every few minutes."""
    goal, level, period = random.choice([60, 70]), random.uniform(3.2, 4.2), random.uniform(7, 9)
    base = loads.daily(level * 0.85 * goal / 100, level * 1.15 * goal / 100)
    swings = [(int(at * period * 4), int(period * 2)) for at in range(int(loads.WEEK / (period * 4)))]
    load = loads.noisy(loads.surged(base, swings, random.uniform(1.5, 1.7)), random, 0.06, 1.0)
    manifest = hpa("shop/search", (2, 12), cpu(goal), scaleDown={"stabilizationWindowSeconds": 0})
    workload = _served(load, 0.25, startup=20, first_replicas=4)
    return Case(manifest=manifest, workload=workload, fault=HpaFault.FLAPPING, also=frozenset({HpaFault.WINDOW_SHORT}))


def idle_minimum(random: Random) -> Case:
    """A minimum from the days before the service was made faster."""
    goal, least = random.choice([60, 70]), random.choice([8, 10])
    peak = random.uniform(1.8, 2.6) * goal / 100
    load = loads.noisy(loads.daily(peak * 0.3, peak), random, 0.06)
    manifest = hpa("shop/catalog", (least, 2 * least), cpu(goal))
    workload = _served(load, 0.5, first_replicas=least)
    return Case(manifest=manifest, workload=workload, fault=HpaFault.IDLE_MINIMUM)


def goal_low(random: Random) -> Case:
    """A goal far below what a smooth load needs as headroom."""
    goal = random.choice([20, 25, 30])
    peak = random.uniform(7, 9) * goal / 100
    load = loads.noisy(loads.daily(peak * 0.45, peak, random.uniform(11, 16)), random, 0.04, 10)
    manifest = hpa("shop/recommend", (2, 24), cpu(goal))
    return Case(manifest=manifest, workload=_served(load, 1.0, first_replicas=5), fault=HpaFault.GOAL_LOW)


def goal_high(random: Random) -> Case:
    """No headroom for surges that come several times an hour, with pods that take a while to start."""
    goal = random.choice([90, 95])
    low, high = random.uniform(2.0, 2.4) * goal / 100, random.uniform(3.6, 4.4) * goal / 100
    surges = loads.at_random(random, (0.25, 0.75), (5, 10))
    base = loads.noisy(loads.daily(low, high), random, 0.07, 2.0)
    load = loads.surged(base, surges, random.uniform(1.6, 1.8), 5)
    workload = _served(load, 0.5, startup=random.choice([60, 75]), most=2.0, first_replicas=3)
    return Case(manifest=hpa("shop/pricing", (2, 16), cpu(goal)), workload=workload, fault=HpaFault.GOAL_HIGH)


def window_short(random: Random) -> Case:
    """Replicas are gone before the next wave of a load that comes in waves."""
    goal, period = random.choice([60, 65]), random.uniform(6.5, 7.5)
    low = random.uniform(2.1, 2.6) * goal / 100
    waves = [(int((at * period + random.uniform(-0.4, 0.4) + 1) * 4), int(period * 4 * 0.45)) for at in range(1340)]
    load = loads.noisy(loads.surged(loads.daily(low, low * 1.3), waves, 2.2), random, 0.04, 1.0)
    window = random.choice([15, 30, 45])
    manifest = hpa("media/gateway", (2, 14), cpu(goal), scaleDown={"stabilizationWindowSeconds": window})
    workload = _served(load, 0.25, startup=random.choice([45, 60]), most=2.5)
    return Case(manifest=manifest, workload=workload, fault=HpaFault.WINDOW_SHORT, also=frozenset({HpaFault.FLAPPING}))


def window_useless(random: Random) -> Case:
    """A window of most of an hour after short surges hours apart."""
    goal, low = random.choice([60, 70]), random.uniform(2.2, 2.7)
    surges = loads.at_random(random, (3.0, 4.5), (4, 7))
    load = loads.surged(loads.noisy(loads.daily(low * goal / 100, low * goal / 100), random, 0.04, 10), surges, 3.2, 8)
    window = random.choice([2700, 3600])
    manifest = hpa("media/reports", (2, 14), cpu(goal), scaleDown={"stabilizationWindowSeconds": window})
    workload = _served(load, 0.5, startup=20, most=3.0, first_replicas=3)
    return Case(manifest=manifest, workload=workload, fault=HpaFault.WINDOW_USELESS)


def policy_slow(random: Random) -> Case:
    """One more pod every few minutes, for a morning that comes within minutes."""
    goal, period = random.choice([60, 65]), random.choice([180, 300])
    load = loads.office(2.2 * goal / 100, random.uniform(7.5, 9.5) * goal / 100, random, random.uniform(5, 9))
    policy = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": period}]}
    manifest = hpa("shop/frontend", (2, 16), cpu(goal), scaleUp=policy)
    workload = _served(loads.noisy(load, random, 0.04), 0.5, most=4.0)
    return Case(manifest=manifest, workload=workload, fault=HpaFault.POLICY_SLOW)


def requests_missing(random: Random) -> Case:
    """A sidecar without requests, since it was injected."""
    level = random.uniform(1.6, 2.2)
    load = loads.noisy(loads.daily(level * 0.5, level), random, 0.06)
    containers = [
        Container(name="app", cpu=0.5, memory=2.0**28, share=0.9),
        Container(name=random.choice(["istio-proxy", "log-shipper"]), cpu=None, share=0.1),
    ]
    cores = [value * 0.5 for value in load]
    workload = Workload(load=cores, most=1.0, containers=containers, first_replicas=3)
    return Case(manifest=hpa("shop/profile", (2, 10), cpu(70)), workload=workload, fault=HpaFault.REQUESTS_MISSING)


def metric_failing(random: Random) -> Case:
    """The adapter of the metric is down for hours, twice, and for minutes now and then."""
    goal, level = random.choice([40, 50]), random.uniform(4, 5.5)
    load = loads.noisy(loads.daily(level * 0.4, level), random, 0.06)
    hours = [(random.uniform(30, 40), random.uniform(4, 7)), (random.uniform(90, 100), random.uniform(6, 9))]
    hours += [(random.uniform(0, 160), 0.2) for _ in range(6)]
    outages = [(int(begin * 3600), int((begin + length) * 3600)) for begin, length in hours]
    metric = average("Pods", "http_requests_per_second", goal)
    workload = _served(load, 0.5, per_core=goal * 2.0, unreadable=outages, first_replicas=4)
    return Case(manifest=hpa("media/ingest", (2, 14), metric), workload=workload, fault=HpaFault.METRIC_FAILING)


def minimum_is_maximum(random: Random) -> Case:
    """Pinned during an incident, and left so."""
    count, goal = random.choice([4, 5]), random.choice([60, 70])
    load = loads.noisy(loads.daily(0.9 * goal / 100, random.uniform(2.6, 3.4) * goal / 100), random, 0.06)
    workload = _served(load, 0.5, first_replicas=count)
    return Case(
        manifest=hpa("shop/session", (count, count), cpu(goal)), workload=workload, fault=HpaFault.MINIMUM_IS_MAXIMUM
    )


def queue_slow(random: Random) -> Case:
    """Mailings come in bursts, and workers are added so late that the backlog stands for an hour."""
    goal, rate = random.choice([60, 90]), random.choice([0.5, 1.0])
    base = loads.daily(rate * 1.2, rate * 2.2)
    bursts = loads.at_random(random, (4, 7), (12, 20))
    load = loads.noisy(loads.surged(base, bursts, random.uniform(7, 9)), random, 0.08)
    slow = random.choice(
        [
            {"policies": [{"type": "Pods", "value": 1, "periodSeconds": random.choice([300, 600])}]},
            {"stabilizationWindowSeconds": random.choice([900, 1200])},
        ]
    )
    metric = average("External", "rabbitmq_queue_messages_ready", goal)
    manifest = hpa("mail/mailer", (1, 30), metric, scaleUp=slow)
    workload = Workload(load=load, most=0.3, containers=_app(0.2), per_worker=rate)
    also = frozenset({HpaFault.POLICY_SLOW})
    return Case(manifest=manifest, workload=workload, fault=HpaFault.QUEUE_SLOW, also=also)


def web(random: Random) -> Case:
    """A web service with a day."""
    goal = random.choice([60, 65, 70])
    load = loads.noisy(loads.daily(2.7 * goal / 100, random.uniform(6.5, 8) * goal / 100), random, 0.04)
    return Case(manifest=hpa("shop/web", (3, 14), cpu(goal)), workload=_served(load, 0.5, first_replicas=4))


def intranet(random: Random) -> Case:
    """A service of working days."""
    goal = random.choice([65, 70])
    load = loads.daily(1.9 * goal / 100, random.uniform(6.5, 8) * goal / 100, 12.5, weekend=0.1)
    manifest = hpa("office/intranet", (2, 12), cpu(goal))
    return Case(manifest=manifest, workload=_served(loads.noisy(load, random, 0.05), 0.5))


def small(random: Random) -> Case:
    """A small service that has two replicas so that one may go."""
    load = loads.noisy(loads.daily(0.5, random.uniform(0.9, 1.2)), random, 0.08)
    return Case(manifest=hpa("shop/auth", (2, 6), cpu(65)), workload=_served(load, 0.2))


def spiky(random: Random) -> Case:
    """A goal with headroom for surges that come without warning, faster than a pod starts."""
    goal = random.choice([40, 45])
    surges = loads.at_random(random, (0.6, 1.6), (4, 7))
    base = loads.daily(2.8 * goal / 100, random.uniform(4.4, 5.2) * goal / 100)
    load = loads.surged(loads.noisy(base, random, 0.05), surges, random.uniform(1.9, 2.05), 2)
    workload = _served(load, 0.5, startup=120, most=2.5, first_replicas=3)
    return Case(manifest=hpa("media/events", (3, 16), cpu(goal)), workload=workload)


def queue(random: Random) -> Case:
    """Workers whose backlog follows its goal, and of whom two stay, as the count of one would swing all night."""
    rate = random.choice([0.2, 0.25])
    load = loads.noisy(loads.daily(rate * 1.6, rate * random.uniform(6, 7)), random, 0.05, 15)
    metric = average("External", "rabbitmq_queue_messages_ready", random.choice([90, 120]))
    workload = Workload(load=load, most=0.3, containers=_app(0.2), per_worker=rate, startup=20)
    return Case(manifest=hpa("mail/orders-worker", (2, 12), metric), workload=workload)


def two_metrics(random: Random) -> Case:
    """CPU and memory, of which CPU decides."""
    goal = random.choice([60, 65])
    memory = cpu(85)
    memory["resource"]["name"] = "memory"
    load = loads.noisy(loads.daily(1.9 * goal / 100, random.uniform(4.5, 5.5) * goal / 100), random, 0.04)
    workload = _served(load, 0.5, memory=(2**28 * 0.5, 2**28 * 0.3), first_replicas=3)
    return Case(manifest=hpa("media/images", (2, 10), cpu(goal), memory), workload=workload, cgroups=True)


def stateful(random: Random) -> Case:
    """A StatefulSet."""
    load = loads.noisy(loads.daily(3.2 * 0.6, random.uniform(5.5, 6.5) * 0.6, 19), random, 0.04)
    manifest = hpa("shop/sessions-cache", (3, 9), cpu(60), kind="StatefulSet")
    return Case(manifest=manifest, workload=_served(load, 0.5, startup=45, first_replicas=4))


def new(random: Random) -> Case:
    """A service since three days."""
    goal = random.choice([60, 65])
    load = loads.noisy(loads.daily(1.9 * goal / 100, random.uniform(4, 5) * goal / 100, days=3), random, 0.05)
    begin = 4 * loads.DAY * PERIOD
    return Case(manifest=hpa("shop/promo", (2, 8), cpu(goal)), workload=_served(load, 0.25), begin=begin)


def _bystander(random: Random, name: str, replicas: int, **options: Any) -> Case:
    """Returns a workload without an HPA: one that never scales stands in for it."""
    load = loads.noisy(loads.daily(0.3 * replicas, 0.6 * replicas), random, 0.1)
    manifest = hpa(name, (replicas, replicas), cpu(100), **options)
    return Case(manifest=manifest, workload=_served(load, 0.1, first_replicas=replicas), scaled=False)


def bystanders(seed: int, hpas: Collection[str]) -> list[Case]:
    """Returns workloads beside these HPAs, with names that begin like theirs, and a StatefulSet."""
    random = Random(f"{seed} bystanders")
    names = {
        "shop/web-admin": ("web", 1),
        "shop/auth-proxy": ("auth", 2),
        "staging/web": ("web", 1),
        "shop/checkout-admin": ("checkout", 1),
    }
    found = [_bystander(random, name, replicas) for name, (hpa, replicas) in names.items() if hpa in hpas]
    return [*found, _bystander(random, "shop/redis", 2, kind="StatefulSet")]


FAULTY: Mapping[str, Callable[[Random], Case]] = {
    "checkout": at_maximum,
    "search": flapping,
    "catalog": idle_minimum,
    "recommend": goal_low,
    "pricing": goal_high,
    "gateway": window_short,
    "reports": window_useless,
    "frontend": policy_slow,
    "profile": requests_missing,
    "ingest": metric_failing,
    "session": minimum_is_maximum,
    "mailer": queue_slow,
}
GOOD: Mapping[str, Callable[[Random], Case]] = {
    "web": web,
    "intranet": intranet,
    "auth": small,
    "events": spiky,
    "orders-worker": queue,
    "images": two_metrics,
    "sessions-cache": stateful,
    "promo": new,
}


def cases(seed: int, names: Collection[str] = ()) -> dict[str, Case]:
    """Returns the twenty HPAs of a seed by their names, or those of these names."""
    makers = {name: make for name, make in {**FAULTY, **GOOD}.items() if not names or name in names}
    return {name: make(Random(f"{seed} {make.__name__}")) for name, make in makers.items()}
