"""What one HPA sets for itself beyond the Kubernetes API, apart from its fallback policies.

Each control is an annotation `hpad.io/NAME`, or a field of the section `hpas` of the configuration with underscores in
its name. Recordings keep the texts of the valid ones. docs/reference/annotations.md describes them.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api import duration, metadata
from hpad.api import selector as selectors
from hpad.api.autoscaler import PREFIX
from hpad.api.bounded_cache import bounded_cache
from hpad.api.hpa import AUTOSCALER
from hpad.api.quantity import MAX_INT32, Quantity, QuantityError, parse_milli
from hpad.api.selector import Selector, SelectorError
from hpad.api.text import shown
from hpad.engine import addresses, expression, schedule
from hpad.engine.addresses import Address, MetricIdentity
from hpad.engine.expression import Node
from hpad.engine.schedule import Schedule
from hpad.engine.spec import CompiledMetric

METRIC_POLICY: Final = f"{PREFIX}metric-policy"
SYNC_PERIOD: Final = f"{PREFIX}sync-period"
SCHEDULE: Final = f"{PREFIX}schedule"
BUSY_METRIC: Final = f"{PREFIX}busy-metric"
ORDER: Final = f"{PREFIX}scale-down-order"
KEEP_BUSY: Final = f"{PREFIX}keep-busy"
MODE: Final = f"{PREFIX}mode"
ZERO_AFTER: Final = f"{PREFIX}zero-after"
POD_SELECTION: Final = f"{PREFIX}pod-selection"
INITIAL_DELAY: Final = f"{PREFIX}initial-delay"
SPARE: Final = f"{PREFIX}spare"
PODS: Final = f"{PREFIX}pods"
BUDGET: Final = f"{PREFIX}budget"
PRIORITY: Final = f"{PREFIX}budget-priority"
Texts = tuple[tuple[str, str], ...]
"""Annotations of controls and their values, sorted."""
ACTIVE: Final = "active"
IN_SHADOW: Final = "shadow"
PAUSED: Final = "paused"
_MODES: Final = (ACTIVE, IN_SHADOW, PAUSED)
IDLE_FIRST: Final = "idle-first"
_ORDERS: Final = ("default", IDLE_FIRST)
SELECTOR: Final = "selector"
OWNER: Final = "owner"
_POD_SELECTIONS: Final = (SELECTOR, OWNER)
_MOST_CONTAINERS: Final = 100
_LONGEST_CONTAINERS: Final = 65 * _MOST_CONTAINERS
_LONGEST_PERIOD: Final = timedelta(hours=24)
LONGEST_WAIT: Final = timedelta(hours=168)
"""For the last replica."""
_LONGEST_BUSY_METRIC: Final = 1200
"""Characters of an address and a number."""
_ABOVE: Final = re.compile(r"(.*\S)\s+above\s+(\S+)", re.DOTALL)
_HIGHEST_PRIORITY: Final = 1_000_000
_SPARE: Final = re.compile(r"([0-9]{1,4})(%?)")
_MOST_SPARE: Final = 1000  # of replicas, and of percent
_SYNC_PERIODS: Final = (timedelta(seconds=1), timedelta(hours=1))


def written(annotation: str, kind: str) -> str:
    """Returns the name of an annotation, or in an Autoscaler the field of its option."""
    return f"spec.options.{annotation.removeprefix(PREFIX)}" if kind == AUTOSCALER else annotation


class BusyMetric(NamedTuple):
    """Where the unfinished work of each pod is read: an address, and the milli-units above which a pod is busy.

    The address stands for an External metric of the HPA, whose source is asked for a value per pod, or else for a Pods
    metric of that name and selector.
    """

    address: Address
    above: int = 0


class SpareReplicas(NamedTuple):
    """Either a number of spare replicas, or a part in percent of the count that the metrics want, rounded up."""

    replicas: int = 0
    percent: int = 0

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent else str(self.replicas)

    def on(self, wanted: int) -> int:
        """Returns the count with the spare ones on top of what the metrics want; 0 stays 0: nothing waits for idle."""
        if wanted <= 0:
            return wanted
        return min(MAX_INT32, wanted + self.replicas - -wanted * self.percent // 100)

    def beneath(self, present: int) -> int:
        """Returns the count without the spare ones: the largest whose `on` is within `present`, but at least 1 of 1."""
        counted = present * 100 // (100 + self.percent) if self.percent else present - self.replicas
        return max(min(present, 1), counted)


class ChosenPods(NamedTuple):
    """Which of the target's pods metrics are about: the selectors by address; None: that of all other metrics.

    Pods that are left out stay pods of the target; their requests, readiness and values do not count for the metric.
    """

    selectors: tuple[tuple[Address | None, Selector], ...]

    def of(self, metric: CompiledMetric) -> Selector | None:
        """Returns the selector of the pods that a metric is about; None where it is about all of them."""
        found: Mapping[Address | None, Selector] = dict(self.selectors)
        [forms] = addresses.forms(addresses.identities([metric]))
        return next((found[form] for form in (*forms[1:], None) if form in found), None)


class Controls(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an HPA sets for itself beyond the Kubernetes API; None where the settings of the daemon apply.

    The tolerances are those for servers without the field of spec.behavior, which wins. `metric_policy` is an
    expression whose addresses are still to be resolved (`hpad.engine.metric_policy`). `texts` are the annotations that
    gave these values, as written. `paused_until` ends a pause of the mode PAUSED, or is one by itself. `pod_selection`
    OWNER: of the pods that match the selector, only those count that belong to the target. `scale_down_order`
    IDLE_FIRST: the pods with the least unfinished work go first. `keep_busy`: never fewer replicas than pods with
    unfinished work. `busy_metric` says where that work is read (`hpad.engine.busy`).
    `zero_after` and `initial_delay` keep the last replica (`hpad.engine.zero`). `spare` replicas come on top of what
    the metrics want. `pods` says which of the target's pods metrics are about. `budget` names the budget that the HPA
    shares with others, where one of a higher `budget_priority` (0 by default) comes first.
    """

    tolerance_up: float | None = None
    tolerance_down: float | None = None
    initialization_period: timedelta | None = None
    readiness_delay: timedelta | None = None
    schedule: Schedule | None = None
    mode: str | None = None
    paused_until: datetime | None = None
    metric_policy: Node | None = None
    ignored_containers: tuple[str, ...] | None = None
    sync_period: timedelta | None = None
    pod_selection: str | None = None
    scale_down_order: str | None = None
    keep_busy: bool | None = None
    busy_metric: BusyMetric | None = None
    zero_after: timedelta | None = None
    initial_delay: timedelta | None = None
    spare: SpareReplicas | None = None
    pods: ChosenPods | None = None
    budget: str | None = None
    budget_priority: int | None = None
    texts: tuple[tuple[str, str], ...] = ()

    def is_paused(self, now: datetime) -> bool:
        """Whether nothing may be written to the target at this time."""
        return self.mode == PAUSED if self.paused_until is None else now < self.paused_until

    @property
    def idle_first(self) -> bool:
        """Whether the pods with the least unfinished work go first."""
        return self.scale_down_order == IDLE_FIRST


