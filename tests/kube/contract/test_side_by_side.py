"""kube-controller-manager on one cluster and hpad on an equal one: both clusters end in the same state."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from kube.contract import controllers, side
from kube.contract.side import HPAS, Json, Side
from support import apiserver, metrics_apis

from hpad import settings

PERIOD = 5
SAME = "the same"
pytestmark = pytest.mark.real_kube_apiserver


class Case(NamedTuple):
    """A workload, and the HPA on it."""

    name: str
    metrics: list[Json]
    kind: str = "Deployment"
    replicas: int = 2
    exists: bool = True
    cpu: str | None = "100m"
    selector: str | None = None
    api_version: str | None = None
    behavior: Json | None = {"scaleDown": {"stabilizationWindowSeconds": 0}}  # noqa: RUF012  # never changed
    limits: tuple[int, int] = (1, 4)
    target: str = ""
    named: str = ""
    """The kind in the HPA, if its spelling differs."""

    @property
    def hpa(self) -> Json:
        version = self.api_version or side.version_of(self.kind)
        ref = {"kind": self.named or self.kind, "name": self.target or self.name, "apiVersion": version}
        spec = {"scaleTargetRef": ref, "minReplicas": self.limits[0], "maxReplicas": self.limits[1]}
        spec |= {"metrics": self.metrics, **({"behavior": self.behavior} if self.behavior else {})}
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        return {**head, "metadata": {"name": self.name}, "spec": spec}


def cpu(percent: int = 50) -> Json:
    return {"type": "Resource", "resource": {"name": "cpu", "target": _utilization(percent)}}


def container(name: str) -> Json:
    source = {"name": "cpu", "container": name, "target": _utilization(50)}
    return {"type": "ContainerResource", "containerResource": source}


def memory(average: str) -> Json:
    return {"type": "Resource", "resource": {"name": "memory", "target": _average(average)}}


def pods(metric: str) -> Json:
    return {"type": "Pods", "pods": {"metric": {"name": metric}, "target": _average("10")}}


def thing(metric: str, kind: str = "Service", version: str = "v1") -> Json:
    described = {"kind": kind, "name": "web", "apiVersion": version}
    return {
        "type": "Object",
        "object": {
            "describedObject": described,
            "metric": {"name": metric},
            "target": {"type": "Value", "value": "10"},
        },
    }


def external(metric: str, target: Json | None = None) -> Json:
    return {"type": "External", "external": {"metric": {"name": metric}, "target": target or _average("10")}}


def _utilization(percent: int) -> Json:
    return {"type": "Utilization", "averageUtilization": percent}


def _average(value: str) -> Json:
    return {"type": "AverageValue", "averageValue": value}


CASES = [
    Case("grows", [cpu()]),
    Case("steady", [cpu()], behavior=None),
    Case("waits-to-shrink", [cpu()], behavior=None, replicas=4),
    Case("shrinks", [cpu()], replicas=4),
    Case("tolerates", [cpu()], behavior={"scaleUp": {"tolerance": "1500m"}}),
    Case("above", [cpu()], replicas=9),
    Case("below", [cpu()], limits=(3, 4)),
    Case("off", [cpu()], replicas=0),
    Case("gone", [cpu()], exists=False),
    Case("no-scale", [cpu()], kind="DaemonSet"),
    Case("scale-less", [cpu()], kind="Fixture"),
    Case("scale-less-gone", [cpu()], kind="Fixture", exists=False),
    Case("no-kind", [cpu()], kind="Thing", api_version="nowhere.example/v1", exists=False),
    Case("other-version", [cpu()], api_version="apps/v1beta9"),
    Case("rc", [cpu()], kind="ReplicationController"),
    Case("rs", [cpu()], kind="ReplicaSet"),
    Case("sts", [cpu()], kind="StatefulSet"),
    Case("lower-case", [cpu()], named="deployment"),
    Case("mixed-case", [cpu()], named="dEPLOYMENT"),
    Case("gadget", [cpu()], kind="Gadget"),
    Case("lower-case-gadget", [cpu()], kind="Gadget", named="gadget"),
    Case("no-selector", [cpu()], kind="Gadget", selector=""),
    Case("bad-selector", [cpu()], kind="Gadget", selector="a in (b"),
    Case("no-object-says", [cpu()], kind="Gadget", selector="app!=x"),
    Case("no-object-orders", [cpu()], kind="Gadget", selector="size>3"),
    Case("otherwise-written", [cpu()], kind="Gadget", selector="app == otherwise-written"),
    Case("written-twice", [cpu()], kind="Gadget", selector="app=x,app=written-twice"),
    Case("nobody-selected", [cpu()], kind="Gadget", selector="app=nobody"),
    Case("schema-refuses", [external("ninety")], kind="Gadget", limits=(1, 9)),
    Case("two", [cpu()]),
    Case("no-metrics", [cpu()]),
    Case("no-request", [cpu()], cpu=None),
    Case("container", [container("app")]),
    Case("no-container", [container("nobody")]),
    Case("memory", [memory("20Mi")]),
    Case("pods", [pods("hits")]),
    Case("no-pods-metric", [pods("absent")]),
    Case("object", [thing("rps")]),
    Case("no-object-metric", [thing("absent")]),
    Case("lower-case-object", [thing("rps", "service")]),
    Case("no-object-kind", [thing("rps", "Thing", "nowhere.example/v1")]),
    Case("external", [external("ninety", {"type": "Value", "value": "60"})]),
    Case("external-average", [external("thirty")]),
    Case("no-external", [external("absent")]),
    Case("negative", [external("negative")]),
    Case("nothing", [external("nothing")]),
    Case("one-fails", [external("absent"), cpu()]),
    Case("one-fails-shrinking", [cpu(), external("absent")], replicas=4),
    Case("all-fail", [pods("absent"), external("absent"), cpu()]),
    Case("never-up", [external("ninety")], behavior={"scaleUp": {"selectPolicy": "Disabled"}}),
    Case("never-down", [external("nothing")], behavior={"scaleDown": {"selectPolicy": "Disabled"}}),
    Case(
        "slowly",
        [external("ninety")],
        limits=(1, 9),
        behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 900}]}},
    ),
]
COMPETITOR = Case("two-again", [cpu()], target="two")
BUSY = (
    *("grows", "tolerates", "other-version", "rc", "rs", "sts", "gadget", "container", "one-fails"),
    *("lower-case", "lower-case-gadget", "otherwise-written", "written-twice"),
)
IDLE = ("shrinks", "waits-to-shrink", "one-fails-shrinking")
UNMEASURED = ("no-metrics", "all-fail")


def first() -> metrics_apis.Load:
    load = metrics_apis.Load()
    for case in CASES:
        if case.name not in UNMEASURED:
            used = "100m" if case.name in BUSY else "5m" if case.name in IDLE else "50m"
            load.usage[case.name] = {"app": used}
    load.pods["pods", "hits"] = "17500m"
    load.objects["services", "web", "rps"] = "42"
    load.external |= {"ninety": "90", "thirty": "30", "nothing": "0", "negative": "-5"}
    return load


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Logs errors only, so that differences are easy to see."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


CONFIGURATIONS = {"exact": controllers.exact, "default": settings.Settings}
FIXED = {"exact": frozenset[str](), "default": frozenset({"negative", "no-container"})}
"""Cases with an intended difference: for hpad a negative sum is not an overflow, and the error of a container that no
pod has names it."""
TWO_APIS = frozenset(case.name for case in CASES if len({metric["type"] for metric in case.metrics}) > 1)
DIFFERENT_EVENTS = {"exact": frozenset({"all-fail"}), "default": TWO_APIS}
"""Cases with different events. By default each metrics API is retried after its own cooldown, so after an outage one
may be back up to a period before the other, which causes further events. Always, `all-fail` has four events in each
reconcile: those of the seventh one exceed the burst of 25, so the number of reconciles decides which are written."""
ROUNDS = 3
"""Number of outages of the metrics APIs."""


@pytest.fixture(params=CONFIGURATIONS)
async def sides(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Side, Side, metrics_apis.Load]]:
    if (reason := apiserver.missing(controllers.CONTROLLER)) is not None:
        pytest.skip(reason)
    load = first()
    async with contextlib.AsyncExitStack() as stack:
        both = []
        for name in ("theirs", "ours"):
            (tmp_path / name).mkdir()
            both.append(await stack.enter_async_context(side.started(tmp_path / name, load)))
        for each in both:
            for case in CASES:
                if case.exists:
                    selector = f"app={case.name}" if case.selector is None else case.selector
                    await each.workload(case.kind, case.name, case.replicas, case.cpu, selector)
        await stack.enter_async_context(_playing(both))
        await asyncio.to_thread(stack.enter_context, controllers.controller(both[0].kubeconfig, tmp_path, PERIOD))
        configured = CONFIGURATIONS[request.param]()
        await stack.enter_async_context(controllers.hpad(both[1].kubeconfig, configured, PERIOD))
        for each in both:
            for case in CASES:
                await each.ask("POST", HPAS, case.hpa)
        yield both[0], both[1], load


@contextlib.asynccontextmanager
async def _playing(both: list[Side]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.play()) for each in both]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def agree(
    what: Callable[[Side], Any], both: tuple[Side, Side], but: frozenset[str] = frozenset(), seconds: float = 60
) -> None:
    """Waits until both sides are equal, except in the cases `but`; else raises AssertionError with the differences."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        theirs, ours = await asyncio.gather(*map(what, both))
        names = sorted((theirs.keys() | ours.keys()) - but)
        if all(theirs.get(name) == ours.get(name) for name in names):
            return
        await asyncio.sleep(1)
    differing = [f"{name}: {_difference(theirs.get(name), ours.get(name))}" for name in names]
    different = [line for line in differing if not line.endswith(SAME)]
    assert not different, "\n".join(different)


