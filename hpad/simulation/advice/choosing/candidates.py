"""Settings that are tried on an HPA: a few, where its facts and its run with the spec of now show something to gain.

- Goals of CPU utilizations are raised to 70 % at most: averages over minutes and pods do not show peaks, and pods need
  room until others are ready. Other goals are never raised, since they are the only word of a pod's capacity.
- The minimum is lowered, not below 2, nor below 1 where it is 1: availability is not in the load.
- The maximum is raised to what the metrics asked for, where the HPA was at its maximum.
- Windows and policies are set nearer to the defaults where they cost or delay; a window of scale-downs is made longer
  where replicas are started and stopped in turn.
"""

import json
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from statistics import median_high
from typing import Any, Final, NamedTuple

from hpad.api import amounts
from hpad.api.behavior import DISABLED, MAX_CHANGE, DirectionRules
from hpad.api.hpa import HorizontalPodAutoscaler, MetricSpec
from hpad.api.quantity import Quantity
from hpad.engine.spec import UTILIZATION, VALUE, CompiledMetric, compiled_spec
from hpad.records import spec_changes
from hpad.records.spec_changes import ChangeError
from hpad.simulation.advice.assessment import Facts, Figures, FoundFault, HpaFault, SettingChange, Severity
from hpad.simulation.advice.choosing.comparison import whole
from hpad.simulation.advice.model.leap import DOWN_WINDOW, UP_POLICIES, UP_WINDOW
from hpad.simulation.advice.model.load_model import LoadModel, is_cpu_utilization
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.words import short
from hpad.simulation.backlog import Backlog
from hpad.simulation.history import DAY, is_total, metrics_of

MOST: Final = 10
"""Candidates of one HPA."""
LEAST: Final = 3
"""Candidates that are tried however long a run takes."""
_TURNS: Final = 30_000
"""Turns that the engine runs for one HPA, by those of the spec of now: some seconds."""
HIGHEST: Final = 70
"""Percent of the request up to which the goal of a CPU utilization is raised."""
_ROOM: Final = 60
"""A CPU goal from here up to HIGHEST leaves room and is not low."""
_GOALS: Final = (60, 65, HIGHEST)
_WINDOWS: Final = (120, 300, 600, 1200)
_USUAL: Final = 300
"""The default window of scale-downs in seconds."""
OVERLOADED: Final = 0.01
"""The share of the time with overload from which on less of it is looked for."""
ABOVE_GOAL: Final = 0.05
"""The same without a CPU utilization: above the goal is then all that is known, and it is no overload yet."""
FLAPS: Final = 4.0
"""Flaps a day from which on calm is looked for."""
SHORTAGE: Final = frozenset({HpaFault.AT_MAXIMUM, HpaFault.GOAL_HIGH, HpaFault.POLICY_SLOW, HpaFault.QUEUE_SLOW})
"""Faults for which less overload is looked for, however seldom it was."""
_REQUEST: Final = 100.0
_SURGES: Final = 0.002
"""The share of the time in which a surge may need more than the request: three minutes a day."""
_AT_MINIMUM: Final = 0.05
_HELD: Final = 0.002
_LOWER: Final = (0.8, 0.6)
_SOONER: Final = (0.5, 0.25)
"""The parts of a goal of messages per replica that are tried for a slow queue."""
_LOWER_GOALS: Final = (80, 70, 60)
_STEP: Final = 10
_MOST_GROWTH: Final = 4
"""A maximum is raised to so many times of it at the most."""
DEFAULT_UP: Final = [
    {"type": "Pods", "value": 4, "periodSeconds": 15},
    {"type": "Percent", "value": 100, "periodSeconds": 15},
]


