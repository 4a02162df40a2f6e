"""What a reconcile begins and ends, for messages: at most one of a cause in an hour, and one when it is over."""

import time
from typing import Any

from support.engine import Workload, external, series

from hpad.api.sample import AdapterError
from hpad.engine.view import HPA, Competitor
from hpad.notify.causes import HOUR, NOTHING, Known, NoticeChange, NoticePhase, changes
from hpad.settings.notify import NotifyAfter, NotifyCause

ALL = frozenset(NotifyCause)
DEPTH = external("depth", averageValue="10")
DOWN = AdapterError("the broker is down")
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
RIVAL = Competitor(HPA, "default/other")


class Watch:
    """One HPA whose reconciles are watched; `told` are cause, phase and repeats of each change."""

    def __init__(self, causes: frozenset[NotifyCause] = ALL, **workload: Any) -> None:
        self.workload = Workload(DEPTH, **{"replicas": 4, "high": 4, "behavior": AT_ONCE, **workload})
        self.known: Known = NOTHING
        self.causes = causes
        self.seconds = 0.0

    def after(self, seconds: float, answer: Any, **fields: Any) -> list[tuple[str, str, int]]:
        return [(each.cause, each.phase, each.repeats) for each in self.changes(seconds, answer, **fields)]

    def changes(self, seconds: float, answer: Any, **fields: Any) -> list[NoticeChange]:
        self.seconds += seconds
        self.workload.reconcile(answer, after=seconds, **fields)
        assert self.workload.done is not None
        self.known, found = changes(self.workload.done, self.known, self.seconds, self.causes, NotifyAfter())
        return found


def test_at_its_maximum_for_as_long_as_the_settings_say() -> None:
    watch = Watch()
    assert watch.after(0, series(90)) == []
    assert watch.after(899, series(90)) == []
    assert watch.after(1, series(90)) == [("at_max", "begun", 0)]
    assert watch.after(9_000, series(90)) == []  # it is told once
    # The metrics ask for just what is there: it is still at its maximum.
    assert watch.after(15, series(40)) == []
    (over,) = [each for each in watch.changes(600, series(10)) if each.phase == NoticePhase.ENDED]
    assert (over.cause, over.lasted) == (NotifyCause.AT_MAX, 10_515)
    assert Watch(low=4).after(9_000, series(40)) == []


def test_an_hpa_whose_metrics_cannot_be_read_stays_at_its_maximum() -> None:
    watch = Watch()
    watch.after(0, series(90))
    assert watch.after(300, DOWN) == []
    assert watch.after(300, DOWN) == [("failing", "begun", 0)]
    assert watch.after(300, series(90)) == [("at_max", "begun", 0), ("failing", "ended", 0)]


def test_a_fallback_is_no_failure() -> None:
    watch = Watch(high=10, annotations={"hpad.io/fallback": "replicas:4"})
    watch.after(0, DOWN)
    assert watch.after(200, DOWN) == []  # it is in force after three minutes
    assert watch.after(60, DOWN) == [("fallback", "begun", 0)]
    assert watch.after(600, DOWN) == []
    assert watch.after(15, series(40)) == [("fallback", "ended", 0)]


def test_a_refused_write_and_another_writer() -> None:
    watch = Watch(high=10)
    watch.after(0, series(90), refused="the quota is used up", competitors=(RIVAL,))
    assert watch.after(300, series(90), refused="the quota is used up", competitors=(RIVAL,)) == [
        ("failing", "begun", 0),
        ("competing", "begun", 0),
    ]


def test_repeats_within_an_hour_are_counted_and_told_in_the_next_message() -> None:
    watch = Watch(high=10, replicas=1)
    assert watch.after(0, series(20)) == [("rescale", "begun", 0)]
    assert watch.after(600, series(30)) == []
    assert watch.after(600, series(40)) == []
    assert watch.after(HOUR, series(50)) == [("rescale", "begun", 2)]
    watch = Watch()
    for begun in ([("at_max", "begun", 0)], [], []):
        watch.after(0, series(90))
        assert watch.after(900, series(90)) == begun
        watch.after(10, series(10))
        watch.workload.replicas = 4
    # The fourth one lasts until the hour is over.
    watch.after(0, series(90))
    assert watch.after(900, series(90)) == []
    assert watch.after(900, series(90)) == [("at_max", "begun", 2)]


def test_a_condition_that_the_hour_held_back_is_told_while_it_lasts() -> None:
    watch = Watch()
    watch.after(0, series(90))
    watch.after(900, series(90))
    watch.after(1, series(10))
    watch.workload.replicas = 4
    watch.after(1, series(90))
    assert watch.after(HOUR - 3, series(90)) == []
    assert watch.after(2, series(90)) == [("at_max", "begun", 0)]


def test_what_is_known_of_an_hpa_ends_with_its_last_message_and_hour() -> None:
    watch = Watch(high=10, replicas=1)
    watch.after(0, series(20))
    assert list(watch.known) == [NotifyCause.RESCALE]
    watch.after(HOUR, series(20))
    assert watch.known == NOTHING


def test_what_nobody_wants_is_not_watched() -> None:
    watch = Watch(frozenset({NotifyCause.FAILING}), high=10, replicas=1)
    assert watch.after(0, series(90)) == []
    assert watch.known == NOTHING


def test_a_quiet_reconcile_costs_next_to_nothing() -> None:
    watch = Watch(high=10)
    watch.after(0, series(40))
    done, best = watch.workload.done, 1.0
    assert done is not None
    for _ in range(20):
        began = time.process_time()
        for _ in range(1000):
            changes(done, NOTHING, 0.0, ALL, NotifyAfter())
        best = min(best, (time.process_time() - began) / 1000)
    assert best < 0.000_1  # of about a millisecond that a reconcile takes; a few microseconds in fact
