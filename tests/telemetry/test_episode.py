"""A problem such as an outage is logged when it begins and when it has ended; in virtual time."""

import asyncio

import structlog
from support import virtual_time

from hpad.telemetry.episode import AGAIN_SECONDS, Episode, Episodes


class LoggedEpisode:
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
        logged = LoggedEpisode()
        logged.episode.ended()
        for _ in range(3000):
            logged.episode.occurred(error="refused")
            await asyncio.sleep(10)
        logged.episode.ended()
        logged.episode.ended()
        return logged.lines

    assert virtual_time.run(main()) == [("warning", "down", None), ("info", "up again", 3000)]


def test_a_problem_that_comes_and_goes_is_logged_again_only_after_a_while() -> None:
    async def main() -> list[tuple[str, str, object]]:
        logged = LoggedEpisode("error")
        for _ in range(4 * int(AGAIN_SECONDS)):
            logged.episode.occurred()
            logged.episode.ended()
            await asyncio.sleep(0.5)
        return logged.lines

    lines = virtual_time.run(main())
    assert [line[:2] for line in lines] == [("error", "down"), ("info", "up again")] * 2
    times = [times for _, _, times in lines if times is not None]
    assert times == [1, 2 * AGAIN_SECONDS]  # occurrences that were not logged are counted


def test_a_problem_that_began_unlogged_and_goes_on_is_logged() -> None:
    async def main() -> list[tuple[str, str, object]]:
        logged = LoggedEpisode()
        logged.episode.occurred()
        logged.episode.ended()
        for _ in range(3):
            await asyncio.sleep(AGAIN_SECONDS / 2)
            logged.episode.occurred()
        return logged.lines

    events = [event for _, event, _ in virtual_time.run(main())]
    assert events == ["down", "up again", "down"]


def test_a_problem_has_ended_when_it_has_ended_for_all_subjects() -> None:
    async def main() -> list[tuple[str, str, object]]:
        logged = LoggedEpisode()
        for _ in range(100):
            logged.episode.occurred(subject="a")
            logged.episode.ended(subject="b")
            await asyncio.sleep(10)
        logged.episode.occurred(subject="b")  # long after the first line
        logged.episode.ended(subject="a")
        logged.episode.ended(subject="b")
        return logged.lines

    assert virtual_time.run(main()) == [("warning", "down", None), ("warning", "down", None), ("info", "up again", 101)]


class LoggedEpisodes:
    """Episodes of many subjects and their log lines."""

    def __init__(self, most: int = 100) -> None:
        self._logged = structlog.testing.LogCapture()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self._logged])
        self.episodes = Episodes(log, virtual_time.VirtualClock(), "down", "up again", most=most)

    def occurred(self, name: str, cause: str = "refused") -> None:
        self.episodes.occurred(subject=name, cause=cause, name=name, error=cause)

    def ended(self, name: str) -> None:
        self.episodes.ended(subject=name, name=name)

    @property
    def lines(self) -> list[tuple[object, ...]]:
        """The event, the subject, and the cause or the number of occurrences."""
        lines = self._logged.entries
        return [(line["event"], line["name"], line.get("error", line.get("times"))) for line in lines]


def test_each_subject_has_an_episode_of_its_own() -> None:
    async def main() -> list[tuple[object, ...]]:
        logged = LoggedEpisodes()
        for _ in range(1000):
            logged.occurred("a")
            logged.occurred("b")
            logged.ended("c")
            await asyncio.sleep(15)
        logged.ended("a")
        logged.ended("a")
        return logged.lines

    assert virtual_time.run(main()) == [("down", "a", "refused"), ("down", "b", "refused"), ("up again", "a", 1000)]


def test_a_new_cause_is_a_new_line_and_alternating_causes_are_logged_once() -> None:
    async def main() -> list[tuple[object, ...]]:
        logged = LoggedEpisodes()
        for _ in range(1000):
            logged.occurred("a", "refused")
            await asyncio.sleep(15)
            logged.occurred("a", "forbidden")
            await asyncio.sleep(15)
        return logged.lines

    assert virtual_time.run(main()) == [("down", "a", "refused"), ("down", "a", "forbidden")]


def test_a_subject_whose_problem_comes_and_goes_is_logged_again_only_after_a_while() -> None:
    async def main() -> list[tuple[object, ...]]:
        logged = LoggedEpisodes()
        for _ in range(4 * int(AGAIN_SECONDS)):
            logged.occurred("a")
            logged.ended("a")
            await asyncio.sleep(0.5)
        return logged.lines

    times = 2 * AGAIN_SECONDS
    begin = ("down", "a", "refused")
    assert virtual_time.run(main()) == [begin, ("up again", "a", 1), begin, ("up again", "a", times)]


def test_causes_that_are_always_new_do_not_fill_the_log() -> None:
    async def main() -> list[tuple[object, ...]]:
        logged = LoggedEpisodes()
        for number in range(int(2 * AGAIN_SECONDS)):
            logged.occurred("a", f"version {number}")
            await asyncio.sleep(1)
        return logged.lines

    assert 2 <= len(virtual_time.run(main())) <= 2 * 8


def test_subjects_beyond_the_limit_share_a_record() -> None:
    async def main() -> tuple[list[tuple[object, ...]], int]:
        logged = LoggedEpisodes(most=3)
        for _ in range(10):
            for number in range(1000):
                logged.occurred(f"n{number}")
            await asyncio.sleep(15)
        return logged.lines, len(logged.episodes)

    lines, remembered = virtual_time.run(main())
    assert [line[1] for line in lines] == ["n0", "n1", "n2", "n3"]
    assert remembered == 3


def test_subjects_without_recent_occurrences_make_room() -> None:
    async def main() -> list[tuple[object, ...]]:
        logged = LoggedEpisodes(most=2)
        logged.occurred("a")
        logged.occurred("b")
        logged.episodes.forget("b")
        logged.occurred("c")
        await asyncio.sleep(AGAIN_SECONDS)
        logged.occurred("d")
        logged.ended("d")
        return logged.lines

    assert virtual_time.run(main())[-2:] == [("down", "d", "refused"), ("up again", "d", 1)]
