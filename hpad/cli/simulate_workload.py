"""The flags of a simulated workload, and the model they describe, for `hpad simulate` and `hpad backtest`."""

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.numbers import amount, number, seconds, some, some_seconds, whole
from hpad.api.text import shown
from hpad.cli.output import WrongUse
from hpad.engine.spec import compiled_spec
from hpad.simulation import model, queue, service
from hpad.simulation.backlog import Rates
from hpad.simulation.fleet import Container
from hpad.simulation.load import Load
from hpad.simulation.run import Workload

SERVICE: Final = "service"
QUEUE: Final = "queue"


class _Flag(NamedTuple):
    """One parameter of a model: `of` names the model, "" for both."""

    of: str
    name: str
    metavar: str
    parse: Callable[[str], Any]
    default: str
    help: str


_FLAGS: Final = (
    _Flag("", "--startup", "DURATION", seconds, "10s", "time until a new replica is ready and works"),
    _Flag("", "--scrape", "DURATION", some_seconds, "15s", "interval between two values of a metric"),
    _Flag("", "--lag", "DURATION", seconds, "0s", "time after which a value is seen"),
    _Flag("", "--cpu-request", "AMOUNT", amount, "500m", "CPU request of a pod; 0: none"),
    _Flag("", "--memory-request", "AMOUNT", amount, "0", "memory request of a pod; 0: none"),
    _Flag(
        "",
        "--cpu",
        "AMOUNT",
        amount,
        "500m",
        "CPU of a replica that serves its capacity, or works on a message",
    ),
    _Flag(SERVICE, "--capacity", "UNITS", some, "100", "units per second that a replica can serve; more is lost"),
    _Flag(SERVICE, "--cpu-idle", "AMOUNT", amount, "0", "CPU of a replica without work"),
    _Flag(SERVICE, "--cpu-startup", "AMOUNT", amount, "0", "CPU of a replica until it is ready"),
    _Flag(SERVICE, "--memory", "AMOUNT", amount, "0", "memory of a replica"),
    _Flag(SERVICE, "--noise", "FRACTION", number, "0", "relative standard deviation of a pod's CPU"),
    _Flag(QUEUE, "--service-time", "DURATION", some_seconds, "1s", "mean time that a message takes"),
    _Flag(QUEUE, "--distribution", "KIND", str, queue.EXPONENTIAL, f"of these times: {', '.join(queue.DISTRIBUTIONS)}"),
    _Flag(QUEUE, "--variation", "FACTOR", number, "1", "standard deviation by mean, of lognormal times"),
    _Flag(QUEUE, "--prefetch", "N", whole(1), "1", "messages that a consumer holds unacknowledged"),
    _Flag(QUEUE, "--backlog", "N", whole(0), "0", "messages at the start"),
    _Flag(QUEUE, "--arrivals", "KIND", str, queue.RANDOM, "random, or even: messages at equal intervals"),
)


