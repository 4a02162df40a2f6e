"""A problem such as an outage is logged when it begins and when it has ended; in virtual time."""

import asyncio

import structlog
from support import virtual_time

from hpad.telemetry.episode import AGAIN_SECONDS, Episode, Episodes


class Said:
    """An episode and its log lines."""

    def __init__(self, level: str = "warning") -> None:
        self._logged = structlog.testing.LogCapture()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self._logged])
        self.episode = Episode(log, virtual_time.VirtualClock(), "down", "up again", level=level)

    @property
    def lines(self) -> list[tuple[str, str, object]]:
        return [(line["log_level"], line["event"], line.get("times")) for line in self._logged.entries]


def test_a_problem_is_logged_once_however_often_it_occurs() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said()
        said.episode.ended()
        for _ in range(3000):
            said.episode.occurred(error="refused")
            await asyncio.sleep(10)
        said.episode.ended()
        said.episode.ended()
        return said.lines

    assert virtual_time.run(main()) == [("warning", "down", None), ("info", "up again", 3000)]


def test_a_problem_that_comes_and_goes_is_logged_again_only_after_a_while() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said("error")
        for _ in range(4 * int(AGAIN_SECONDS)):
            said.episode.occurred()
            said.episode.ended()
            await asyncio.sleep(0.5)
        return said.lines

    lines = virtual_time.run(main())
    assert [line[:2] for line in lines] == [("error", "down"), ("info", "up again")] * 2
    times = [times for _, _, times in lines if times is not None]
    assert times == [1, 2 * AGAIN_SECONDS]  # those that went unsaid in between are counted


def test_a_problem_that_began_unlogged_and_goes_on_is_logged() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said()
        said.episode.occurred()
        said.episode.ended()
        for _ in range(3):
            await asyncio.sleep(AGAIN_SECONDS / 2)
            said.episode.occurred()
        return said.lines

    events = [event for _, event, _ in virtual_time.run(main())]
    assert events == ["down", "up again", "down"]


def test_a_problem_has_ended_when_it_has_ended_for_all_subjects() -> None:
    async def main() -> list[tuple[str, str, object]]:
        said = Said()
        for _ in range(100):
            said.episode.occurred(subject="a")
            said.episode.ended(subject="b")
            await asyncio.sleep(10)
        said.episode.occurred(subject="b")  # long after the first line
        said.episode.ended(subject="a")
        said.episode.ended(subject="b")
        return said.lines

    assert virtual_time.run(main()) == [("warning", "down", None), ("warning", "down", None), ("info", "up again", 101)]


class Heard:
    """Episodes of many subjects and their log lines."""

    def __init__(self, most: int = 100) -> None:
        self._logged = structlog.testing.LogCapture()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self._logged])
        self.episodes = Episodes(log, virtual_time.VirtualClock(), "down", "up again", most=most)

    def met(self, name: str, cause: str = "refused") -> None:
        self.episodes.occurred(subject=name, cause=cause, name=name, error=cause)

    def well(self, name: str) -> None:
        self.episodes.ended(subject=name, name=name)

    @property
    def lines(self) -> list[tuple[object, ...]]:
        """The event, the thing, and the cause or how often it was met."""
        lines = self._logged.entries
        return [(line["event"], line["name"], line.get("error", line.get("times"))) for line in lines]


def test_each_subject_has_an_episode_of_its_own() -> None:
    async def main() -> list[tuple[object, ...]]:
        heard = Heard()
        for _ in range(1000):
            heard.met("a")
            heard.met("b")
            heard.well("c")
            await asyncio.sleep(15)
        heard.well("a")
        heard.well("a")
        return heard.lines

    assert virtual_time.run(main()) == [("down", "a", "refused"), ("down", "b", "refused"), ("up again", "a", 1000)]


def test_a_new_cause_is_a_new_line_and_alternating_causes_are_logged_once() -> None:
    async def main() -> list[tuple[object, ...]]:
        heard = Heard()
        for _ in range(1000):
            heard.met("a", "refused")
            await asyncio.sleep(15)
            heard.met("a", "forbidden")
            await asyncio.sleep(15)
        return heard.lines

    assert virtual_time.run(main()) == [("down", "a", "refused"), ("down", "a", "forbidden")]


def test_a_subject_whose_problem_comes_and_goes_is_logged_again_only_after_a_while() -> None:
    async def main() -> list[tuple[object, ...]]:
        heard = Heard()
        for _ in range(4 * int(AGAIN_SECONDS)):
            heard.met("a")
            heard.well("a")
            await asyncio.sleep(0.5)
        return heard.lines

    met = 2 * AGAIN_SECONDS
    begin = ("down", "a", "refused")
    assert virtual_time.run(main()) == [begin, ("up again", "a", 1), begin, ("up again", "a", met)]


def test_causes_that_are_always_new_do_not_fill_the_log() -> None:
    async def main() -> list[tuple[object, ...]]:
        heard = Heard()
        for number in range(int(2 * AGAIN_SECONDS)):
            heard.met("a", f"version {number}")
            await asyncio.sleep(1)
        return heard.lines

    assert 2 <= len(virtual_time.run(main())) <= 2 * 8


def test_subjects_beyond_the_limit_share_a_record() -> None:
    async def main() -> tuple[list[tuple[object, ...]], int]:
        heard = Heard(most=3)
        for _ in range(10):
            for number in range(1000):
                heard.met(f"n{number}")
            await asyncio.sleep(15)
        return heard.lines, len(heard.episodes)

    lines, remembered = virtual_time.run(main())
    assert [line[1] for line in lines] == ["n0", "n1", "n2", "n3"]
    assert remembered == 3


def test_subjects_without_recent_occurrences_make_room() -> None:
    async def main() -> list[tuple[object, ...]]:
        heard = Heard(most=2)
        heard.met("a")
        heard.met("b")
        heard.episodes.forget("b")
        heard.met("c")
        await asyncio.sleep(AGAIN_SECONDS)
        heard.met("d")
        heard.well("d")
        return heard.lines

    assert virtual_time.run(main())[-2:] == [("down", "d", "refused"), ("up again", "d", 1)]
