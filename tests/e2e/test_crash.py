"""kill -9 at any moment, restart, go on: the decisions are those of a life without it (`crashing` plays it).

Where the store fails as well, no scale-down may come that would not have come anyway.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e import crashing

from hpad.lab.cluster import Cluster

PROGRAM = Path(crashing.__file__)
SCENARIOS = (1, 3, 26)
KILLS = 200
SEED = 20260101
TURNS_LOST = 5
Lines = dict[int, list[Any]]


@pytest.fixture
def timeline(tmp_path: Path, vectors: Callable[[str], Iterator[dict[str, Any]]]) -> Path:
    """Three scenarios, played in turn: in sum more than 500 steps."""
    chosen = [row for number, row in enumerate(vectors("timeline")) if number in SCENARIOS]
    assert sum(len(row["steps"]) for row in chosen) > crashing.LONG
    file = tmp_path / "timeline.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    return file


def seen(file: Path) -> tuple[dict[int, int], Lines]:
    """What was written in which step, and what came out of each step that was completed."""
    lines = [line.split(" ", 2) for line in file.read_text().splitlines()]
    writes = [(int(step), int(rest)) for kind, step, rest in lines if kind == "w"]
    assert len(writes) == len(dict(writes)), "a step was written twice"
    return dict(writes), {int(step): json.loads(rest) for kind, step, rest in lines if kind == "d"}


async def play(timeline: Path, world: Path, where: str, kills: int, *extra: str) -> tuple[dict[int, int], Lines]:
    """Play it to its end, with so many kills in between."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), str(timeline), str(world), where, str(SEED), str(kills), *extra,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, _ = await program.communicate()
    except BaseException:
        program.kill()
        raise
    assert program.returncode == 0
    assert json.loads(out)["deaths"] >= (kills if where != "memory" else 0)
    return await asyncio.to_thread(seen, world)


def in_order(timeline: Path) -> list[tuple[int, Any]]:
    """The steps as they are played: the number of the scenario and the step."""
    rows = [json.loads(line) for line in timeline.read_text().splitlines()]
    longest = max(len(row["steps"]) for row in rows)
    turns = range(longest)
    order = [(which, row["steps"][at]) for at in turns for which, row in enumerate(rows) if at < len(row["steps"])]
    return order[: crashing.LONG]


def whose(timeline: Path) -> list[int]:
    """The number of the scenario, by step."""
    return [which for which, _ in in_order(timeline)]


def expected(timeline: Path) -> dict[int, int]:
    """The counts that the original writes, by step."""
    wanted = [step["expect"]["scaleTo"] for _, step in in_order(timeline)]
    return {number: count for number, count in enumerate(wanted) if count is not None}


def agree(lived: tuple[dict[int, int], Lines], timeline: Path, calm: Lines) -> None:
    writes, results = lived
    assert writes == expected(timeline)
    for step, result in results.items():
        if result[2] is None:  # else the status, which may be that of before a kill, is left as it is
            assert result == calm[step], f"step {step}"


def never_too_low(lived: tuple[dict[int, int], Lines], calm: Lines, timeline: Path) -> None:
    """Whatever takes pods away would have done so, and as far, without any trouble, if a few turns later: a store that
    takes nothing loses what came since its last save, and windows end as much earlier.

    Judged where the target is as this life left it. The timeline's counts are those of the calm life: where that had
    grown and this one had not, the target has been grown by somebody else, and to undo that is no mistake.
    """
    writes, results = lived
    left: dict[int, int] = {}
    order = whose(timeline)
    for step, which in enumerate(order):
        soon = [later for later in range(step, len(order)) if order[later] == which][:TURNS_LOST]
        current, wanted = calm[step][0], min(calm[later][1] for later in soon)
        count = writes.get(step)
        if count is not None and left.get(which, current) == current:
            assert count >= min(current, wanted), f"step {step}: {count}, not {wanted} or more"
        if count is not None:
            left[which] = count
        elif step in results:
            left[which] = results[step][0]


async def calmly(timeline: Path, tmp_path: Path) -> Lines:
    writes, results = await play(timeline, tmp_path / "calm", "memory", 0)
    assert writes == expected(timeline)
    assert len(writes) > 100
    assert len(results) == crashing.LONG
    return results


def put_aside(folder: Path) -> list[Path]:
    return list(folder.glob("history.db.damaged-*"))


async def test_killed_with_histories_in_a_file(timeline: Path, tmp_path: Path) -> None:
    calm = await calmly(timeline, tmp_path)
    agree(await play(timeline, tmp_path / "world", str(tmp_path / "history.db"), KILLS), timeline, calm)
    assert put_aside(tmp_path) == []


async def test_killed_with_histories_in_the_cluster(timeline: Path, tmp_path: Path) -> None:
    calm = await calmly(timeline, tmp_path)
    async with Cluster(kubelet=False, controllers=False) as cluster:
        agree(await play(timeline, tmp_path / "world", cluster.url, KILLS), timeline, calm)
        assert [held["metadata"]["name"] for held in cluster.list("configmaps")] == ["hpad-history-0"]


async def test_without_a_store_it_would_show(timeline: Path, tmp_path: Path) -> None:
    """So the others have something to say."""
    writes, _ = await play(timeline, tmp_path / "world", "memory", 50)
    assert writes != expected(timeline)


@pytest.mark.parametrize("trouble", ["full", "truncated"])
async def test_killed_while_the_file_is_in_trouble(timeline: Path, tmp_path: Path, trouble: str) -> None:
    """A disk that is full (a limit on the size of files) or a file that is cut short in most of the lives."""
    calm = await calmly(timeline, tmp_path)
    where = str(tmp_path / "history.db")
    never_too_low(await play(timeline, tmp_path / "world", where, 60, "gap=0", f"trouble={trouble}"), calm, timeline)


async def test_killed_while_the_cluster_takes_no_histories(timeline: Path, tmp_path: Path) -> None:
    calm = await calmly(timeline, tmp_path)
    async with Cluster(kubelet=False, controllers=False) as cluster:
        failing = asyncio.create_task(_fail(cluster))
        try:
            lived = await play(timeline, tmp_path / "world", cluster.url, 60, "gap=0")
        finally:
            failing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await failing
        assert cluster.list("configmaps")
    never_too_low(lived, calm, timeline)


async def _fail(cluster: Cluster) -> None:
    """Refuse what is written, in one way or another, for half of the time."""
    dice = random.Random(SEED)
    while True:
        fault: dict[str, Any] = dice.choice([{"status": 500}, {"status": 409}, {"status": 403}, {"reset": True}])
        cluster.faults.add(method="PUT|POST", path="configmaps", times=None, **fault)
        await asyncio.sleep(dice.uniform(0, 0.1))
        cluster.faults.clear()
        await asyncio.sleep(dice.uniform(0, 0.1))