NO_CONTROLS: Final = Controls()


class _Control(NamedTuple):
    """One control: the field of `Controls` with its value, and the parser of its text, which raises ValueError.

    `longest` is the number of characters that the text may have.
    """

    field: str
    parse: Callable[[str], Any]
    longest: int = 100


def require_length(text: str, longest: int) -> None:
    """Raises ValueError for a text of an annotation that is too long: anyone who may create an HPA writes it."""
    if len(text) > longest:
        raise ValueError(f"it has {len(text):,} characters; at most {longest:,} are read")


def _tolerance(text: str) -> float:
    try:
        value = float(Quantity.parse(text))
    except QuantityError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{shown(text)} is not a tolerance: a number of 0 or more such as 0.05 is needed")
    return value


def _between(shortest: timedelta, longest: timedelta) -> Callable[[str], timedelta]:
    """Returns the parser of a duration with these bounds."""

    def parsed(text: str) -> timedelta:
        value = duration.parse(text)
        if not shortest <= value <= longest:
            raise ValueError(f"{shown(text)} is not between {duration.write(shortest)} and {duration.write(longest)}")
        return value

    return parsed


_period: Final = _between(timedelta(0), _LONGEST_PERIOD)
_wait: Final = _between(timedelta(0), LONGEST_WAIT)


