"""Series and log lines of a controller about competing writers and refused statuses."""

import asyncio
from typing import Any

import structlog
from support.controller import Bench, Switch, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.engine.view import HPA, Competitor
from hpad.kube import errors

WEB = Key("default", "web")
PERIOD = 15.0
SERIES = 'hpad_hpa_competing_writer{hpa_name="web",kind="hpa",namespace="default",writer="default/other"} 1.0'


@in_virtual_time
async def test_the_series_of_a_competing_writer_follows_the_leadership() -> None:
    owner = Switch()
    bench = Bench(hpa("web"), owner=owner)
    bench.cluster.others = (Competitor(HPA, "default/other"),)

    async def exported() -> bool:
        return SERIES in (await bench.telemetry.exposition()).decode()

    bench.controller.start()
    await asyncio.sleep(2 * PERIOD)
    seen = [await exported()]
    for on in (False, True):
        owner.on = on
        bench.takeover.changed()
        await asyncio.sleep(2 * PERIOD)
        seen.append(await exported())
    bench.cluster.others = ()
    await asyncio.sleep(2 * PERIOD)
    seen.append(await exported())
    await bench.controller.stop(5)
    assert seen == [True, False, True, False]


def written_lines(lines: list[Any]) -> list[tuple[str, object]]:
    """The event and the HPA of each log line about the writing of statuses."""
    return [(line["event"], line.get("hpa")) for line in lines if "written" in line["event"]]


@in_virtual_time
async def test_the_recovery_is_logged_once_the_status_of_every_hpa_is_written() -> None:
    """The status of one HPA is refused in each turn, the status of the other is written."""
    bench = Bench(hpa("web"), hpa("other"))
    write, refused = bench.cluster.write_status, {"web"}

    async def refuse_some(found: Any, status: Any, allowed: Any) -> Any:
        allowed()
        if found.metadata.name in refused:
            raise errors.ApiError(403, "Forbidden", "no")
        return await write(found, status, allowed)

    bench.cluster.write_status = refuse_some  # type: ignore[method-assign]
    refused_line = ("status not written", "default/web")
    with structlog.testing.capture_logs() as lines:
        bench.controller.start()
        for value in range(20, 120, 10):  # each turn has a status to write
            bench.metrics.values.update(web=value, other=value)
            await asyncio.sleep(PERIOD)
        assert written_lines(lines) == [refused_line]
        refused.clear()
        bench.metrics.values.update(web=10, other=10)
        await asyncio.sleep(2 * PERIOD)
        await bench.controller.stop(5)
    assert written_lines(lines) == [refused_line, ("statuses are written again", None)]
