"""A trouble of an outage is said when it begins and when it is over, in virtual time."""

import asyncio

import structlog
import virtual

from hpad.logs.episode import AGAIN_SECONDS, Episode


class Said:
    """An episode, and the lines that it has made."""

    def __init__(self, level: str = "warning") -> None:
        self._logged = structlog.testing.LogCapture()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self._logged])
        self.episode = Episode(log, virtual.VirtualClock(), "down", "up again", level=level)

    @property
    def lines(self) -> list[tuple[str, str, object]]:
        return [(line["log_level"], line["event"], line.get("times")) for line in self._logged.entries]


def test_it_is_said_once_however_often_it_is_met() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said()
        said.episode.over()
        for _ in range(3000):
            said.episode.struck(error="refused")
            await asyncio.sleep(10)
        said.episode.over()
        said.episode.over()
        return said.lines

    assert virtual.run(main()) == [("warning", "down", None), ("info", "up again", 3000)]


def test_one_that_comes_and_goes_is_said_again_only_after_a_while() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said("error")
        for _ in range(4 * int(AGAIN_SECONDS)):
            said.episode.struck()
            said.episode.over()
            await asyncio.sleep(0.5)
        return said.lines

    lines = virtual.run(main())
    assert [line[:2] for line in lines] == [("error", "down"), ("info", "up again")] * 2
    times = [times for _, _, times in lines if times is not None]
    assert times == [1, 2 * AGAIN_SECONDS]  # those that went unsaid in between are counted


def test_one_that_goes_on_after_it_went_unsaid_is_said() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said()
        said.episode.struck()
        said.episode.over()
        for _ in range(3):
            await asyncio.sleep(AGAIN_SECONDS / 2)
            said.episode.struck()
        return said.lines

    events = [event for _, event, _ in virtual.run(main())]
    assert events == ["down", "up again", "down"]


def test_the_trouble_of_one_is_not_over_when_others_have_none() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said()
        for _ in range(100):
            said.episode.struck(of="a")
            said.episode.over(of="b")
            await asyncio.sleep(10)
        said.episode.struck(of="b")  # long after the first line
        said.episode.over(of="a")
        said.episode.over(of="b")
        return said.lines

    assert virtual.run(main()) == [("warning", "down", None), ("warning", "down", None), ("info", "up again", 101)]
