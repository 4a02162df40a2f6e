"""Runs a spec over a past, and leaves out the turns that change nothing.

A turn is due each period (15 s), as in the daemon; a value of the load holds until the next one. While all replicas are
ready, a turn can write a new count only if

- its recommendation is above the count, which is below the maximum, and so is each one in the window of scale-ups, or
- its recommendation is below the count, which is above the minimum, and so is each one in the window of scale-downs,
- and a policy allows it: where none did, none does before a rescale is older than the period of a policy,
- or the schedule of the HPA has other bounds.

All other turns are left out. Their recommendations are kept for the windows; of equal ones in a row the last is enough,
as it leaves each window last. A turn that may change the count is the engine's, and so is each one while replicas
start, or while a metric fails, and the one that reads it again. The curve is the same as with all turns
(tests/simulation/advice/test_leap.py).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.behavior import DISABLED, DirectionRules
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine import schedule
from hpad.engine.annotations import PLAIN
from hpad.engine.history import PastRecommendation, packed
from hpad.engine.restrain import SCALE_DOWN_LIMIT, SCALE_UP_LIMIT, Restrained
from hpad.engine.spec import compiled_spec
from hpad.engine.view import Tunables
from hpad.simulation.advice import demand
from hpad.simulation.advice.assessment import Curve
from hpad.simulation.advice.demand import UNSURE
from hpad.simulation.run import BEYOND, TurnDriver, Workload, planned

NEVER: Final = 1 << 60
UP: Final = "scaleUp"
DOWN: Final = "scaleDown"
_WINDOW: Final = "stabilizationWindowSeconds"
_POLICIES: Final = "policies"
_SELECT: Final = "selectPolicy"


def path(direction: str, rule: str) -> str:
    """Returns the path of a window or of the policies of a direction."""
    return f"behavior.{direction}.{rule}"


_LIMITED: Final = {SCALE_UP_LIMIT: UP, SCALE_DOWN_LIMIT: DOWN}
"""The direction whose policies limit a change, by the reason of ScalingLimited."""
_MOST: Final = 20
"""Recommendations that are kept, with twice as many as windows need, before the others are dropped."""
UP_WINDOW: Final = path(UP, _WINDOW)
DOWN_WINDOW: Final = path(DOWN, _WINDOW)
UP_POLICIES: Final = path(UP, _POLICIES)
DOWN_POLICIES: Final = path(DOWN, _POLICIES)


class Plan(NamedTuple):
    """The turns of a run: `number` of them, the first at `start`. `settling`: the time until a new replica counts."""

    start: datetime
    period: timedelta
    number: int
    settling: timedelta

    def at(self, turn: int) -> datetime:
        """Returns the time of a turn."""
        return planned(self.start, self.period, turn)

    def turns(self, length: timedelta) -> int:
        """Returns the number of turns after which this time has passed."""
        return math.ceil(length / (self.period + BEYOND))


TurnInputs = Callable[[int, int], tuple[int, Sequence[float | None]]]
"""Takes a turn and a count, and returns the first later turn that reads something else, and what each replica shows.

