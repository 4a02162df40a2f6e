"""One HPA under several hpad processes in succession, in virtual time.

Processes crash and restart, clocks are set, the store fails or is slow, targets cannot be read. The counts that turns
asked for and the counts that were written are kept, and compared with the rules of Kubernetes.
"""

import asyncio
import contextvars
import functools
import itertools
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad import clock as clocks
from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.controller.planning import IN_TIME
from hpad.engine import conditions
from hpad.engine.view import Gates, Tunables
from hpad.kube import errors
from hpad.store import persistent
from hpad.telemetry import Telemetry

WEB = Key("default", "web")
PERIOD = 15.0
TOLERANCE = IN_TIME * PERIOD
"""Seconds by which the moment of a turn may precede the reading of its metrics: a fifth of the period."""


class Backend:
    """Records in a dictionary that outlives processes. `fails`: loads and saves fail. `slow`: seconds of a save.

    As with ConfigMaps, a save is refused if another process has saved since it began: its resourceVersion is outdated.
    """

    name = "records in memory"

    def __init__(self) -> None:
        self.rows: dict[Key, bytes] = {}
        self._numbers = itertools.count(1)
        self._latest = 0
        self.fails = False
        self.slow = 0.0

    def group(self, key: Key) -> Key:
        return key

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        return ([], "unreadable") if self.fails else (list(self.rows.items()), None)

    async def save(self, changes: Mapping[Key, bytes | None]) -> dict[Key, str]:
        number = next(self._numbers)
        if self.slow:
            await asyncio.sleep(self.slow)
        if self.fails:
            return dict.fromkeys(changes, "disk full")
        if number < self._latest:
            return dict.fromkeys(changes, "another process has written meanwhile")
        self._latest = number
        self.rows.update({key: data for key, data in changes.items() if data is not None})
        return {}

    async def quarantine(self, keys: Collection[Key]) -> None:
        raise AssertionError("nothing here is damaged")

    def emptied(self) -> bool:
        return False

    async def size(self) -> int:
        return 0

    async def close(self) -> None:
        pass


class Machine(virtual_time.SetClock):
    """The clocks of the machine that hpad runs on; the monotonic one is `ticks` seconds ahead of the loop."""

    ticks = 0.0

    def now(self) -> datetime:
        return virtual_time.START + timedelta(seconds=virtual_time.now()) + self.off

    def monotonic(self) -> float:
        return virtual_time.now() + self.ticks


class Switch:
    """It leads, and may save, while `on`."""

    remaining = None

    def __init__(self, on: bool) -> None:
        self.on = on

    @property
    def leading(self) -> bool:
        return self.on


_decided_on: contextvars.ContextVar[int] = contextvars.ContextVar("decided on")
"""The count that the running turn has read and decides with. Each turn is a task, so each has its own value."""


class Write(NamedTuple):
    """A written scale: its time, the counts before and after, and the limits of the HPA at that time.

    `before` is the count that the decision was made with. If another client sets the decided count during the write,
    the write changes nothing and still counts as a rescale: Kubernetes writes again after a conflict and stores the
    decided change (horizontal.go: storeScaleEvent).
    """

    at: float
    before: int
    after: int
    low: int
    high: int


