"""The state machine of a reflector: a scripted server drives it through every transition."""

import asyncio
from collections.abc import Callable

import pytest
from support.kube_caches import HPA, HPAS, hpa, names, page
from support.scripted_server import (
    QUICK,
    Answer,
    Script,
    SkippingClock,
    failure,
    hangs,
    line,
    resets,
    says,
    streams,
    until,
)

from hpad.kube import reflector
from hpad.kube.cache import Cache
from hpad.kube.client import Client
from hpad.kube.reflector import Reflector, State, StepEnd
from hpad.kube.watch import WatchScope

STREAM, WATCH = HPAS + "?stream", HPAS + "?watch"
EXPIRED = says(failure(410, "Expired", "too old resource version"), 410)
UNAVAILABLE = says(failure(503, "ServiceUnavailable", "later"), 503)
COMPLETE = line(
    "BOOKMARK", {"metadata": {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}}
)
Step = tuple[State, StepEnd]
START: list[Step] = [
    (State.IDLE, StepEnd.DONE),
    (State.STREAMING, StepEnd.UNSUPPORTED),
    (State.PAGING, StepEnd.DONE),
]


def lasts(clock: SkippingClock) -> Answer:
    """A watch that the server ends after the time it was asked for."""

    async def answer(request):
        clock.skipped += QUICK.longest_watch
        return await streams(line("BOOKMARK", {"metadata": {"resourceVersion": "11"}}))(request)

    return answer


SCENARIOS: dict[str, tuple[Callable[[SkippingClock], dict[str, list[Answer]]], list[Step]]] = {
    "streaming list, then a watch that ends too early": (
        lambda _: {
            STREAM: [streams(line("ADDED", hpa("a", 1)), COMPLETE)],
            WATCH: [streams(), hangs],
        },
        [
            (State.IDLE, StepEnd.DONE),
            (State.STREAMING, StepEnd.DONE),
            (State.WATCHING, StepEnd.DONE),
        ],
    ),
    "streaming list that breaks off, then a failed list in pages": (
        lambda _: {STREAM: [resets], HPAS: [UNAVAILABLE, page()], WATCH: [hangs]},
        [
            (State.IDLE, StepEnd.DONE),
            (State.STREAMING, StepEnd.FAILED),
            (State.PAGING, StepEnd.FAILED),
            (State.PAGING, StepEnd.DONE),
        ],
    ),
    "watch that ends in time": (
        lambda clock: {HPAS: [page()], WATCH: [lasts(clock), hangs]},
        [*START, (State.WATCHING, StepEnd.DONE)],
    ),
    "watch that is refused": (
        lambda _: {HPAS: [page()], WATCH: [UNAVAILABLE, hangs]},
        [*START, (State.WATCHING, StepEnd.FAILED)],
    ),
    "version that has expired": (
        lambda _: {HPAS: [page()], WATCH: [EXPIRED, hangs]},
        [
            *START,
            (State.WATCHING, StepEnd.EXPIRED),
            (State.STREAMING, StepEnd.UNSUPPORTED),
            (State.PAGING, StepEnd.DONE),
        ],
    ),
    "server that answers no watch": (
        lambda _: {HPAS: [page()], WATCH: [resets, resets, hangs]},
        [
            *START,
            (State.WATCHING, StepEnd.FAILED),
            (State.WATCHING, StepEnd.EXPIRED),
            (State.STREAMING, StepEnd.UNSUPPORTED),
            (State.PAGING, StepEnd.DONE),
        ],
    ),
}


class Recorded(dict[Step, State]):
    """TRANSITIONS, with the steps taken. Cancels the task that enters the state `last`, or has taken `most` steps."""

    def __init__(self, most: int = 1000, last: State | None = None) -> None:
        super().__init__(reflector.TRANSITIONS)
        self.steps: list[Step] = []
        self._most = most
        self._last = last

    def __getitem__(self, step: Step) -> State:
        self.steps.append(step)
        entered = super().__getitem__(step)
        if len(self.steps) == self._most or entered is self._last:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return entered


async def run(
    name: str, recorded: Recorded, script: Script, client: Client, clock: SkippingClock, patch: pytest.MonkeyPatch
) -> Reflector:
    patch.setattr(reflector, "TRANSITIONS", recorded)
    for path, answers in SCENARIOS[name][0](clock).items():
        script.on("GET", path, *answers)
    scope = WatchScope(client, options=QUICK)
    tested = Reflector(Cache(scope, HPA), HPA, scope, "", {})
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.create_task(tested.run()), 60)
    return tested


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_reflector_takes_the_steps_of_the_scenario(name, script, client, clock, monkeypatch):
    expected = SCENARIOS[name][1]
    recorded = Recorded(most=len(expected))
    await run(name, recorded, script, client, clock, monkeypatch)
    assert recorded.steps[: len(expected)] == expected


@pytest.mark.parametrize("state", [state for state in State if state not in {State.IDLE, State.STOPPED}])
async def test_a_reflector_can_be_stopped_in_every_state(state, script, client, clock, monkeypatch):
    name = next(name for name, (_, steps) in SCENARIOS.items() if state in {step[0] for step in steps})
    recorded = Recorded(last=state)
    tested = await run(name, recorded, script, client, clock, monkeypatch)
    assert recorded.steps[-1] == (state, StepEnd.CANCELLED)
    assert tested.state is State.STOPPED


def test_every_transition_is_part_of_a_scenario():
    taken = {step for _, steps in SCENARIOS.values() for step in steps}
    expected = {step for step in reflector.TRANSITIONS if step[1] is not StepEnd.CANCELLED}
    assert taken | {(State.STOPPED, StepEnd.DONE)} == expected


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


def test_every_state_can_be_left():
    assert {state for state, _ in reflector.TRANSITIONS} == set(State)


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
