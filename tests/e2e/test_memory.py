"""hpad as a process with little memory: it says so, does less, and goes on scaling up."""

import re
from pathlib import Path
from typing import Any

from e2e import daemons

MEBI = 1 << 20
QUICK = {"sync_period": "500ms", "cpu_initialization_period": "0s", "initial_readiness_delay": "0s"}
RECONCILES = "horizontal_pod_autoscaler_controller_reconciliations_total"
PUT_OFF = "hpad_reconciles_put_off_total"


def is_of_memory(line: dict[str, Any]) -> bool:
    return str(line["event"]).startswith("memory:")


async def test_with_too_little_memory_it_sheds_load_aloud_and_scales_up_all_the_same(
    world: Any, tmp_path: Path
) -> None:
    """The limit is lower than what hpad takes from the start, and is lifted in the end."""
    for name in ("grows", "idle-1", "idle-2"):
        world.workload("Deployment", name, 2)
        world.hpa(name)
        world.load(name, 50)
    async with daemons.running(world.cluster, tmp_path, memory_limit="40Mi", **QUICK) as hpad:
        url = await hpad.at_work()
        line = await hpad.said(is_of_memory)
        assert line["level"] == "error"
        assert "of 40 MiB (memory_limit) are taken: HPAs that do not grow are looked at less often" in line["event"]
        page = await daemons.fetched(url, "/")
        assert "of 40 MiB (memory_limit) are taken" in page
        world.load("grows", lambda pods: 400 // pods)
        await world.until(lambda: world.replicas("deployments", "grows") == 8)
        found = await daemons.measured(url, lambda now: now[PUT_OFF] > 0)
        assert found["hpad_memory_limit_bytes"] == 40 * MEBI < found["process_resident_memory_bytes"]
        assert found["hpad_memory_level"] == 2
        assert found["hpad_caches_emptied_total"] >= 1
        await hpad.told(memory_limit="none")
        await hpad.said(lambda line: line["event"] == "there is enough memory again")
        found = await daemons.series(url)
        assert found["hpad_memory_level"] == 0
        assert "hpad_memory_limit_bytes" not in found
        later = await daemons.measured(url, lambda now: now[RECONCILES] >= found[RECONCILES] + 12)
        assert later[PUT_OFF] == found[PUT_OFF], "nobody leaves a turn out any more"


async def test_what_limits_the_process_is_found(world: Any, tmp_path: Path) -> None:
    """Here the address space, as LimitAS= does; nobody has told hpad of it."""
    command = ("prlimit", f"--as={64 << 30}")
    async with daemons.running(world.cluster, tmp_path, command, **QUICK) as hpad:
        url = await hpad.at_work()
        text = await daemons.fetched(url, "/metrics")  # beside it there may be a container's
        (told,) = re.findall(r'^hpad_memory_limit_bytes\{origin="RLIMIT_AS"\} (.*)$', text, re.MULTILINE)
        assert float(told) == 64 << 30
        assert (await daemons.series(url))["hpad_memory_level"] == 0
