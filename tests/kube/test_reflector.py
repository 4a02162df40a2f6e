"""The requests of a reflector: a scripted server drives it from each step to each that may follow."""

import asyncio
from collections.abc import Callable

import pytest
from support.kube_caches import HPA, HPAS, hpa, names, page
from support.scripted_server import (
    QUICK,
    Answer,
    SkippingClock,
    failure,
    hangs,
    line,
    says,
    streams,
    until,
)

from hpad.kube import reflector
from hpad.kube.cache import Cache
from hpad.kube.reflector import WatchScope

STREAM, WATCH = HPAS + "?stream", HPAS + "?watch"
EXPIRED = says(failure(410, "Expired", "too old resource version"), 410)
UNSUPPORTED = says(failure(422, "Invalid", "sendInitialEvents: Forbidden"), 422)
UNAVAILABLE = says(failure(503, "ServiceUnavailable", "later"), 503)
COMPLETE = line(
    "BOOKMARK", {"metadata": {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}}
)
breaks_off = streams(then="reset")
START = [HPAS, WATCH]


def lasts(clock: SkippingClock) -> Answer:
    """A watch that the server ends after the time it was asked for."""

    async def answer(request):
        clock.skipped += QUICK.longest_watch
        return await streams(line("BOOKMARK", {"metadata": {"resourceVersion": "11"}}))(request)

    return answer


def place(query: dict[str, str]) -> str:
    return STREAM if "sendInitialEvents" in query else WATCH if "watch" in query else HPAS


SCENARIOS: dict[str, tuple[Callable[[SkippingClock], dict[str, list[Answer]]], list[str]]] = {
    "streaming list, then a watch that ends too early": (
        lambda _: {
            STREAM: [streams(line("ADDED", hpa("a", 1)), COMPLETE)],
            WATCH: [streams(), hangs],
        },
        [STREAM, WATCH, WATCH],
    ),
    "streaming list that breaks off, then a failed list in pages": (
        lambda _: {STREAM: [breaks_off], HPAS: [UNAVAILABLE, page()], WATCH: [hangs]},
        [STREAM, HPAS, HPAS, WATCH],
    ),
    "server that does not stream lists, and is not asked again": (
        lambda _: {STREAM: [UNSUPPORTED], HPAS: [page()], WATCH: [EXPIRED, hangs]},
        [STREAM, HPAS, WATCH, HPAS, WATCH],
    ),
    "watch that ends in time": (
        lambda clock: {HPAS: [page()], WATCH: [lasts(clock), hangs]},
        [*START, WATCH],
    ),
    "watch that is refused": (
        lambda _: {HPAS: [page()], WATCH: [UNAVAILABLE, hangs]},
        [*START, WATCH],
    ),
    "version that has expired": (
        lambda _: {STREAM: [streams(COMPLETE)], WATCH: [EXPIRED, hangs]},
        [STREAM, WATCH, STREAM, WATCH],
    ),
    "server that answers no watch": (
        lambda _: {HPAS: [page()], WATCH: [breaks_off, breaks_off, hangs]},
        [*START, WATCH, *START],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_reflector_sends_the_requests_of_the_scenario(name, script, client, clock, running):
    answers, expected = SCENARIOS[name]
    for path, each in answers(clock).items():
        script.on("GET", path, *each)
    running(Cache(WatchScope(client, options=QUICK), HPA).run())
    await until(lambda: len(script.asked) >= len(expected))
    assert [place(query) for *_, query in script.asked] == expected


async def test_a_stopped_reflector_can_be_run_again(script, client, running):
    script.on("GET", HPAS, page(hpa("goes", 1)), page(hpa("comes", 2), version=12))
    script.on("GET", WATCH, hangs)
    cache = Cache(WatchScope(client, options=QUICK), HPA)
    first = running(cache.run())
    await until(lambda: names(cache) == ["goes"])
    first.cancel()
    await asyncio.wait({first})
    running(cache.run())
    await until(lambda: names(cache) == ["comes"])


@pytest.mark.parametrize(
    ("one", "other", "is_later"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", False),
        ("9" * 5000, "9", True),
        ("x", "9", False),
        ("", "9", False),
    ],
)
def test_the_later_of_two_versions(one: str, other: str, is_later: bool) -> None:
    """Also of versions with more digits than Python makes a number of."""
    assert reflector.later(one, other) is is_later
