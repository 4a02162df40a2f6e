"""One half of the demo: look at an HPA, its replicas and its metric until something is true, showing it all along."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.lab.demo import table
from hpad.lab.demo.chart import Point
from hpad.lab.demo.errors import DemoError
from hpad.lab.demo.report import Rescale, Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import Stage
from hpad.lab.demo.view import Frame, Note

LOOK_EVERY = 0.2
SHOW_EVERY = 1.0


@dataclass(frozen=True)
class Moment:
    """What one look saw; `wanted` is status.desiredReplicas."""

    at: float
    processes: int = 0
    wanted: int = 0
    targets: str = ""
    reading: float | None = None


@dataclass
class Times:
    """When the load came, when it was over and when the replicas were back, in seconds since the half began."""

    load: float | None = None
    over: float | None = None
    back: float | None = None


@dataclass
class Half:
    """`name` is the name of the Deployment and of its HPA; `label` says in one word what the metric is.

    `span` is how many seconds it should take, for the axis of the chart; `aside` is asked for one more line each time.
    """

    stage: Stage
    screen: Screen
    name: str
    title: str
    label: str
    unit: str = ""
    span: float = 1.0
    aside: Callable[[], str] = str
    points: list[Point] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    rescales: list[Rescale] = field(default_factory=list)
    decisions: int = 0

    def __post_init__(self) -> None:
        self._began = self.stage.clock.monotonic()
        self._decided: object = None
        self._wanted: int | None = None
        self._shown = float("-inf")
        self._sentence = ""

    @property
    def now(self) -> float:
        """Seconds since this half began."""
        return self.stage.clock.monotonic() - self._began

    def note(self, text: str) -> None:
        """Tell the audience, at once."""
        self.notes.append(Note(self.now, text))
        self._shown = float("-inf")

    async def until(self, true: Callable[[Moment], bool], within: float, wanted: str) -> Moment:
        """Look and show until it is true; raises DemoError after `within` seconds, saying what was `wanted`."""
        deadline = self.now + within
        while True:
            moment = self.look()
            if true(moment):
                return moment
            if moment.at > deadline:
                raise DemoError(f"{wanted} within {within:.0f} s; {self._seen(moment)}")
            await self.stage.clock.sleep(LOOK_EVERY)

    async def wait(self, seconds: float) -> None:
        """Look and show for so long."""
        end = self.now + seconds
        await self.until(lambda moment: moment.at >= end, seconds + 1, "time to pass")

    def look(self) -> Moment:
        """See what there is, remember it, and show it if it is time."""
        hpa = self.stage.hpa(self.name)
        processes = len(self.stage.processes(self.name))
        moment = Moment(self.now, processes)
        if hpa is not None:
            wanted, reading = hpa.status.desired_replicas, table.reading(hpa)
            moment = Moment(self.now, processes, wanted, table.targets(hpa), reading)
            self._count_decisions()
            self._notice(moment)
        self.points.append(Point(moment.at, processes, moment.reading))
        if moment.at - self._shown >= SHOW_EVERY:
            self._show(hpa)
            self._shown = moment.at
        return moment

    def chart_label(self) -> str:
        """The metric and its highest reading: `CPU 305%`."""
        highest = max((point.reading or 0.0 for point in self.points), default=0.0)
        return f"{self.label} {highest:.0f}{self.unit}"

    def result(
        self, heading: str, times: Times, problem: str, *, because: str = "", consumers: int | None = None
    ) -> Result:
        """What this half came to."""
        counts = [point.replicas for point in self.points if point.replicas] or [0]
        loaded = times.load if times.load is not None else -1.0
        ups = [each for each in self.rescales if each.after > each.before]
        peak_at = next(point.at for point in self.points if point.replicas == max(counts)) if self.points else 0.0
        return Result(
            name=self.name,
            heading=heading,
            label=self.chart_label(),
            points=self.points,
            rescales=self.rescales,
            decisions=self.decisions,
            start=next((point.replicas for point in reversed(self.points) if point.at <= loaded), counts[0]),
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
        decided, self._sentence = self.stage.decision(self.name)
        if decided != self._decided:
            self._decided = decided
            self.decisions += 1

    def _notice(self, moment: Moment) -> None:
        """A change of the wanted replicas is news."""
        before, self._wanted = self._wanted, moment.wanted or self._wanted
        if before is not None and self._wanted is not None and before != self._wanted:
            self.rescales.append(Rescale(moment.at, before, self._wanted, moment.targets, self._sentence))
            self.note(self._sentence)

    def _show(self, hpa: HorizontalPodAutoscaler | None) -> None:
        rows = [table.row(hpa, self.stage.clock.now())] if hpa else []
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

    def _seen(self, moment: Moment) -> str:
        decided = f"hpad's last decision: {self._sentence}" if self._sentence else "hpad has decided nothing yet"
        return f"there are {moment.processes} of {self.name} at {moment.targets or 'no reading'}; {decided}"