class SettingCandidate(NamedTuple):
    """Changed settings, the faults that they may mend, the most likely one first, and the words for them.

    `words` has no colon: "cpu goal 50 -> 65 %".
    """

    changes: tuple[SettingChange, ...]
    mends: tuple[HpaFault, ...]
    words: str

    def applied(self, hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler | None:
        """Returns the HPA with the changes; None if that is no valid HPA, or the same one."""
        try:
            changed = applied(hpa, self.changes)
        except ChangeError:
            return None
        return None if changed is hpa else changed

    def joined(self, other: "SettingCandidate") -> "SettingCandidate":
        """Returns both together."""
        mends = tuple(dict.fromkeys((*self.mends, *other.mends)))
        return SettingCandidate((*self.changes, *other.changes), mends, f"{self.words} and {other.words}")


def applied(hpa: HorizontalPodAutoscaler, changes: Sequence[SettingChange]) -> HorizontalPodAutoscaler:
    """Returns the HPA with the changes, the same object if they change nothing. Raises ChangeError."""
    made = [spec_changes.parse(f"{each.path}={json.dumps(each.after)}") for each in changes]
    return spec_changes.applied(hpa, made, scale_to_zero=True)


class Situation(NamedTuple):
    """What candidates are found by. `figures` are those of the spec of now over all days."""

    model: LoadModel
    facts: Facts
    faults: frozenset[HpaFault]
    now: Rerun
    figures: Figures

    @classmethod
    def of(cls, model: LoadModel, facts: Facts, findings: Sequence[FoundFault], now: Rerun) -> "Situation":
        """`findings` of no loss now, which are notes, call for no candidates."""
        faults = frozenset(each.fault for each in findings if each.severity is not Severity.NOTE)
        return cls(model, facts, faults, now, whole(now))

    @property
    def overloaded(self) -> bool:
        """Whether less overload is looked for."""
        cpu = any(map(is_cpu_utilization, compiled_spec(self.model.hpa).metrics))
        often = self.figures.overloaded >= (OVERLOADED if cpu else ABOVE_GOAL) * self.figures.seconds
        return often or bool(self.faults & SHORTAGE)

    @property
    def restless(self) -> bool:
        """Whether fewer rescales are looked for."""
        often = self.figures.flaps * DAY >= FLAPS * self.figures.seconds
        return often or bool(self.faults & {HpaFault.FLAPPING, HpaFault.WINDOW_SHORT})

    @property
    def has_backlog(self) -> bool:
        """Whether a metric may be a backlog whose rates are not known."""
        queues = self.model.past.queues
        return any(is_total(metric) and name not in queues for name, metric in metrics_of(self.model.hpa).items())

    def held(self, path: str) -> bool:
        """Whether a window or policy of the spec held the count for a while."""
        return self.now.held.get(path, 0.0) >= _HELD * self.figures.seconds


def candidates(found: Situation) -> list[SettingCandidate]:
    """Returns the candidates, at most MOST, and fewer where a run takes long; none where nothing can be gained."""
    if found.facts.exceeded:
        return []  # each pod exceeds a goal however many there are: no count is the right one
    every = [*_shortage(found), *_windows(found), *_minima(found), *_goals_up(found)]
    return every[: min(MOST, max(LEAST, _TURNS // max(1, found.now.turns)))]


def _change(path: str, before: Any, after: Any) -> SettingChange:
    return SettingChange(f"spec.{path}", before, after)


def _metrics(model: LoadModel) -> Iterator[tuple[str, CompiledMetric, str]]:
    """Yields the columns and metrics of the model, and the path of their target in the spec."""
    for index, (name, metric) in zip(model.kept, metrics_of(model.hpa).items(), strict=True):
        yield name, metric, f"metrics[{index}].{_field(metric.spec)}.target"


def _field(spec: MetricSpec) -> str:
    return spec.type[:1].lower() + spec.type[1:]


def _goals_up(found: Situation) -> Iterator[SettingCandidate]:
    """Yields higher goals of CPU utilizations below _ROOM, with which surges stay within the request.

    The run of a candidate shows how long a surge is above the level of overload, and not how far.
    """
    for _, metric, path in _metrics(found.model):
        if is_cpu_utilization(metric) and metric.amount < _ROOM and not found.overloaded:
            for goal in (each for each in _GOALS if each >= metric.amount + 5):
                if found.model.surges(_REQUEST / goal, goal / metric.amount) <= _SURGES:
                    yield _utilization(metric, path, goal, HpaFault.GOAL_LOW)


def _utilization(metric: CompiledMetric, path: str, goal: int, mends: HpaFault) -> SettingCandidate:
    change = _change(f"{path}.averageUtilization", metric.amount, goal)
    return SettingCandidate((change,), (mends,), f"{metric.label} goal {metric.amount} -> {goal} %")


def _minima(found: Situation) -> Iterator[SettingCandidate]:
    """Yields lower minima: the least one, and what the load needs half of the time; none where that is not known."""
    low = compiled_spec(found.model.hpa).min_replicas
    least = 2 if low >= 2 else 1
    if low <= least or found.facts.idle is None or found.facts.at_minimum < _AT_MINIMUM * found.facts.seconds:
        return
    usual = math.ceil(median_high(found.model.asked or [0.0]))
    for count in dict.fromkeys((least, max(usual, least))):
        if count < low:
            change = _change("minReplicas", low, count)
            yield SettingCandidate((change,), (HpaFault.IDLE_MINIMUM,), f"minimum {low} -> {count}")


def _shortage(found: Situation) -> Iterator[SettingCandidate]:
    """Yields what may help against overload: policies and windows of scale-ups, the maximum, and lower goals."""
    yield from _sooner(found)
    if found.faults & {HpaFault.FLAPPING, HpaFault.WINDOW_SHORT}:
        return  # the count is too low as it was lowered too soon
    yield from _maxima(found)
    if found.overloaded:
        yield from _goals_down(found)


def _sooner(found: Situation) -> Iterator[SettingCandidate]:
    behavior = compiled_spec(found.model.hpa).behavior
    if behavior is None:
        return
    window = _seconds(behavior.up.window, 0)
    if window and found.held(UP_WINDOW):
        for shorter in (each for each in (0, 60) if each < window):
            change = _change(UP_WINDOW, window, shorter)
            yield SettingCandidate((change,), (HpaFault.POLICY_SLOW,), f"scale-up window {window} -> {shorter} s")
    if found.held(UP_POLICIES) and behavior.up.select != DISABLED:
        before = _policies(behavior.up)
        if before != DEFAULT_UP:
            was = " or ".join(map(str, behavior.up.policies))
            changes = [_change(UP_POLICIES, before, DEFAULT_UP)]
            if behavior.up.select != MAX_CHANGE:
                changes.append(_change("behavior.scaleUp.selectPolicy", behavior.up.select, MAX_CHANGE))
            words = f"scale-up policies {was} -> 4 pods or 100% in 15 s"
            yield SettingCandidate(tuple(changes), (HpaFault.POLICY_SLOW,), words)


def _policies(rules: DirectionRules) -> list[dict[str, Any]]:
    return [
        {"type": each.type, "value": each.value, "periodSeconds": round(each.period.total_seconds())}
        for each in rules.policies
    ]


def _seconds(window: timedelta | None, default: int) -> int:
    return default if window is None else round(window.total_seconds())


def _maxima(found: Situation) -> Iterator[SettingCandidate]:
    """Yields higher maxima: the most that the metrics asked for, and a half and a quarter of the way there."""
    high, asked = compiled_spec(found.model.hpa).max_replicas, found.model.asked
    short = sum(each > high for each in asked)
    if not short or short < _HELD * len(asked):
        return
    most = min(math.ceil(asked[-1]), _MOST_GROWTH * high)
    for count in dict.fromkeys(high + math.ceil((most - high) * part) for part in (1, 0.5, 0.25)):
        change = _change("maxReplicas", high, count)
        yield SettingCandidate((change,), (HpaFault.AT_MAXIMUM,), f"maximum {high} -> {count}")


def _goals_down(found: Situation) -> Iterator[SettingCandidate]:
    """Yields lower goals: of CPU and memory in steps of ten percent, of queues for fewer messages per replica."""
    backlogs = found.model.workload(found.model.hpa).backlogs
    for name, metric, path in _metrics(found.model):
        if metric.kind == UTILIZATION:
            for goal in (each for each in _LOWER_GOALS if each <= metric.amount - _STEP):
                yield _utilization(metric, path, goal, HpaFault.GOAL_HIGH)
            continue
        mends = HpaFault.GOAL_HIGH if metric.of_pods else HpaFault.QUEUE_SLOW
        for part in _SOONER if name in backlogs else _LOWER:
            amount = _rounded(metric.amount * part)
            before, after = (amounts.exact(each, metric.unit) for each in (metric.amount, amount))
            field = "value" if metric.kind == VALUE else "averageValue"
            change = _change(f"{path}.{field}", _quantity(metric, metric.amount), _quantity(metric, amount))
            words = f"{metric.label} goal {before} -> {after}{_work(metric, amount, backlogs.get(name))}"
            yield SettingCandidate((change,), (mends, HpaFault.GOAL_HIGH), words)


def _work(metric: CompiledMetric, amount: int, backlog: Backlog | None) -> str:
    """Returns how long a replica works on the messages of its goal, now and with another amount; "" where not known."""
    if backlog is None or metric.kind == VALUE or backlog.per_replica <= 0:
        return ""
    before, after = (short(each / 1000 / backlog.per_replica) for each in (metric.amount, amount))
    return f" ({before} -> {after} of work)"


def _rounded(milli: float) -> int:
    """Returns an amount in milli-units with two digits, as a person would write it."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(1.0, milli))) - 1)
    return max(1, round(milli / unit) * unit)


def _quantity(metric: CompiledMetric, milli: int) -> str:
    return str(Quantity.from_milli(milli, metric.format))


def _windows(found: Situation) -> Iterator[SettingCandidate]:
    """Yields longer windows of scale-downs for an HPA that is restless, and the usual one for a longer one.

    A backlog whose rates are not known gets no longer one: the model takes it for a load that does not answer to the
    count, and it would promise a calm that no window gives.
    """
    behavior = compiled_spec(found.model.hpa).behavior
    usual = round(found.model.options.tunables.downscale_stabilization.total_seconds())
    window = usual if behavior is None else _seconds(behavior.down.window, usual)
    mends: tuple[HpaFault, ...] = (HpaFault.WINDOW_USELESS,)
    lengths = [_USUAL] if window > _USUAL and found.held(DOWN_WINDOW) else []
    if found.restless and found.has_backlog:
        return
    if found.restless:
        mends = (HpaFault.WINDOW_SHORT, HpaFault.FLAPPING)
        lengths = [each for each in _WINDOWS if each > window]
    for length in lengths:
        change = _change(DOWN_WINDOW, None if behavior is None or behavior.down.window is None else window, length)
        yield SettingCandidate((change,), mends, f"scale-down window {window} -> {length} s")
