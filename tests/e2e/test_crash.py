"""kill -9 at any moment, restart, go on: the decisions are those of a life without it (`crashing` plays it).

Every turn of every life is compared with what it must be, given the records that its shelf really held
(`crash_model`); where the store works, that is what the vectors say. More seeds by hand: HPAD_CRASH_SEEDS="1 2 3".
"""

import asyncio
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from e2e import crash_model, crash_troubles, crashing

from hpad.lab.cluster import Cluster, faults

TESTS = Path(crashing.__file__).parent.parent
SCENARIOS = (1, 3, 26)
KILLS = 200
FEWER = 60
SEEDS = [int(seed) for seed in os.environ.get("HPAD_CRASH_SEEDS", "20260101").split()]
GAPS = (0, 60)
NEVER = timedelta(days=365)
Lines = dict[int, list[Any]]


class Run(NamedTuple):
    """A timeline and what was seen of playing it."""

    timeline: Path
    world: Path

    @property
    def writes(self) -> dict[int, int]:
        return crashing.written(self.world)

    @property
    def results(self) -> Lines:
        """What came out of each step that was completed."""
        lines = [line.split(" ", 2) for line in self.world.read_text().splitlines()]
        return {int(line[1]): json.loads(line[2]) for line in lines if line[0] == "d"}

    @property
    def expected(self) -> dict[int, int]:
        """The counts that the original writes, by step."""
        rows = [json.loads(line) for line in self.timeline.read_text().splitlines()]
        longest = max(len(row["steps"]) for row in rows)
        order = [row["steps"][at] for at in range(longest) for row in rows if at < len(row["steps"])]
        wanted = [step["expect"]["scaleTo"] for step in order[: crashing.LONG]]
        return {number: count for number, count in enumerate(wanted) if count is not None}

    def judged(self, gap: timedelta) -> crash_model.Model:
        """Every turn of it compared with what it must be."""
        model = crash_model.Model(crashing.steps(self.timeline), gap).read(self.world)
        assert model.compared == crashing.LONG
        return model

    def early(self) -> list[crash_model.Early]:
        return crash_model.too_early(crashing.steps(self.timeline), self.writes)


@pytest.fixture
def timeline(tmp_path: Path, vectors: Callable[[str], Iterator[dict[str, Any]]]) -> Path:
    """Three scenarios, played in turn: in sum more than 500 steps."""
    chosen = [row for number, row in enumerate(vectors("timeline")) if number in SCENARIOS]
    assert sum(len(row["steps"]) for row in chosen) > crashing.LONG
    file = tmp_path / "timeline.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    return file


async def play(timeline: Path, where: str, seed: int, kills: int, *extra: str) -> Run:
    """Play it to its end, with so many kills in between."""
    run = Run(timeline, timeline.with_name("world"))
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "e2e.crashing", str(timeline), str(run.world), where, str(seed), str(kills), *extra,
        stdout=asyncio.subprocess.PIPE, cwd=TESTS, env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    try:
        out, _ = await program.communicate()
    except BaseException:
        program.kill()
        raise
    assert program.returncode == 0
    assert json.loads(out)["deaths"] >= (kills if where != "memory" else 0)
    return run


def agree(run: Run) -> None:
    """Nothing shows that it was killed between two turns: neither in the vectors' eyes nor in the records."""
    assert run.writes == run.expected
    assert not any(loss.rescales for loss in run.judged(NEVER).lost)
    assert run.early() == []


def careful(run: Run, gap: timedelta = NEVER) -> crash_model.Model:
    """Each turn is as the records allow, and none takes pods away that an hpad which was never killed would keep."""
    judged = run.judged(gap)
    assert run.early() == []
    return judged


def put_aside(folder: Path) -> list[Path]:
    return list(folder.glob("history.db.damaged-*"))


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_with_histories_in_a_file(timeline: Path, tmp_path: Path, seed: int) -> None:
    agree(await play(timeline, str(tmp_path / "history.db"), seed, KILLS, "between=1"))
    assert put_aside(tmp_path) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_at_any_moment(timeline: Path, tmp_path: Path, seed: int) -> None:
    """A turn that was begun and not saved may have wanted anything."""
    careful(await play(timeline, str(tmp_path / "history.db"), seed, KILLS))
    assert put_aside(tmp_path) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_with_histories_in_the_cluster(timeline: Path, seed: int) -> None:
    async with Cluster(kubelet=False, controllers=False) as cluster:
        agree(await play(timeline, cluster.url, seed, KILLS, "between=1"))
        assert [held["metadata"]["name"] for held in cluster.list("configmaps")] == ["hpad-history-0"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_lost_is_one_turn_and_no_rescale(timeline: Path, tmp_path: Path, seed: int) -> None:
    """Where an HPA is saved once a period, and when it is rescaled."""
    lost = careful(await play(timeline, str(tmp_path / "history.db"), seed, FEWER, "lazy=1")).lost
    assert max(loss.recent for loss in lost) == 1
    assert not any(loss.rescales for loss in lost)


async def test_without_a_store_it_would_show(timeline: Path, tmp_path: Path) -> None:
    """So the others have something to say; and a run without a kill does as the vectors say."""
    run = await play(timeline, "memory", SEEDS[0], 25)
    assert run.writes != run.expected
    run.world.unlink()
    calm = await play(timeline, "memory", SEEDS[0], 0)
    assert calm.writes == calm.expected
    assert len(calm.writes) > 100
    assert len(calm.results) == crashing.LONG


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trouble", os.environ.get("HPAD_CRASH_TROUBLES", "any").split())
async def test_killed_while_the_file_is_in_trouble(timeline: Path, tmp_path: Path, trouble: str, seed: int) -> None:
    """A disk that is full, a file that is cut short, garbled, lost, locked, deleted, of a later version, or not to be
    written, a clock that is set: one of them in each life.
    """
    assert trouble in ("any", *crash_troubles.ALL)
    gap = GAPS[seed % 2]
    where = str(tmp_path / "state" / "history.db")
    run = await play(timeline, where, seed, FEWER, "lazy=1", f"gap={gap}", f"trouble={trouble}")
    assert any(loss.turns > 1 for loss in run.judged(timedelta(seconds=gap)).lost)


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_while_the_cluster_takes_no_histories(timeline: Path, seed: int) -> None:
    gap = GAPS[seed % 2]
    async with Cluster(kubelet=False, controllers=False) as cluster:
        cluster.faults.rules.append(Spells(random.Random(seed)))
        run = await play(timeline, cluster.url, seed, FEWER, "lazy=1", f"gap={gap}")
        assert cluster.list("configmaps")
    assert any(loss.turns > 1 for loss in careful(run, timedelta(seconds=gap)).lost)


class Spells(faults.Fault):
    """Refuse what is written, in one way or another, for half of the requests: a few of them in a row."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(re.compile("PUT|POST"), re.compile("configmaps"), times=None)
        self._dice = dice
        self._left = 0
        self._bad = False

    def matches(self, method: str, path: str) -> bool:
        if not super().matches(method, path):
            return False
        if not self._left:
            self._left, self._bad = self._dice.randrange(1, 12), not self._bad
            self.status = self._dice.choice([500, 409, 403, None])
            self.reset = self.status is None
        self._left -= 1
        return self._bad
