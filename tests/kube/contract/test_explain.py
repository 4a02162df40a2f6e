"""`hpad explain` beside the process of `hpad run`, with HPAs of both API servers."""

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from kube.contract.test_process import Place, hpad, place, until
from support import free_ports
from support.commands import called

from hpad.engine.outlook.types import Outlook
from hpad.engine.trace import Trace

__all__ = ["place"]
HELD = "; the scale-down window (5m) holds it until "


class Explain:
    """`hpad explain` at one address."""

    def __init__(self, place: Place, port: int) -> None:
        self.place, self.port = place, port

    @property
    def where(self) -> tuple[str, ...]:
        return ("-n", self.place.api.namespace, "--address", f"127.0.0.1:{self.port}")

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hpad", "explain", *arguments, *self.where), stdout=pipe, stderr=pipe
        )

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Returns exit status, standard output and standard error."""
        return await asyncio.to_thread(called, "explain", *arguments, *self.where)

    async def text(self, *arguments: str) -> str:
        status, out, err = await self.run(*arguments)
        assert (status, err) == (0, "")
        return out

    async def until(self, words: str, *arguments: str) -> str:
        """Waits until the output has these words, and returns it."""
        out = ""

        async def found() -> bool:
            nonlocal out
            status, out, _ = await self.run(*arguments)
            return status == 0 and words in out

        await until(found, True)
        return out


@contextlib.asynccontextmanager
async def explaining(place: Place, log: Path) -> AsyncIterator[Explain]:
    """Starts hpad, and yields `hpad explain` that asks it."""
    with free_ports.port() as port:
        # A decision whose turn is given up, after a pause of a whole period, is not in the history.
        async with hpad(place, log, "--sync-period=4s", f"--listen=127.0.0.1:{port}"):
            yield Explain(place, port)


def without_times(text: str) -> str:
    """Replaces what differs from run to run: times, ages and durations of the stages."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, \d+s ago", "TIME", text)
    return re.sub(r"^(    Sample: .*, |Timing:    ).*$", r"\1…", text, flags=re.MULTILINE)


async def test_a_queue_at_its_target_from_the_sample_to_the_next_step(place: Place, tmp_path: Path) -> None:
    async with explaining(place, tmp_path / "log") as explain:
        found = await explain.until("Decision:  keep 2: ", "web")
        assert (
            without_times(found)
            == f"""\
HPA:       {place.api.namespace}/web
Target:    Deployment/web, 2 replicas, min 1, max 10
Time:      TIME
Decision:  keep 2: external metric queue at its target (30 / 30 per replica, 60 in total)

Metrics:
  queue wants 2
    Metric:    external metric queue, from numbers
    Sample:    60, …
    Usage:     30 per replica (60 over 2 replicas); target 30 per replica
    Ratio:     1; within the tolerance (0.9 to 1.1)
    Wants:     2, unchanged

Replicas:
  now             2
  metrics want    2  by queue
  after windows   2  (scale-down 5m)
  after policies  2
  after min, max  2  (min 1, max 10)
  written         -  nothing to write

Timing:    …

Next:
  - grows once queue is above 66 (33 per replica; now 60)
  - shrinks once queue is at most 30 (15 per replica; now 60) for 5m
"""
        )
        answer = json.loads(await explain.text("web", "-o", "json"))
        assert msgspec.convert(answer["trace"], Trace).replicas.desired == 2
        outlooks = msgspec.convert(answer["outlook"], list[Outlook])
        assert [each.kind for each in outlooks] == ["growth", "shrinking"]


async def test_the_claims_of_the_outlook_come_true(place: Place, tmp_path: Path) -> None:
    """Scenarios 29 and 30: 66 is within the tolerance, 67 is not; after that 4 are held although 2 suffice."""
    async with explaining(place, tmp_path / "log") as explain:
        await explain.until("grows once queue is above 66 ", "web")
        await place.wait_for(66)
        await explain.until("within the tolerance of its target (33 / 30 per replica, 66 in total)", "web")
        assert await place.replicas() == 2
        await place.wait_for(67)
        await until(place.replicas, 3)
        await place.settle(3)
        await place.wait_for(20)
        held = await explain.until(HELD, "web")
        assert re.search(
            r"\n  - 3 -> 1 once the scale-down window frees at \S+Z \(in 4m\d+s\), if queue still wants 1\n", held
        )
        listed = (await explain.text("web", "--since", "10m")).splitlines()
        assert any(re.search(r"Z  2 -> 3 +1 +- +scale web from 2 to 3: ", line) for line in listed)
        assert listed[-1].startswith("20")
        assert " keep 3: " in listed[-1]
        began = listed[1].partition("  ")[0]  # as shown: "2026-01-01 12:00:00Z"
        assert "Decision:  keep 2: " in await explain.text("web", "--at", began)


async def test_names_times_and_addresses_that_are_wrong(place: Place, tmp_path: Path) -> None:
    async with explaining(place, tmp_path / "log") as explain:
        await explain.until("keep 2", "web")
        namespace = place.api.namespace
        status, out, err = await explain.run("wab")
        assert (status, out) == (1, "")
        assert err == f"hpad: there is no HPA '{namespace}/wab'; did you mean {namespace}/web?\n"
        status, _, err = await explain.run("web", "--at", "24h")
        assert status == 1
        assert err.startswith(f"hpad: the decision history of the HPA {namespace}/web begins at 20")
        status, _, err = await explain.run("web", "--at", "yesterday")
        assert (status, err) == (
            2,
            "hpad: --at: 'yesterday' is not a time such as 02:40 (local time), 02:40Z (UTC), 2026-11-22T02:40:00Z,"
            " 10m or 7d (ago)\n",
        )
    status, _, err = await explain.run("web")
    assert status == 1
    assert err.startswith(f"hpad: no hpad answers on http://127.0.0.1:{explain.port}/")


async def test_a_standby_names_the_replica_that_decides(place: Place, tmp_path: Path) -> None:
    async with explaining(place, tmp_path / "first") as leader:
        await leader.until("keep 2", "web")
        holder = await place.holder()
        async with explaining(place, tmp_path / "second") as standby:

            async def refused() -> str:
                return (await standby.run("web"))[2]

            text = f"hpad: this replica of hpad has not decided for the HPA {place.api.namespace}/web yet"
            await until(refused, f"{text}: {holder} does; ask that one\n")
            assert (await standby.run("web"))[0] == 1


async def test_following_prints_new_decisions_and_ends_at_ctrl_c(place: Place, tmp_path: Path) -> None:
    async with explaining(place, tmp_path / "log") as explain:
        await explain.until("keep 2", "web")
        process = await explain.start("web", "--watch")
        assert process.stdout is not None
        async with asyncio.timeout(120):
            await process.stdout.readuntil(b"Next:\n")
            await place.wait_for(120)
            await process.stdout.readuntil(b"Z  scale web from 2 to 4: external metric queue above target")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            _, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")


async def test_a_list_as_documents(place: Place, tmp_path: Path) -> None:
    async with explaining(place, tmp_path / "log") as explain:
        await explain.until("keep 2", "web")
        for form, read in (("json", msgspec.json.decode), ("yaml", msgspec.yaml.decode)):
            [entry] = read((await explain.text("web", "--last=1", "-o", form)).encode())["items"]
            assert (entry["namespace"], entry["current"], entry["desired"]) == (place.api.namespace, 2, 2)