class Environment:
    """Everything that outlives a process: target, metric, HPA, store, machine. `load` is the metric: ten per replica.

    `wanted` are the counts that the metric asked turns for, with their times. `sleeps`: the feature gate HPAScaleToZero
    is on.
    """

    def __init__(
        self, replicas: int = 5, behavior: Mapping[str, Any] | None = None, *, sleeps: bool = False, **spec: Any
    ) -> None:
        self.found = hpa("web", behavior=behavior, **spec)
        self.sleeps = sleeps
        self.set_by: dict[str, str] = {}
        """The targets whose managedFields show that another client has set their count."""
        self.asleep = self.stopped = False
        """The target is at zero: hpad removed its last replica (`asleep`), or another client did (`stopped`)."""
        self.revision = 1
        self.scales = {"web": replicas}
        self.version = 1
        self.load: int | None = 10 * replicas
        self.backend = Backend()
        self.clock = Machine()
        self.wanted: list[tuple[float, int]] = []
        self.writes: list[Write] = []
        self.asking = 0.0
        """Seconds that reading the metric takes."""
        self.astray: list[str] = []
        """The writes that the HPA did not allow at that moment."""
        self.refused: int | None = None
        """The count of the last refused write."""
        self.rival: HorizontalPodAutoscaler | None = None
        """A competing HPA, since `contested`; `asked` is when a metric was last read."""
        self.contested = self.asked = 0.0

    def compete(self, target: str) -> HorizontalPodAutoscaler:
        """Adds an HPA for this target, which is the same one, or a twin that selects the same pods; returns it."""
        self.scales.setdefault(target, 3)
        ref = msgspec.structs.replace(self.found.spec.scale_target_ref, name=target)
        other = hpa("other", maxReplicas=20)
        self.rival = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, scale_target_ref=ref))
        self.contested = virtual_time.now()
        return self.rival

    def agree(self) -> None:
        """Removes the competing HPA."""
        self.rival = None
        self.scales.pop("twin", None)

    async def read_by_rival(self) -> int:
        self.asked = virtual_time.now()
        return 150

    async def read(self) -> int | None:
        self.asked, found, target = virtual_time.now(), self.load, self.found.spec.scale_target_ref
        await asyncio.sleep(self.asking)
        if found is not None and target == self.found.spec.scale_target_ref:
            self.wanted.append((virtual_time.now(), -(-found // 10)))
        return found

    def forget(self) -> None:
        """The saved state is lost: as in Kubernetes, only the current count and the status remain."""
        marked = conditions.find(self.found.status.conditions, conditions.SCALED_TO_ZERO)
        self.asleep = self.asleep and marked is not None and marked.status == conditions.TRUE
        self.wanted = [(at, min(count, self.scales["web"])) for at, count in self.wanted]
        self.writes.clear()

    def point(self, target: str) -> HorizontalPodAutoscaler:
        """Returns the HPA with another target, for which earlier recommendations do not count (gate HPATargetHistory).

        A turn in the meantime also drops the rescales. Without one they still count when the former target is set
        again; so the scale-downs are kept, after which more growth is allowed. A status that was not written before is
        lost with the former target, so nothing shows that hpad took that target to zero.
        """
        self.wanted.clear()
        self.asleep = False
        self.writes = [write for write in self.writes if write.after < write.before]
        ref = msgspec.structs.replace(self.found.spec.scale_target_ref, name=target)
        spec = msgspec.structs.replace(self.found.spec, scale_target_ref=ref)
        return msgspec.structs.replace(self.found, spec=spec)

    def set(self, count: int) -> None:
        """Sets the count of the target as another client does; a scale that hpad has read is outdated then."""
        self.version += 1
        if count != self.scales["web"]:
            self.asleep, self.stopped = False, count == 0
            self.set_by["web"] = "kubectl"
        self.scales["web"] = count

    def renewed(self, known: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
        """Returns the HPA with a new resourceVersion."""
        self.revision += 1
        metadata = msgspec.structs.replace(known.metadata, resource_version=str(self.revision))
        return msgspec.structs.replace(known, metadata=metadata)

    def wrote(self, target: str, after: int) -> None:
        """Notes a written scale. HPAs compete only while the target has pods (hpad.controller.overlap)."""
        spec, at = self.found.spec, f"{virtual_time.now():.0f} s"
        if target not in (spec.scale_target_ref.name, "twin"):
            self.astray.append(f"{at}: {after} to {target}, which the HPA does not scale any more")
        low = 1 if spec.min_replicas is None else spec.min_replicas
        before = _decided_on.get()
        late = self.rival is not None and self.asked > self.contested and self.scales["web"] > 0
        if late and low <= before <= spec.max_replicas:
            self.astray.append(f"{at}: {after} to {target}, although two HPAs compete")
        if target == "twin":
            return
        up = None if spec.behavior is None else spec.behavior.scale_up
        stopped = up is not None and up.select_policy == "Disabled" and low <= before < after
        if after > spec.max_replicas or stopped:
            self.astray.append(f"{at}: {before} -> {after}, by a former spec")
        if self.stopped and after > 0:
            self.astray.append(f"{at}: {after}, although the target was set to zero by hand")
        self.asleep, self.stopped = after == 0, False
        self.set_by.pop("web", None)
        self.writes.append(Write(virtual_time.now(), before, after, low, spec.max_replicas))


QUICK = persistent.SaveIntervals(0.25, 1.0, 3.0)


class Series(Telemetry):
    """Series that are never read, and that keep no reference to the controller of an ended process."""

    def before_scrape(self, callback: Callable[[], None]) -> None:
        pass


@functools.cache
def telemetry() -> Telemetry:
    """Returns one instance for all processes: making one takes longer than everything else here."""
    return Series()


class Life:
    """One process, from its start to its end, with the intervals of its store. It stands by unless it `leads`."""

    def __init__(
        self, environment: Environment, intervals: persistent.SaveIntervals = QUICK, *, leads: bool = True
    ) -> None:
        self.environment = environment
        self.owner = Switch(leads)
        self.store = persistent.PersistentStore(
            environment.backend, environment.clock, telemetry(), intervals, lambda: self.owner.on
        )
        self.bench = Bench(
            *(found for found in (environment.found, environment.rival) if found is not None),
            owner=self.owner,
            clock=environment.clock,
            store=self.store,
            telemetry=telemetry(),
            period=PERIOD,
            gap=timedelta(seconds=4 * PERIOD),
            tunables=Tunables(downscale_stabilization=timedelta(0), gates=Gates(HPAScaleToZero=environment.sleeps)),
        )
        self.bench.cluster.scales = environment.scales
        self.bench.cluster.unwatched = {"web", "twin"}
        self.bench.cluster.set_by = environment.set_by
        self.bench.cluster.selectors = {"twin": "app=web"}
        self.bench.metrics.values.update(web=environment.read, other=environment.read_by_rival)
        self._observe(self.bench.cluster)
        self.bench.source.subscribe(self._follow)
        self._running = asyncio.create_task(self.store.run())
        self.bench.controller.start()

    def _observe(self, api: Any) -> None:
        write, read, fresh = api.write_scale, api._scale, api.fresh_scale

        def versioned(ref: CrossVersionObjectReference) -> Scale | None:
            found: Scale | None = read(ref)
            version = {"name": "web", "resourceVersion": str(self.environment.version)}
            if found is None:
                return None
            _decided_on.set(found.spec.replicas)
            return msgspec.structs.replace(found, metadata=version)

        async def fresh_scale(namespace: str, ref: CrossVersionObjectReference) -> Scale:
            """Reads the scale after a conflict, which does not change the count that the decision was made with."""
            decided_on = _decided_on.get()
            found: Scale = await fresh(namespace, ref)
            _decided_on.set(decided_on)
            return found

        async def write_scale(
            namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Callable[[], None]
        ) -> Scale:
            allowed()
            refused = bool(api.refusals) or ref.name not in self.environment.scales
            if not refused and scale.metadata["resourceVersion"] != str(self.environment.version):
                raise errors.ApiError(409, "Conflict", "the object has been modified")
            if refused:
                self.environment.refused = scale.spec.replicas
                if not api.refusals:
                    raise errors.ApiError(404, "NotFound", "the target is not there")
            else:
                self.environment.wrote(ref.name, scale.spec.replicas)
            answer: Scale = await write(namespace, ref, scale, allowed)
            return answer

        write_status = api.write_status

        async def renew_status(
            found: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Callable[[], None]
        ) -> HorizontalPodAutoscaler:
            allowed()
            renewed: HorizontalPodAutoscaler = await write_status(self.environment.renewed(found), status, allowed)
            return renewed

        api.write_scale, api._scale, api.fresh_scale = write_scale, versioned, fresh_scale
        api.write_status = renew_status

    def _follow(self, key: Key, old: object, new: HorizontalPodAutoscaler | None) -> None:
        if new is not None and key == WEB:
            self.environment.found = new

    async def crash(self) -> None:
        """Ends the process as SIGKILL does: none of its tasks writes anything more."""
        controller = self.bench.controller
        tasks = [self._running, *controller.running()]
        self.bench.takeover.stop()
        if controller._dispatcher is not None:
            tasks.append(controller._dispatcher)
        controller._queue.shutdown()
        self.bench.cluster.write_scale = self.bench.cluster.write_status = _dead  # type: ignore[method-assign,assignment]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Ends the process as SIGTERM does: running turns finish, and the state is saved."""
        await self.bench.controller.stop(5)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.store.stop()


async def _dead(*_: object) -> None:
    raise asyncio.CancelledError


def elsewhere(environment: Environment, patch: pytest.MonkeyPatch, number: int, ticks: float) -> None:
    """Moves hpad to another machine, or another boot, whose monotonic clock is `ticks` seconds ahead."""
    patch.setattr(clocks, "boot", lambda: f"boot {number}")
    environment.clock.ticks = ticks


def too_early(environment: Environment, window: float) -> list[str]:
    """Returns the scale-downs below a count that was asked for within the window (limited by the maximum)."""
    found = []
    for write in environment.writes:
        lately = [(count, at) for at, count in environment.wanted if write.at - window + TOLERANCE < at <= write.at]
        if write.after >= write.before or not lately:
            continue
        count, at = max(lately)
        if write.after < min(count, write.high):
            ago = write.at - at
            found.append(
                f"{write.at:.0f} s: {write.before} -> {write.after}, though {count} were wanted {ago:.0f} s before"
            )
    return found


def too_fast(environment: Environment, pods: int, period: float) -> list[str]:
    """Returns the scale-ups that exceed a policy of `pods` in `period` seconds.

    Source: Kubernetes 1.36, horizontal.go: calculateScaleUpLimitWithScalingRules.
    """
    found = []
    for number, write in enumerate(environment.writes):
        ago = [(write.at - other.at, other.after - other.before) for other in environment.writes[:number]]
        grown = sum(change for age, change in ago if change > 0 and age < period - TOLERANCE)
        shrunk = -sum(change for age, change in ago if change < 0 and age < period + TOLERANCE)
        limit = max(write.before, write.before - grown + shrunk + pods, write.low)
        if write.after > limit:
            found.append(f"{write.at:.0f} s: {write.before} -> {write.after}, though no more than {limit} are allowed")
    return found
