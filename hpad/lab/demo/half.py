"""One half of the demo: observes an HPA, its replicas and its metric, and shows them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hpad.api.autoscaler import targets
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.lab.demo import DemoError, view
from hpad.lab.demo.chart import Point
from hpad.lab.demo.report import Rescale, Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import Stage
from hpad.lab.demo.view import Frame, Note

OBSERVE_SECONDS = 0.2
SHOW_SECONDS = 1.0


@dataclass(frozen=True)
class Moment:
    """One observation, `at` seconds after the start of the half; `desired` is status.desiredReplicas."""

    at: float
    processes: int = 0
    desired: int = 0
    targets: str = ""
    reading: float | None = None


@dataclass
class Times:
    """When the load began and ended, and when the replicas were back at their minimum; seconds since the start."""

    load: float | None = None
    over: float | None = None
    back: float | None = None


@dataclass
class Half:
    """Observes one workload. `name` is that of the Deployment and of its HPA; `label` is a word for the metric.

    `span` is the expected duration in seconds, for the axis of the chart; `aside` returns a further line to show, and
    `curve` the number below the replicas in the chart, in place of the metric's reading.
    """

    stage: Stage
    screen: Screen
    name: str
    title: str
    label: str
    unit: str = ""
    span: float = 1.0
    aside: Callable[[], str] = str
    curve: Callable[[], float] | None = None
    points: list[Point] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    rescales: list[Rescale] = field(default_factory=list)
    decisions: int = 0

    def __post_init__(self) -> None:
        self._started = self.stage.clock.monotonic()
        self._decided_at: object = None
        self._desired: int | None = None
        self._shown_at = float("-inf")
        self._sentence = ""

    @property
    def now(self) -> float:
        """Seconds since the start of this half."""
        return self.stage.clock.monotonic() - self._started

    def note(self, text: str) -> None:
        """Adds a note, and shows it with the next observation."""
        self.notes.append(Note(self.now, text))
        self._shown_at = float("-inf")

    async def until(self, condition: Callable[[Moment], bool], timeout: float, expected: str) -> Moment:
        """Observes until the condition holds; raises DemoError that names `expected` after `timeout` seconds."""
        deadline = self.now + timeout
        while True:
            moment = self.observe()
            if condition(moment):
                return moment
            if moment.at > deadline:
                raise DemoError(f"expected {expected} within {timeout:.0f} s; {self._actual(moment)}")
            await self.stage.clock.sleep(OBSERVE_SECONDS)

    async def wait(self, seconds: float) -> None:
        """Observes for a number of seconds."""
        end = self.now + seconds
        await self.until(lambda moment: moment.at >= end, seconds + 1, "time to pass")

    def observe(self) -> Moment:
        """Records the current state, and shows it at most every SHOW_SECONDS, or at once after a note."""
        hpa = self.stage.hpa(self.name)
        processes = len(self.stage.processes(self.name))
        moment = Moment(self.now, processes)
        if hpa is not None:
            desired, reading = hpa.status.desired_replicas, view.reading(hpa)
            moment = Moment(self.now, processes, desired, targets(hpa), reading)
            self._count_decisions()
            self._record_rescale(moment)
        self.points.append(Point(moment.at, processes, self.curve() if self.curve is not None else moment.reading))
        if moment.at - self._shown_at >= SHOW_SECONDS:
            self._show(hpa)
            self._shown_at = moment.at
        return moment

    def chart_label(self) -> str:
        """Returns the metric and its highest reading, such as `CPU 305%`."""
        highest = max((point.reading or 0.0 for point in self.points), default=0.0)
        return f"{self.label} {highest:.0f}{self.unit}"

    def result(
        self, heading: str, times: Times, problem: str, *, because: str = "", consumers: int | None = None
    ) -> Result:
        """Returns the result of this half."""
        counts = [point.replicas for point in self.points if point.replicas] or [0]
        loaded = times.load if times.load is not None else -1.0
        ups = [each for each in self.rescales if each.after > each.before]
        # Not what was observed at the very time of the load: the clock stands still within a pass of the event loop.
        start = next((point.replicas for point in reversed(self.points) if point.at < loaded), counts[0])
        peak_at = next(point.at for point in self.points if point.replicas == max(counts)) if self.points else 0.0
        return Result(
            name=self.name,
            heading=heading,
            label=self.chart_label(),
            points=self.points,
            rescales=self.rescales,
            decisions=self.decisions,
            start=start,
            peak=max(counts),
            end=counts[-1],
            reading=ups[0].targets if ups else "",
            reacted=ups[0].at - times.load if ups and times.load is not None else None,
            peaked=peak_at - times.load if ups and times.load is not None else None,
            returned=times.back - times.over if times.back is not None and times.over is not None else None,
            because=because,
            consumers=consumers,
            problem=problem,
        )

    def _count_decisions(self) -> None:
        decided_at, self._sentence = self.stage.decision(self.name)
        if decided_at != self._decided_at:
            self._decided_at = decided_at
            self.decisions += 1

    def _record_rescale(self, moment: Moment) -> None:
        """Records a change of the desired replicas, and notes its decision; 0 is a status without a decision yet."""
        before, self._desired = self._desired, moment.desired or self._desired
        if before is not None and self._desired is not None and before != self._desired:
            self.rescales.append(Rescale(moment.at, before, self._desired, moment.targets, self._sentence))
            self.note(self._sentence)

    def _show(self, hpa: HorizontalPodAutoscaler | None) -> None:
        rows = [view.row(hpa, self.stage.clock.now())] if hpa else []
        frame = Frame(
            title=self.title,
            at=self.now,
            rows=rows,
            decision=self._sentence,
            aside=self.aside(),
            notes=self.notes,
            points=self.points,
            label=self.chart_label(),
            span=self.span,
        )
        self.screen.show(frame)

    def _actual(self, moment: Moment) -> str:
        decision = f"hpad's last decision: {self._sentence}" if self._sentence else "hpad has decided nothing yet"
        return f"{moment.processes} {self.name} processes run at {moment.targets or 'no reading'}; {decision}"
