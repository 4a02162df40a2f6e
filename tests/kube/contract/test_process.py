"""`hpad run` as a process of its own, with a kubeconfig and an election, against both API servers."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube.contract.conftest import Api
from kube.contract.test_contract import APPS, HPAS, PODS, hpa, pod, workload

from hpad.kube.errors import ApiError

WEB = f"{APPS}/deployments/web"
EVENTS = "/api/v1/{ns}/events"
LEASE = "/apis/coordination.k8s.io/v1/{ns}/leases/hpad"
LONG_AGO = "2026-01-01T00:00:00Z"
READY = {
    "phase": "Running",
    "startTime": LONG_AGO,
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
}
FLAGS = (
    "--sync-period=2s",
    "--listen=none",
    "--log-format=json",
    "--leader-elect",
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=200ms",
)


class Place:
    """A Deployment, its pods (created by the test), an HPA with one External metric, and the value of the metric."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self._numbers = folder / "numbers.yaml"
        self.config = folder / "hpad.yaml"

    async def prepare(self) -> None:
        await self.wait_for(60)
        source = {"adapter": "static", "file": str(self._numbers), "match": {"types": ["External"]}}
        await asyncio.to_thread(self.config.write_text, yaml.safe_dump({"sources": {"numbers": source}}))
        await self.api.ask("POST", f"{APPS}/deployments", workload("Deployment"))
        await self.settle(2)
        queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}
        spec = {**hpa()["spec"], "metrics": [{"type": "External", "external": queue}]}
        await self.api.ask("POST", HPAS, {**hpa(), "spec": spec})

    async def wait_for(self, number: int) -> None:
        """Sets the metric, whose target is 30 per replica, by renaming a file, so that no half-written file is read."""
        fresh = self._numbers.with_suffix(".new")
        await asyncio.to_thread(fresh.write_text, yaml.safe_dump({"queue": number}))
        await asyncio.to_thread(fresh.rename, self._numbers)

    async def settle(self, replicas: int) -> None:
        """Creates pods and status, as the Deployment controller and kubelets would."""
        for number in range(replicas):
            with contextlib.suppress(Exception):
                await self.api.ask("POST", PODS, pod(f"web-{number}", app="web", tier="front"))
            await self.api.ask("PATCH", f"{PODS}/web-{number}/status", {"status": READY})
        await self.api.ask("PATCH", f"{WEB}/status", {"status": {"replicas": replicas}})

    async def replicas(self) -> int:
        found: int = (await self.api.ask("GET", WEB))["spec"]["replicas"]
        return found

    async def generation(self) -> int:
        """Returns the generation, which increases with each change of the Deployment's spec."""
        found: int = (await self.api.ask("GET", WEB))["metadata"]["generation"]
        return found

    async def status(self) -> Any:
        return (await self.api.ask("GET", f"{HPAS}/web")).get("status", {})

    async def conditions(self) -> dict[str, tuple[str, str]]:
        found = (await self.status()).get("conditions") or []
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    async def events(self) -> list[tuple[str, str, str, int]]:
        items = (await self.api.ask("GET", EVENTS))["items"]
        about = [each for each in items if each["involvedObject"]["kind"] == "HorizontalPodAutoscaler"]
        return sorted((each["type"], each["reason"], each["message"], each["count"]) for each in about)

    async def sizes(self) -> list[str]:
        """Returns the beginnings of the messages of events of rescales."""
        rescales = [message for _, reason, message, _ in await self.events() if reason == "SuccessfulRescale"]
        return [message.partition(";")[0] for message in rescales]

    async def holder(self) -> str:
        """Returns the holder of the Lease, "" without a holder or a Lease."""
        try:
            found: str = (await self.api.ask("GET", LEASE))["spec"].get("holderIdentity", "")
        except ApiError as error:
            if not error.not_found:
                raise
            return ""
        return found


@pytest.fixture
async def place(api: Api, tmp_path: Path) -> Place:
    made = Place(api, tmp_path)
    await made.prepare()
    return made