_MODELS: Final[dict[str, tuple[type[model.ModelParameters], Callable[..., Workload]]]] = {
    SERVICE: (service.Service, service.ServiceModel),
    QUEUE: (queue.SimulatedQueue, queue.QueueModel),
}
"""The parameters have the names of their flags, but for --scrape, --lag and the requests."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the workload")
    group.add_argument(
        "--workload",
        choices=(SERVICE, QUEUE),
        default=SERVICE,
        help="service (default): ready replicas share the load; queue: consumers take messages from a queue",
    )
    group.add_argument(
        "--shows",
        metavar="METRIC=QUANTITY",
        action="append",
        default=[],
        help="what a metric of the HPA shows: of pods cpu, memory, rate; of all load, served, backlog, waiting "
        "(default: cpu and memory, rate for Pods metrics, load of a service and backlog of a queue for the others)",
    )
    for flag in _FLAGS:
        of = f"{flag.of}: " if flag.of else ""
        group.add_argument(
            flag.name,
            metavar=flag.metavar,
            type=flag.parse,
            default=None,
            help=f"{of}{flag.help} (default: {flag.default})",
        )


class LoadRecipe:
    """Reads the flags once, and makes equal workloads. Raises Failure for flags that do not fit."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.kind: str = args.workload
        self.values: dict[str, Any] = {}
        self.texts = {"workload": self.kind}
        for flag in _FLAGS:
            field = flag.name.removeprefix("--").replace("-", "_")
            value = getattr(args, field)
            if flag.of not in ("", self.kind):
                if value is not None:
                    raise WrongUse(f"{flag.name} is for --workload {flag.of}")
                continue
            self.values[field] = flag.parse(flag.default) if value is None else value
            self.texts[flag.name.removeprefix("--")] = _written(flag, self.values[field])
        self._shows = dict(_pair(text) for text in args.shows)
        choices = {"distribution": queue.DISTRIBUTIONS, "arrivals": (queue.RANDOM, queue.EVEN)}
        for field, known in choices.items():
            if field in self.values and self.values[field] not in known:
                raise WrongUse(f"--{field} {shown(self.values[field])}: there are {', '.join(known)}")

    def make(
        self, hpa: HorizontalPodAutoscaler, load: Load, start: datetime, replicas: int, seed: int
    ) -> tuple[Workload, dict[str, str]]:
        """Returns a workload with these replicas, and its parameters as they are shown.

        Raises Failure for a metric that cannot show what it is to show.
        """
        values = self.values
        try:
            shows = model.shows(hpa, "load" if self.kind == SERVICE else "backlog", self._shows)
        except ValueError as error:
            raise WrongUse(f"--shows: {error}") from None
        parameters, modelled = _MODELS[self.kind]
        own = {name: value for name, value in values.items() if name in parameters.__struct_fields__}
        container = Container(name=_container(hpa), cpu=values["cpu_request"], memory=values["memory_request"])
        workload = modelled(
            parameters(**own, container=container),
            load,
            start=start,
            replicas=replicas,
            shown=shows,
            scraping=model.Scraping(interval=values["scrape"], lag=values["lag"]),
            seed=seed,
        )
        return workload, {**self.texts, **{f"metric {name}": quantity for name, quantity in shows.items()}}


def _container(hpa: HorizontalPodAutoscaler) -> str:
    """Returns the name of the pods' only container: that of the first ContainerResource metric."""
    named = (metric.query.container for metric in compiled_spec(hpa).metrics)
    return next((name for name in named if name), "app")


def _pair(text: str) -> tuple[str, str]:
    name, equals, quantity = text.rpartition("=")
    if not equals or not name:
        raise WrongUse(f"--shows {shown(text)}: METRIC=QUANTITY is needed, as in queue_messages=backlog")
    return name, quantity


def _written(flag: _Flag, value: Any) -> str:
    """Returns a value as the flag takes it."""
    if flag.parse is amount:
        return f"{value}m" if value % 1000 else str(value // 1000)
    if flag.parse in (seconds, some_seconds):
        return f"{value:g}s"
    return f"{value:g}" if isinstance(value, float) else str(value)


_TEXT = (
    "the metric is the backlog of a queue; the columns are its messages published and acknowledged per second. A third"
    " part is the messages per second of a replica (default: that of busy ones in the past)"
)


def add_argument(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--queue", metavar="METRIC=PUBLISHED,ACKED", action="append", default=[], help=_TEXT)


def parse(texts: Sequence[str]) -> dict[str, Rates]:
    """Returns the rates of each metric that is a backlog. Raises Failure."""
    found: dict[str, Rates] = {}
    for text in texts:
        metric, rates = _parse(text)
        if metric in found:
            raise WrongUse(f"--queue {shown(text)}: there is one for {metric} already")
        found[metric] = rates
    return found


def _parse(text: str) -> tuple[str, Rates]:
    metric, _, rest = text.rpartition("=")
    parts = [each.strip() for each in rest.split(",")]
    if not metric.strip() or len(parts) not in (2, 3) or not all(parts):
        raise WrongUse(f"--queue {shown(text)}: METRIC=PUBLISHED,ACKED is needed, as in orders=published,acked")
    if len(parts) == 2:
        return metric.strip(), Rates(parts[0], parts[1])
    try:
        rate = number(parts[2])
    except ValueError as error:
        raise WrongUse(f"--queue {shown(text)}: the messages per second of a replica: {error}") from None
    return metric.strip(), Rates(parts[0], parts[1], rate)
