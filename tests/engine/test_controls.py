"""What an HPA sets for itself: tolerances and periods, as annotations."""

from datetime import timedelta

import pytest
from support import engine
from support.engine import Workload, external, pod, resource, series, used

from hpad.engine import controls
from hpad.engine.controls import Controls
from hpad.engine.view import Tunables

UP = "hpad.io/tolerance-up"
DOWN = "hpad.io/tolerance-down"
INITIALIZATION = "hpad.io/initialization-period"
DELAY = "hpad.io/readiness-delay"
PERIOD = "hpad.io/sync-period"


def test_every_control_is_read_from_its_annotation() -> None:
    texts = {UP: "50m", DOWN: "0.2", INITIALIZATION: "10m", DELAY: "90s", "hpad.io/fallback": "hold"}
    found = controls.read(texts)
    assert found.errors == ()
    assert found.controls == Controls(
        tolerance_up=0.05,
        tolerance_down=0.2,
        initialization_period=timedelta(minutes=10),
        readiness_delay=timedelta(seconds=90),
        texts=((INITIALIZATION, "10m"), (DELAY, "90s"), (DOWN, "0.2"), (UP, "50m")),
    )


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("1500ms", 1.5), ("1h", 3600)])
def test_a_sync_period_is_from_one_second_to_one_hour(text: str, seconds: float) -> None:
    assert controls.read({PERIOD: text}).controls.sync_period == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (UP, "-0.1", "'-0.1' is not a tolerance: a number of 0 or more such as 0.05 is needed"),
        (DOWN, "ten percent", "'ten percent' is not a tolerance: a number of 0 or more such as 0.05 is needed"),
        (INITIALIZATION, "-5s", "'-5s' is not between 0s and 24h0m0s"),
        (DELAY, "25h", "'25h' is not between 0s and 24h0m0s"),
        (PERIOD, "999ms", "'999ms' is not between 1s and 1h0m0s"),
        (PERIOD, "61m", "'61m' is not between 1s and 1h0m0s"),
    ],
)
def test_an_invalid_control_has_no_effect_and_the_others_hold(name: str, text: str, error: str) -> None:
    found = controls.read({name: text, "hpad.io/tolerance-up" if name != UP else DOWN: "0.25"})
    assert dict(found.errors) == {name: error}
    assert 0.25 in (found.controls.tolerance_up, found.controls.tolerance_down)
    assert [text for _, text in found.controls.texts] == ["0.25"]


def test_the_periods_replace_those_of_the_settings_one_by_one() -> None:
    settings = Tunables(initial_readiness_delay=timedelta(seconds=7))
    own = Controls(initialization_period=timedelta(minutes=10))
    assert settings.of_hpa(own) == Tunables(
        initial_readiness_delay=timedelta(seconds=7), cpu_initialization_period=timedelta(minutes=10)
    )
    assert settings.of_hpa(Controls(tolerance_up=0.5)) is settings


QUEUE = external("orders", averageValue="10")


@pytest.mark.parametrize(
    ("text", "depth", "expected"),
    [
        ({}, 43, None),  # 1.075 of the target is within the tolerance of the settings, 0.1
        ({UP: "0.05"}, 43, 5),
        ({DOWN: "0.05"}, 43, None),
        ({UP: "0.5"}, 59, None),
        ({UP: "0.05"}, 37, None),  # 0.925 of it
        ({DOWN: "0.35"}, 29, None),
        ({DOWN: "0.2"}, 29, 3),
    ],
)
def test_each_direction_has_its_own_tolerance(text: dict[str, str], depth: int, expected: int | None) -> None:
    web = Workload(QUEUE, replicas=4, behavior=None, annotations=text, downscale_stabilization=timedelta(0))
    web.reconcile(series(40))
    assert web.reconcile(series(depth), after=15).scale_to == expected


def test_the_tolerance_of_the_spec_wins() -> None:
    behavior = {"scaleUp": {"tolerance": "0.01", "policies": [{"type": "Pods", "value": 9, "periodSeconds": 15}]}}
    web = Workload(QUEUE, replicas=4, behavior=behavior, annotations={UP: "0.5"})
    assert web.reconcile(series(43)).scale_to == 5


@pytest.mark.parametrize(("text", "expected"), [({}, 4), ({INITIALIZATION: "15m"}, None)])
def test_the_cpu_of_a_slow_starter_counts_later(text: dict[str, str], expected: int | None) -> None:
    """Two pods use all their CPU while they start: after ten minutes only a longer period leaves them out.

    Values before the pod became ready do not count within the period (replica_calculator.go: groupPods).
    """
    web = Workload(resource("cpu", averageUtilization=50), replicas=2, annotations=text, behavior=None)
    late = engine.START - timedelta(seconds=10)
    web.pods = [pod(f"web-{n}", cpu=100, age=600, ready="True", ready_since=late) for n in range(2)]
    assert web.reconcile(used([100, 100])).scale_to == expected