@contextlib.asynccontextmanager
async def hpad(place: Place, log: Path, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs hpad, and stops it with SIGTERM; `more` flags override those of all tests."""
    api = place.api
    where = (f"--kubeconfig={api.kubeconfig}", f"--namespace={api.namespace}", f"--config={place.config}")
    home = f"--leader-elect-resource-namespace={api.namespace}"
    with log.open("wb") as stderr:
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hpad", "run", *where, home, *FLAGS, *more),
            stderr=stderr,
            env={**os.environ, "PYTHONWARNINGS": "default"},
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await started.wait()


def lines(log: Path) -> list[Any]:
    """Returns the complete lines of a log, decoded."""
    *whole, _ = log.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in whole]


async def until(read: Callable[[], Any], expected: Any, seconds: float = 120) -> None:
    """Waits until `read` returns the expected value."""
    deadline = now() + seconds
    while (found := await read()) != expected and now() < deadline:  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.1)
    assert found == expected


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_it_scales_reports_and_stops_in_good_order(place: Place, tmp_path: Path) -> None:
    log = tmp_path / "log"
    lasting = ("--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=90s")  # it leads to its end
    async with hpad(place, log, *lasting) as process:
        await until(place.conditions, {
            "AbleToScale": ("True", "ReadyForNewScale"),
            "ScalingActive": ("True", "ValidMetricFound"),
            "ScalingLimited": ("False", "DesiredWithinRange"),
        })  # fmt: skip
        assert await place.replicas() == 2
        assert await place.generation() == 1
        await place.wait_for(120)
        await until(place.replicas, 4)
        await place.settle(4)

        async def seen() -> Any:
            status = await place.status()
            return status["currentReplicas"], status["desiredReplicas"], status["currentMetrics"]

        external = {"metric": {"name": "queue"}, "current": {"averageValue": "30"}}
        await until(seen, (4, 4, [{"type": "External", "external": external}]))
        size = "New size: 4; reason: external metric queue(nil) above target"
        size += "; from 2: external metric queue above target (60 / 30 per replica, 120 in total)"
        one_event = [("Normal", "SuccessfulRescale", size, 1)]
        await until(place.events, one_event)
        await asyncio.sleep(2.5)
        assert "lastScaleTime" in await place.status()
        assert await place.generation() == 2
        assert await place.events() == one_event
        assert await place.holder() != ""
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    assert await place.holder() == ""
    logged = await asyncio.to_thread(lines, log)
    stalls = ("the event loop has stalled", "the event loop runs again")  # caused by the machine, not by hpad
    assert [line for line in logged if line["level"] not in ("info", "debug") and line["event"] not in stalls] == []
    assert logged[-1]["event"] == "hpad stopped"


async def test_a_killed_process_is_replaced(
    place: Place, tmp_path: Path, recovered: Callable[[float, str], None], request: pytest.FixtureRequest
) -> None:
    """Each rescale is done exactly once."""
    async with hpad(place, tmp_path / "first") as first:
        await place.wait_for(120)
        await until(place.replicas, 4)
        await place.settle(4)
        leader = await place.holder()
        async with hpad(place, tmp_path / "second"):

            async def stands_by() -> bool:
                return any(line["event"].startswith("standing for election") for line in lines(tmp_path / "second"))

            await until(stands_by, True)
            first.kill()
            killed = now()
            await place.wait_for(210)
            await until(place.replicas, 7)
            which = request.node.callspec.params["api"]
            recovered(now() - killed, f"a leader that was killed, with a lease of 10 s ({which} API server)")
            assert await place.holder() not in ("", leader)
            await place.settle(7)
            await until(place.sizes, ["New size: 4", "New size: 7"])
            await asyncio.sleep(2.5)
            assert await place.replicas() == 7
            assert await place.generation() == 3
            assert await place.sizes() == ["New size: 4", "New size: 7"]
    assert await place.holder() == ""


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.real_kube_apiserver)], indirect=True)
async def test_a_restarted_api_server(
    place: Place, tmp_path: Path, recovered: Callable[[float, str], None], request: pytest.FixtureRequest
) -> None:
    """A rescale that became due meanwhile is done once, and hpad leads again."""
    real = request.getfixturevalue("real")
    async with hpad(place, tmp_path / "log"):

        async def satisfied() -> Any:
            return (await place.conditions()).get("ScalingActive"), (await place.holder()) != ""

        await until(satisfied, (("True", "ValidMetricFound"), True))
        restarting = asyncio.create_task(asyncio.to_thread(real.restart))
        await asyncio.sleep(0.5)
        await place.wait_for(120)
        await restarting
        back = now()
        await until(place.replicas, 4)
        recovered(now() - back, "a kube-apiserver that was restarted, from when it says it is ready")
        await place.settle(4)
        await until(place.sizes, ["New size: 4"])
        await asyncio.sleep(2.5)
        assert await place.replicas() == 4
        assert await place.generation() == 2
        assert await place.sizes() == ["New size: 4"]
        assert await place.holder() != ""