def _difference(theirs: Any, ours: Any) -> str:
    if theirs == ours:
        return SAME
    if isinstance(theirs or ours, set):
        theirs, ours = theirs or set(), ours or set()
        return f"only theirs: {sorted(theirs - ours)}, only ours: {sorted(ours - theirs)}"
    return f"theirs: {json.dumps(theirs)}, ours: {json.dumps(ours)}"


async def all_have_conditions(both: tuple[Side, Side]) -> None:
    async with asyncio.timeout(90):
        for each in both:
            while not all(status.get("conditions") for status in (await each.statuses()).values()):  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.5)


async def test_both_controllers_reach_the_same_state(
    sides: tuple[Side, Side, metrics_apis.Load], request: pytest.FixtureRequest
) -> None:
    theirs, ours, load = sides
    name = request.node.callspec.params["sides"]
    both, fixed, different_events = (theirs, ours), FIXED[name], DIFFERENT_EVENTS[name]

    async def all_agree() -> None:
        for what in (Side.replicas, Side.statuses):
            await agree(what, both, fixed)
        await agree(Side.events, both, fixed | different_events)

    await all_have_conditions(both)
    for each in both:
        await each.ask("POST", HPAS, COMPETITOR.hpa)
    await all_have_conditions(both)
    await asyncio.sleep(2 * PERIOD)
    await all_agree()
    assert (await ours.replicas())["grows"] == 4
    assert (await theirs.replicas())["negative"] == 4
    assert (await ours.replicas())["negative"] == (1 if fixed else 4)

    load.usage |= {name: {"app": "5m"} for name in BUSY} | {"steady": {"app": "100m"}, "no-metrics": {"app": "50m"}}
    load.external |= {"ninety": "20", "thirty": "10"}
    load.objects["services", "web", "rps"] = "1"
    load.pods["pods", "hits"] = "1"
    for each in both:
        await each.ask("DELETE", f"{HPAS}/two-again")
        await each.ask("PATCH", f"{HPAS}/below", {"spec": {"minReplicas": 4}})
        await each.wake("Deployment", "off", 2)
    await asyncio.sleep(3 * PERIOD)
    await all_agree()
    assert (await ours.replicas())["grows"] == 1

    for _ in range(ROUNDS):
        load.failing |= metrics_apis.VERSIONS.keys()
        await asyncio.sleep(2 * PERIOD)
        await all_agree()
        assert (await ours.statuses())["grows"]["conditions"][1]["message"].endswith("the metrics API is down")
        load.failing.clear()
        await asyncio.sleep(2 * PERIOD)
        await all_agree()
