"""kill -9 at any moment and restart: the decisions are those of a run without kills (`crashing` plays it).

Each turn is compared with the expected one, given the records in the storage (`crash_model`); while the storage works,
that is the turn of the vectors. Other seeds, and more kills: HPAD_CRASH_SEEDS="1 2 3" HPAD_CRASH_KILLS=200, as in
`make soak`.
"""

import asyncio
import itertools
import json
import os
import random
import re
import subprocess
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
KILLS = int(os.environ.get("HPAD_CRASH_KILLS", "25"))
FEWER = max(30, KILLS * 3 // 10)
SEEDS = [int(seed) for seed in os.environ.get("HPAD_CRASH_SEEDS", "20260101").split()]
GAPS = (0, 60)
NEVER = timedelta(days=365)
Lines = dict[int, list[Any]]


class Run(NamedTuple):
    """A timeline, and the file of lines about its run."""

    timeline: Path
    world: Path

    @property
    def writes(self) -> dict[int, int]:
        return crashing.written(self.world)

    @property
    def results(self) -> Lines:
        """The result of each complete step."""
        lines = [line.split(" ", 2) for line in self.world.read_text().splitlines()]
        return {int(line[1]): json.loads(line[2]) for line in lines if line[0] == "d"}

    @property
    def expected(self) -> dict[int, int]:
        """The counts that Kubernetes writes, by step."""
        rows = [json.loads(line) for line in self.timeline.read_text().splitlines()]
        longest = max(len(row["steps"]) for row in rows)
        order = [row["steps"][at] for at in range(longest) for row in rows if at < len(row["steps"])]
        counts = [step["expect"]["scaleTo"] for step in order[: crashing.LONG]]
        return {number: count for number, count in enumerate(counts) if count is not None}

    def checked(self, gap: timedelta) -> crash_model.Model:
        """Compares each turn with the expected one; raises AssertionError."""
        model = crash_model.Model(crashing.steps(self.timeline), gap).read(self.world)
        assert model.compared == crashing.LONG
        return model

    def early(self) -> list[crash_model.Early]:
        return crash_model.too_early(crashing.steps(self.timeline), self.writes)


@pytest.fixture
def timeline(tmp_path: Path, vectors: Callable[[str], Iterator[dict[str, Any]]]) -> Path:
    """Three scenarios with enough steps."""
    first = itertools.islice(vectors("timeline"), max(SCENARIOS) + 1)
    chosen = [row for number, row in enumerate(first) if number in SCENARIOS]
    assert sum(len(row["steps"]) for row in chosen) > crashing.LONG
    file = tmp_path / "timeline.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    return file


class Player:
    """A process that plays one timeline after the other."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program

    async def play(self, timeline: Path, where: str, seed: int, kills: int, *extra: str) -> Run:
        """Plays a timeline to its end, with a number of kills."""
        run = Run(timeline, timeline.with_name("world"))
        answer = await asyncio.to_thread(self._ask, str(timeline), str(run.world), where, str(seed), str(kills), *extra)
        assert json.loads(answer)["deaths"] >= (kills if where != "memory" else 0)
        return run

    def _ask(self, *arguments: str) -> str:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(arguments) + "\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, "it has failed"
        return answer


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "e2e.crashing"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=TESTS, env=environment, text=True) as program:
        yield Player(program)
        program.kill()


def agree(run: Run) -> None:
    """Asserts that kills between two turns have no effect on writes and records."""
    assert run.writes == run.expected
    assert not any(loss.rescales for loss in run.checked(NEVER).lost)
    assert run.early() == []


def careful(run: Run, gap: timedelta = NEVER) -> crash_model.Model:
    """Asserts that each turn is as its records allow, and removes no pods that an hpad without kills would keep."""
    checked = run.checked(gap)
    assert run.early() == []
    return checked


def put_aside(folder: Path) -> list[Path]:
    return list(folder.glob("history.db.damaged-*"))


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_with_state_in_a_file(player: Player, timeline: Path, tmp_path: Path, seed: int) -> None:
    agree(await player.play(timeline, str(tmp_path / "history.db"), seed, KILLS, "between=1"))
    assert put_aside(tmp_path) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_at_any_moment(player: Player, timeline: Path, tmp_path: Path, seed: int) -> None:
    """A turn that started and was not saved may have decided anything."""
    careful(await player.play(timeline, str(tmp_path / "history.db"), seed, KILLS))
    assert put_aside(tmp_path) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_with_state_in_the_cluster(player: Player, timeline: Path, seed: int) -> None:
    async with Cluster(kubelet=False, controllers=False) as cluster:
        agree(await player.play(timeline, cluster.url, seed, KILLS, "between=1"))
        assert [configmap["metadata"]["name"] for configmap in cluster.list("configmaps")] == ["hpad-history-0"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_kill_loses_one_turn_and_no_rescale(player: Player, timeline: Path, tmp_path: Path, seed: int) -> None:
    """Each HPA is saved once a period, and when it is rescaled."""
    lost = careful(await player.play(timeline, str(tmp_path / "history.db"), seed, FEWER, "lazy=1")).lost
    assert max(loss.recent for loss in lost) == 1
    assert not any(loss.rescales for loss in lost)


async def test_without_a_persistent_store_decisions_differ(player: Player, timeline: Path, tmp_path: Path) -> None:
    """This shows that the other tests can fail; a run without kills agrees with the vectors."""
    run = await player.play(timeline, "memory", SEEDS[0], 25)
    assert run.writes != run.expected
    run.world.unlink()
    calm = await player.play(timeline, "memory", SEEDS[0], 0)
    assert calm.writes == calm.expected
    assert len(calm.writes) > 50
    assert len(calm.results) == crashing.LONG


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trouble", os.environ.get("HPAD_CRASH_TROUBLES", "any").split())
async def test_killed_while_the_file_has_a_fault(
    player: Player, timeline: Path, tmp_path: Path, trouble: str, seed: int
) -> None:
    """Each run of a child has one fault: a full disk, a file that is truncated, damaged, lost, locked, deleted, newer
    or read-only, or a step of the clock.
    """
    assert trouble in ("any", *crash_troubles.ALL)
    gap = GAPS[seed % 2]
    where = str(tmp_path / "state" / "history.db")
    run = await player.play(timeline, where, seed, FEWER, "lazy=1", f"gap={gap}", f"trouble={trouble}")
    assert any(loss.turns > 1 for loss in run.checked(timedelta(seconds=gap)).lost)


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_while_the_cluster_rejects_writes(player: Player, timeline: Path, seed: int) -> None:
    gap = GAPS[seed % 2]
    async with Cluster(kubelet=False, controllers=False) as cluster:
        cluster.faults.rules.append(Spells(random.Random(seed)))
        run = await player.play(timeline, cluster.url, seed, FEWER, "lazy=1", f"gap={gap}")
        assert cluster.list("configmaps")
    assert any(loss.turns > 1 for loss in careful(run, timedelta(seconds=gap)).lost)


class Spells(faults.Fault):
    """Rejects about half of the writes, several in a row, with different errors."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(re.compile("PUT|POST"), re.compile("configmaps"), times=None)
        self._dice = dice
        self._remaining = 0
        self._bad = False

    def matches(self, method: str, path: str) -> bool:
        if not super().matches(method, path):
            return False
        if not self._remaining:
            self._remaining, self._bad = self._dice.randrange(1, 12), not self._bad
            self.status = self._dice.choice([500, 409, 403, None])
            self.reset = self.status is None
        self._remaining -= 1
        return self._bad