def _one_of(words: Sequence[str], fault: str) -> Callable[[str], str]:
    """Returns a parser that accepts one of these words. `fault` follows the refused text in the error."""

    def parsed(text: str) -> str:
        if text.strip() not in words:
            raise ValueError(f"{shown(text)} {fault}")
        return text.strip()

    return parsed


_truth: Final = _one_of(("true", "false"), "is neither true nor false")
_mode: Final = _one_of(_MODES, f"is not a mode; there are {', '.join(_MODES)}")
_order: Final = _one_of(_ORDERS, f"is not an order of removal; there are {', '.join(_ORDERS)}")
_pod_selection: Final = _one_of(
    _POD_SELECTIONS, f"does not say what selects pods: it is {' or '.join(_POD_SELECTIONS)}"
)


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{shown(text)} is not a time with its zone, such as 2026-11-30T08:00:00Z or …T09:00:00+01:00")


def _containers(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if len(names) > _MOST_CONTAINERS:
        raise ValueError(f"{len(names)} containers are more than {_MOST_CONTAINERS}")
    for name in names:
        if metadata.label_faults(name):
            raise ValueError(f"{shown(name)} is not the name of a container; names with commas between are needed")
    return tuple(sorted(set(names)))


def _busy_metric(text: str) -> BusyMetric:
    """Parses `NAME`, `NAME{SELECTOR}` or `#INDEX`, with ` above NUMBER` after it or not. Raises ValueError."""
    found = _ABOVE.fullmatch(text.strip())
    written, number = (text.strip(), "0") if found is None else found.groups()
    try:
        above = parse_milli(number)
    except QuantityError:
        raise ValueError(f"{shown(number)} is not a number such as 0.5") from None
    if above < 0:
        raise ValueError(f"{shown(number)} is below 0")
    address = addresses.parse(written)
    if len(address.name.split()) > 1:  # it would stand for a Pods metric that does not exist
        raise ValueError(f"{shown(text)} is not of the form NAME or NAME above NUMBER")
    return BusyMetric(address, above)


def parse_spare(text: str) -> SpareReplicas:
    """Parses `2` or `10%`. Raises ValueError."""
    found = _SPARE.fullmatch(text.strip())
    if found is None or int(found[1]) > _MOST_SPARE:
        raise ValueError(f"{shown(text)} is neither a number of replicas such as 1 nor a percentage such as 10%")
    amount = int(found[1])
    return SpareReplicas(percent=amount) if found[2] else SpareReplicas(replicas=amount)


def _chosen_pods(text: str) -> ChosenPods:
    """Parses selectors for all metrics, or parts with semicolons between, each `METRIC: SELECTOR` or one SELECTOR.

    METRIC is an address of `hpad.engine.addresses`, except `#INDEX`; one SELECTOR is for all others. Raises ValueError.
    """
    found: dict[Address | None, Selector] = {}
    for part in text.split(";"):
        address, selector = _part(part.strip())
        if address in found:
            raise ValueError(f"{shown(part.strip())} is for the same metrics as another part")
        found[address] = selector
    return ChosenPods(tuple(found.items()))


def _part(part: str) -> tuple[Address | None, Selector]:
    before, colon, text = part.rpartition(": ")
    address = addresses.parse(before.strip()) if colon else None
    if address is not None and address.position is not None:
        raise ValueError(f"{shown(before)} is an index: name the metric")
    try:
        selector = selectors.parse(text)
    except SelectorError as error:
        raise ValueError(f"{shown(text)} is not a label selector: {error}") from None
    if not selector.requirements:
        raise ValueError("a label selector such as role=stable is missing")
    return address, selector


def require_known(chosen: ChosenPods, metrics: Sequence[MetricIdentity]) -> None:
    """Raises ValueError for an address that stands for no metric."""
    known = {form for forms in addresses.forms(metrics) for form in forms}
    for address, _ in chosen.selectors:
        if address is not None and address not in known:
            there = addresses.existing(addresses.canonical(tuple(metrics)))
            raise ValueError(f"there is no metric {shown(str(address))} here; {there}")


def _budget(text: str) -> str:
    if metadata.label_faults(text.strip()) or not text.strip():
        raise ValueError(f"{shown(text)} is not the name of a budget, such as gpu")
    return text.strip()


def _priority(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = _HIGHEST_PRIORITY + 1
    if abs(value) > _HIGHEST_PRIORITY:
        raise ValueError(f"{shown(text)} is not a whole number from -{_HIGHEST_PRIORITY:,} to {_HIGHEST_PRIORITY:,}")
    return value


CONTROLS: Final[dict[str, _Control]] = {
    SCHEDULE: _Control("schedule", schedule.parse, schedule.LONGEST),
    MODE: _Control("mode", _mode),
    f"{PREFIX}paused-until": _Control("paused_until", _time),
    f"{PREFIX}tolerance-up": _Control("tolerance_up", _tolerance),
    f"{PREFIX}tolerance-down": _Control("tolerance_down", _tolerance),
    f"{PREFIX}initialization-period": _Control("initialization_period", _period),
    f"{PREFIX}readiness-delay": _Control("readiness_delay", _period),
    METRIC_POLICY: _Control("metric_policy", expression.parse, expression.LONGEST),
    f"{PREFIX}ignore-containers": _Control("ignored_containers", _containers, _LONGEST_CONTAINERS),
    SYNC_PERIOD: _Control("sync_period", _between(*_SYNC_PERIODS)),
    POD_SELECTION: _Control("pod_selection", _pod_selection),
    ORDER: _Control("scale_down_order", _order),
    KEEP_BUSY: _Control("keep_busy", lambda text: _truth(text) == "true"),
    BUSY_METRIC: _Control("busy_metric", _busy_metric, _LONGEST_BUSY_METRIC),
    ZERO_AFTER: _Control("zero_after", _wait),
    INITIAL_DELAY: _Control("initial_delay", _wait),
    SPARE: _Control("spare", parse_spare),
    PODS: _Control("pods", _chosen_pods, selectors.LONGEST),
    BUDGET: _Control("budget", _budget),
    PRIORITY: _Control("budget_priority", _priority),
}
"""The controls by their annotation."""


_PARSED: Final = 50
"""What parsed annotations take for each character of their texts: the parts of a metric policy, above all."""


class Read(NamedTuple):
    """The controls of an HPA, and the error of each annotation that cannot be read; its default holds."""

    controls: Controls
    errors: tuple[tuple[str, str], ...] = ()


def parse(name: str, text: str) -> Any:
    """Returns the value of a control. Raises ValueError, also for a text that is too long."""
    control = CONTROLS[name]
    require_length(text, control.longest)
    return control.parse(text)


def without(found: Controls, name: str) -> Controls:
    """Returns the controls with the default of the control of an annotation."""
    texts = tuple([each for each in found.texts if each[0] != name])
    return msgspec.structs.replace(found, **{CONTROLS[name].field: None}, texts=texts)


def read(texts: Mapping[str, str]) -> Read:
    """Returns the controls that these annotations set. Never raises. Ignores annotations that are no controls."""
    own = tuple(sorted((name, text) for name, text in texts.items() if name in CONTROLS))
    return _read(own) if own else NOTHING


NOTHING: Final = Read(Controls())


@bounded_cache(lambda own: _PARSED * sum([len(text) for _, text in own]))
def _read(own: Texts) -> Read:
    """Parses the texts. Cached, since each turn of an HPA needs the result."""
    values: dict[str, Any] = {}
    valid, errors = [], []
    for name, text in own:
        control = CONTROLS[name]
        try:
            values[control.field] = parse(name, text)
        except ValueError as error:
            errors.append((name, str(error)))
        else:
            valid.append((name, text))
    return Read(Controls(**values, texts=tuple(valid)) if valid else Controls(), tuple(errors))
