"""Other writers of an HPA's target and status, as the turns of a controller tell of them, in virtual time."""

import asyncio
from typing import Any

import structlog
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.metadata import Key
from hpad.engine.view import HPA, Competitor
from hpad.kube import errors

WEB = Key("default", "web")
PERIOD = 15.0
SERIES = 'hpad_hpa_competing_writer{hpa_name="web",kind="hpa",namespace="default",writer="default/other"} 1.0'


class Switch:
    """An owner of all HPAs or none."""

    def __init__(self) -> None:
        self.on = True

    def owns(self, key: Key) -> bool:
        return self.on


def test_the_series_is_there_again_when_an_hpa_comes_back_from_another_replica() -> None:
    async def main() -> list[bool]:
        owner = Switch()
        bench = Bench(hpa("web"), owner=owner)
        bench.cluster.others = (Competitor(HPA, "default/other"),)

        async def shown() -> bool:
            return SERIES in (await bench.telemetry.exposition()).decode()

        bench.controller.start()
        bench.controller.reassign()
        await asyncio.sleep(2 * PERIOD)
        seen = [await shown()]
        for on in (False, True):
            owner.on = on
            bench.controller.reassign()
            await asyncio.sleep(2 * PERIOD)
            seen.append(await shown())
        bench.cluster.others = ()
        await asyncio.sleep(2 * PERIOD)
        seen.append(await shown())
        await bench.controller.stop(5)
        return seen

    assert virtual_time.run(main()) == [True, False, True, False]


def test_statuses_count_as_written_again_only_once_that_of_each_hpa_is() -> None:
    """One HPA's status is refused each time, those of the others are not."""

    def told(lines: list[Any]) -> list[tuple[str, object]]:
        return [(line["event"], line.get("hpa")) for line in lines if "written" in line["event"]]

    async def main() -> tuple[list[tuple[str, object]], list[tuple[str, object]]]:
        bench = Bench(hpa("web"), hpa("other"))
        write, refused = bench.cluster.write_status, {"web"}

        async def picky(found: Any, status: Any, allowed: Any) -> Any:
            allowed()
            if found.metadata.name in refused:
                raise errors.ApiError(403, "Forbidden", "no")
            return await write(found, status, allowed)

        bench.cluster.write_status = picky  # type: ignore[method-assign]
        with structlog.testing.capture_logs() as lines:
            bench.controller.start()
            for value in range(20, 120, 10):  # each turn has a status to write
                bench.metrics.values.update(web=value, other=value)
                await asyncio.sleep(PERIOD)
            meanwhile = told(lines)
            refused.clear()
            bench.metrics.values.update(web=10, other=10)
            await asyncio.sleep(2 * PERIOD)
            await bench.controller.stop(5)
        return meanwhile, told(lines)

    begun = ("status not written", "default/web")
    assert virtual_time.run(main()) == ([begun], [begun, ("statuses are written again", None)])