What is shown is one value for each metric, None in a gap; the replicas are ready. Turns are asked for in their order.
"""


class Course(NamedTuple):
    """What a run left: changes of the count and of the ready replicas, and the seconds in which it was held.

    Times are in seconds since 1970. `held` is by the path of the window or policy that kept the count from what the
    metrics asked for within the bounds. `turns` is the number of turns of the engine.
    """

    counts: Curve
    ready: Curve
    held: Mapping[str, float] = {}
    turns: int = 0


class _Direction:
    """The rules of one direction: its window in turns, and the first turn in which a policy may allow a change."""

    def __init__(self, name: str, rules: DirectionRules | None, default: timedelta, plan: Plan) -> None:
        window = default if rules is None or rules.window is None else rules.window
        self.name = name
        self.rules = rules
        self.window = plan.turns(window)
        self.is_disabled = rules is not None and rules.select == DISABLED
        self.blocked = 0
        self.by_window = path(name, _WINDOW)
        self.by_policy = path(name, _SELECT if self.is_disabled else _POLICIES)


class LeapRun:
    """One run of an HPA. With `seen` None each turn is the engine's; so it is where annotations of hpad decide."""

    def __init__(
        self, hpa: HorizontalPodAutoscaler, workload: Workload, tunables: Tunables, plan: Plan, seen: TurnInputs | None
    ) -> None:
        spec = compiled_spec(hpa)
        behavior = spec.behavior
        self._plan = plan
        self._seen = seen if demand.is_plain(hpa, tunables) else None
        self._proposed = demand.proposals(hpa, tunables) if self._seen is not None else []
        self._replaced = demand.is_replaced(hpa)
        self._low, self._high = demand.lowest(hpa, tunables), spec.max_replicas
        self._bounds = self._low, self._high
        self._windows = PLAIN.of(hpa).controls.schedule
        self._edge = NEVER if self._windows is None else 0
        """The turn from which on the schedule has other bounds."""
        self._up = _Direction(UP, None if behavior is None else behavior.up, timedelta(0), plan)
        self._down = _Direction(
            DOWN, None if behavior is None else behavior.down, tunables.downscale_stabilization, plan
        )
        self._workload = workload
        self._driver = TurnDriver(hpa, workload, tunables)
        self._turn = self._run = 0
        self._count = workload.fleet.count
        self._most = _MOST
        self._past = [(0, self._count)]  # recommendations, and the turns that made them
        self._from, self._up_to = 0, 0
        self._behind = False  # recommendations of turns that were left out are not in the history of the driver
        self._failing = (
            False  # a metric fails in the history of the driver: the next turn ends that, or goes on with it
        )
        self._settles = 1
        begin = plan.start.timestamp()
        self._counts, self._ready = [(begin, self._count)], [(begin, workload.fleet.ready)]
        self._held: defaultdict[str, float] = defaultdict(float)

    def done(self) -> Course:
        """Runs all turns."""
        while self._turn < self._plan.number:
            changed = self._turn >= self._edge
            if changed:
                self._bound()
            if changed or self._seen is None or self._turn < self._settles:
                self._decide()
            else:
                self._leap(self._seen)
        return Course(self._counts, self._ready, dict(self._held), self._run)

    def _bound(self) -> None:
        """Takes the bounds that the schedule has now, and notes when it has others."""
        assert self._windows is not None
        now, (low, high) = self._plan.at(self._turn), self._bounds
        found = schedule.bounds(self._windows, now, low, high)
        following = schedule.following(self._windows, now, low, high)
        self._low, self._high = found.low, found.high
        self._edge = NEVER if following is None else self._plan.turns(following[0] - self._plan.start)

    def _leap(self, seen: TurnInputs) -> None:
        """Leaves out the turns up to the next one that may change the count, or that reads something else."""
        end, values = seen(self._turn, self._count)
        end = min(end, self._plan.number, self._edge)
        replicas = demand.recommended(self._proposed, values, self._count, replaced=self._replaced)
        if replicas is None:
            self._turn, self._settles = end, end + 1
            return
        unsure = replicas == UNSURE or self._failing
        stop = self._turn if unsure else min(end, self._next_change(replicas, end))
        if stop <= self._turn:
            self._decide()
            return
        self._recommend(stop - 1, replicas)
        self._turn, self._behind = stop, True

    def _next_change(self, replicas: int, end: int) -> int:
        """Returns the first turn that may change the count if the recommendation stays so; `end` or later: none."""
        count = self._count
        if replicas > count < self._high:
            return self._freed(self._up, self._up_to, end)
        if replicas < count > self._low:
            return self._freed(self._down, self._from, end)
        return NEVER

    def _freed(self, direction: _Direction, latest: int, end: int) -> int:
        """Returns the first turn in which neither window nor policies hold the count, and adds the time until then."""
        window = latest + direction.window
        policy = NEVER if direction.is_disabled else direction.blocked
        free = max(window, policy)
        self._hold(direction.by_window, min(window, end) - self._turn)
        self._hold(direction.by_policy, min(free, end) - max(window, self._turn))
        return free

    def _hold(self, by: str, turns: int) -> None:
        if turns > 0:
            self._held[by] += turns * self._plan.period.total_seconds()

    def _recommend(self, turn: int, replicas: int) -> None:
        """Adds a recommendation, in place of an equal one that is the last, and forgets those no window needs."""
        if self._past[-1][1] == replicas:
            self._past.pop()
        self._past.append((turn, replicas))
        self._compare(turn, replicas)
        if len(self._past) > self._most:
            self._past = self._needed(turn)
            self._most = 2 * len(self._past) + _MOST

    def _compare(self, turn: int, replicas: int) -> None:
        """Keeps the latest turns with a recommendation from the count on, and up to it."""
        if replicas >= self._count:
            self._from = turn
        if replicas <= self._count:
            self._up_to = turn

    def _needed(self, turn: int) -> list[tuple[int, int]]:
        """Returns the recommendations that a window may still need, and one at least: without any, the HPA is new."""
        oldest = turn - max(self._up.window, self._down.window)
        return [each for each in self._past if each[0] >= oldest] or self._past[-1:]

    def _decide(self) -> None:
        """Runs a turn of the engine."""
        turn, now = self._turn, self._plan.at(self._turn)
        if self._behind:
            known = packed([PastRecommendation(self._plan.at(at), replicas) for at, replicas in self._needed(turn)])
            self._driver.history = msgspec.structs.replace(self._driver.history, recommendations=known)
            self._behind = False
        decision = self._driver.turn(now).done.decision if self._seen is None else self._driver.decide(now)
        after = self._workload.fleet.count
        self._turn, self._run = turn + 1, self._run + 1
        self._failing = any([each.failing_since is not None for each in self._driver.history.last_samples])
        found, restrained = decision.recommendation, decision.restrained
        if found is not None and found.leader is not None and restrained is not None:
            self._recommend(turn, restrained.recommended)
            self._note(restrained, after, now)
        if after != self._count:
            self._changed(turn, now, after)
        if self._ready[-1][1] != self._workload.fleet.ready:
            self._ready.append((now.timestamp(), self._workload.fleet.ready))

    def _changed(self, turn: int, now: datetime, after: int) -> None:
        if after > self._count:
            self._settles = turn + 2 + self._plan.turns(self._plan.settling)
        self._up.blocked = self._down.blocked = 0
        self._count = after
        self._counts.append((now.timestamp(), after))
        self._from = self._up_to = -NEVER
        for each in self._past:
            self._compare(*each)

    def _note(self, restrained: Restrained, after: int, now: datetime) -> None:
        """Notes what held the count in a turn, and until when policies do."""
        limited = _LIMITED.get(restrained.limited[0])
        if limited is not None:
            direction = self._up if limited is UP else self._down
            if after == self._count:
                direction.blocked = self._next_expiry(direction, now)
            self._hold(direction.by_policy, 1)
        elif restrained.replicas != min(max(restrained.recommended, self._low), self._high):
            direction = self._up if restrained.recommended > after else self._down
            self._hold(direction.by_window, 1)

    def _next_expiry(self, direction: _Direction, now: datetime) -> int:
        """Returns the first turn in which a rescale is older than the period of a policy of the direction."""
        history, policies = self._driver.history, direction.rules.policies if direction.rules is not None else ()
        ends = [
            rescale.timestamp + policy.period
            for rescale in (*history.scale_ups, *history.scale_downs)
            for policy in policies
            if rescale.timestamp > now - policy.period
        ]
        return self._plan.turns(min(ends) - self._plan.start) if ends else self._turn
