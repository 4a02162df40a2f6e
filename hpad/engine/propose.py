"""From the usage of one metric to a replica count."""

from collections.abc import Callable

import msgspec

from hpad.engine.examine import View
from hpad.engine.measure import Unmeasurable, Usage, measure
from hpad.model.fixedwidth import MAX_INT32, ceil_int32, quotient
from hpad.model.goal import AVERAGE_VALUE, UTILIZATION, Goal
from hpad.model.sample import AdapterError, Sample
from hpad.model.tunables import Gates


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What one metric wants. With `error` set it wants nothing, and `failure` is the error in its full length.

    `unread`: the error is that there was no sample. `relief` says what stands in for it all the same, by the HPA's
    terms (`replicas`, or nothing where `ignored`); `note` what else they made of the reading.
    """

    goal: Goal
    replicas: int
    usage: Usage | None = None
    error: str | None = None
    failure: str = ""
    unread: bool = False
    relief: str = ""
    ignored: bool = False
    note: str = ""

    @property
    def current(self) -> str:
        """The reading as people read it: "305%", "80", "<unknown>"."""
        usage = self.usage
        if usage is None:
            return "<unknown>"
        if self.goal.kind == UTILIZATION:
            return f"{usage.percent}%"
        value = usage.value if usage.total is None else usage.total
        return "<unknown>" if value is None else self.goal.written(value)

    @property
    def wanted(self) -> str:
        """The goal as people read it: "50%", "15"."""
        return f"{self.goal.amount}%" if self.goal.kind == UTILIZATION else self.goal.written(self.goal.amount)

    @property
    def reading(self) -> str:
        """Reading and goal: "305% / 50%", "80 / 15 over 3 replicas" (Value), "80 / 15 per replica" (AverageValue)."""
        usage, held = self.usage, f"{self.current} / {self.wanted}{self.note}"
        if self.relief:
            return self.relief
        if usage is None or self.goal.of_pods or self.note:
            return held
        if usage.total is not None:
            return f"{held} per replica"
        return held if usage.pods is None else f"{held} over {usage.pods} replicas"

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.goal.label} {self.relief or 'is invalid'}: {self.error}"
        return f"{self.goal.label} wants {self.replicas} ({self.reading})"


class Tolerances(msgspec.Struct, frozen=True, gc=False):
    """How far the ratio may lie below and above 1 without anything to do."""

    down: float
    up: float

    def allow(self, ratio: float) -> bool:
        """Whether the ratio is close enough to 1; a ratio that is no number never is."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


def propose(view: View, goal: Goal, answer: Sample | AdapterError) -> Proposal:
    """The replica count one metric wants, or why it can't tell. Never raises."""
    if goal.flaw is not None:
        return _failed(goal, goal.flaw)
    if isinstance(answer, AdapterError):
        return _failed(goal, goal.wording.fetch + answer.message, unread=True)
    scale = view.scale
    current, status = (0, 0) if scale is None else (scale.spec.replicas, scale.status.replicas)
    try:
        usage = measure(goal, answer, view.pods, status, view.now, view.tunables)
        replicas = _replicas(goal, usage, current, status, _tolerances(view), view.tunables.gates)
    except Unmeasurable as error:
        return _failed(goal, goal.wording.measure + str(error))
    if view.tunables.gates.HPANegativeExternalSum:
        replicas = max(0, replicas)
    return Proposal(goal=goal, replicas=replicas, usage=usage)


def _tolerances(view: View) -> Tolerances:
    """Those of spec.behavior where it names any and HPAConfigurableTolerance is on, else the daemon's."""
    own, behavior = view.tunables.tolerance, view.intent.behavior
    if behavior is None or not view.tunables.gates.HPAConfigurableTolerance:
        return Tolerances(own, own)
    down, up = behavior.down.tolerance, behavior.up.tolerance
    return Tolerances(own if down is None else down, own if up is None else up)


def _failed(goal: Goal, error: str, *, unread: bool = False) -> Proposal:
    return Proposal(goal=goal, replicas=0, error=error, failure=goal.wording.outer + error, unread=unread)


def _replicas(goal: Goal, usage: Usage, current: int, status: int, allowed: Tolerances, gates: Gates) -> int:
    if goal.of_pods:
        return _by_pods(usage, current, allowed, _capped if gates.HPAHugeProposals else ceil_int32)
    if goal.kind == AVERAGE_VALUE:
        return _by_share(goal, usage, status, allowed)
    return _by_ratio(usage, current, allowed)


def _by_pods(usage: Usage, current: int, allowed: Tolerances, up: Callable[[float], int]) -> int:
    """Pods times ratio; where silent pods were guessed, never against the direction that the others show."""
    ratio, cautious, pods = usage.ratio, usage.cautious, usage.pods or 0
    if cautious is None:
        return current if allowed.allow(ratio) else up(ratio * pods)
    if allowed.allow(cautious) or (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio):
        return current
    wanted = up(cautious * pods)
    turned = wanted > current if cautious < 1.0 else cautious > 1.0 and wanted < current
    return current if turned else wanted


def _by_share(goal: Goal, usage: Usage, status: int, allowed: Tolerances) -> int:
    """As many replicas as there are shares in the total."""
    if allowed.allow(usage.ratio) or usage.total is None:
        return status
    return _capped(quotient(float(usage.total), float(goal.amount)))


def _by_ratio(usage: Usage, current: int, allowed: Tolerances) -> int:
    """Ready pods times ratio; with no replicas, the ratio alone."""
    if current == 0:
        return _capped(usage.ratio)
    if allowed.allow(usage.ratio):
        return current
    if usage.pods is None:
        empty = "no pods returned by selector while calculating replica count"
        raise Unmeasurable(f"unable to calculate ready pods: {empty}")
    return _capped(usage.ratio * usage.pods)


def _capped(replicas: float) -> int:
    """Rounded up, and no more than an int32 holds."""
    return MAX_INT32 if replicas > MAX_INT32 else ceil_int32(replicas)
