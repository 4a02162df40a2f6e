"""From the past of an HPA to all that is said of it, with its chart and the line on what matters most.

Many HPAs are assessed by worker processes.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from typing import Final, TypeVar

from hpad.engine.words import names, percent, replicas
from hpad.simulation.advice import choosing, finding
from hpad.simulation.advice.assessment import (
    AdviceOptions,
    Assessment,
    Chart,
    Curve,
    Facts,
    FoundFault,
    HpaFault,
    ModelTrust,
    NotAssessed,
    Severity,
)
from hpad.simulation.advice.choosing import UNTRUSTED, Choice
from hpad.simulation.advice.facts import facts_of
from hpad.simulation.advice.finding import waste
from hpad.simulation.advice.finding.case import Case
from hpad.simulation.advice.model import trust
from hpad.simulation.advice.model.load_model import LoadModel
from hpad.simulation.advice.model.rerun import rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import record_of
from hpad.simulation.advice.words import days, often, share
from hpad.simulation.history import DAY, REPLICAS
from hpad.simulation.thinning import metric_charts, steps, thinned

LONGEST: Final = 100
"""Characters of a line, where its parts allow it."""
_MUCH: Final = 0.05
"""The share of the time above goal from which on an HPA without a fault, whose load moves fast, is not praised."""
_WASTE: Final = frozenset({HpaFault.IDLE_MINIMUM, HpaFault.GOAL_LOW, HpaFault.WINDOW_USELESS, HpaFault.WINDOW_SHORT})
"""Faults of which the advice that mends them says all that there is to say."""

_NOT_MENDED: Final = {
    HpaFault.PAUSED: "no other setting matters while it is paused",
    HpaFault.METRIC_FAILING: "no setting of an HPA makes a metric readable",
    HpaFault.NOT_SCALING: "nothing in its spec keeps it from scaling",
    HpaFault.GOAL_BELOW_ONE_POD: "no count of replicas brings a pod below this goal, and its past shows no better goal",
}
"""Why faults have no advice that no goal, bound, window or policy mends."""


def assess(past: HpaPast, options: AdviceOptions) -> Assessment:
    """Returns the assessment. Runs for about a second per week and HPA."""
    record = record_of(past, options.tunables)
    known = facts_of(past, record)
    model = None if past.is_paused else LoadModel.of(past, options)
    now = None if model is None else rerun(past.hpa, model)
    trusted = trust.judged(past, now)
    found = finding.found(Case(past, known, record, now, trusted))
    made = UNTRUSTED if model is None or now is None else choosing.choose(model, known, found, now, trusted)
    chosen = made if isinstance(made, Choice) else None
    if chosen is not None:
        found = choosing.with_fault(found, chosen)
    return Assessment(
        key=past.hpa.key,
        facts=known,
        findings=found,
        trust=trusted,
        advice=None if chosen is None else chosen.advice,
        unadvised="" if isinstance(made, Choice) else unadvised(known, found, made),
        verdict=verdict(known, found, chosen, trusted),
        readings=past.readings,
        notes=() if model is None else model.notes,
        samples=past.samples,
        chart=chart_of(
            past, () if now is None or not trusted.suffices else now.curve, () if chosen is None else chosen.rerun.curve
        ),
    )


def unadvised(facts: Facts, findings: tuple[FoundFault, ...], reason: str) -> str:
    """Returns why an HPA with a fault has no advice, "" without a fault. `reason` is what the choice came to."""
    worst = _worst(findings)
    if worst is not None and worst.fault is HpaFault.REQUESTS_MISSING:
        lacking = names(sorted({name for each in facts.unrequested.values() for name in each}))
        return f"give {lacking} the request, or use a ContainerResource metric of a container that has one"
    return "" if worst is None else _NOT_MENDED.get(worst.fault, reason)


def chart_of(past: HpaPast, modelled: Curve, advised: Curve) -> Chart | None:
    """Returns the chart; None if the past has less than two times."""
    load = past.load
    if len(load.times) < 2:
        return None
    span = load.times[0], load.times[-1]
    return Chart(
        begin=span[0],
        end=span[1],
        metrics=metric_charts(past.hpa, load),
        recorded=thinned(steps(load, load.columns.get(REPLICAS, ())), *span),
        modelled=thinned(modelled, *span),
        advised=thinned(advised, *span),
        minimum=thinned(steps(load, past.minimum), *span),
        maximum=thinned(steps(load, past.maximum), *span),
    )


def verdict(facts: Facts, findings: tuple[FoundFault, ...], chosen: Choice | None, trust: ModelTrust) -> str:
    """Returns one line: the most severe fault, with the change that mends it; the advice; or that all is well."""
    worst = _worst(findings)
    if worst is None and chosen is None:
        return _calm(facts, findings, trust)
    if chosen is None:
        assert worst is not None
        return worst.brief or worst.text
    if worst is None or (worst.severity is Severity.WARNING and worst.fault in _WASTE):
        return chosen.advice.text
    return _with_change(worst.brief or worst.text, chosen)


def _worst(findings: tuple[FoundFault, ...]) -> FoundFault | None:
    """Returns the most severe fault; None where there are notes at the most."""
    return next((each for each in findings if each.severity is not Severity.NOTE), None)


def _with_change(fault: str, chosen: Choice) -> str:
    """Returns the fault and, where the line has room, the changes of the advice, which its text begins with."""
    both = f"{fault}; advice: {chosen.advice.text.partition(':')[0]}"
    return both if len(both) <= LONGEST else fault


def _calm(facts: Facts, findings: tuple[FoundFault, ...], trust: ModelTrust) -> str:
    if not facts.seconds:
        return "no replica count is known in this time"
    if facts.above_goal is None:
        return f"its metrics are not readable: {_counts(facts)}, {_rescales(facts)}; nothing else is known"
    idle = (facts.idle or 0.0) / facts.replica_seconds if facts.lowest > waste.AVAILABLE else 0.0
    is_idle = facts.measured < DAY and idle >= waste.IDLE
    well = facts.above_goal < _MUCH * facts.seconds and not is_idle
    begin = f"{'does its job' if well else 'no fault found'}: {_counts(facts)}"
    if is_idle:
        return f"{begin}, {percent(idle)} idle in {days(facts.measured)}; a day is needed to judge that"
    if facts.measured < DAY and facts.idle is not None:
        return f"{begin}; only {days(facts.measured)} are known, a day is needed to tell idle replicas"
    above = (
        f"above goal {share(facts.above_goal, facts.seconds)} of the time" if facts.above_goal else "never above goal"
    )
    parts = [begin, above, _rescales(facts)]
    if trust.suffices and not findings:
        parts.append("no better settings found")
    while len(line := ", ".join(parts)) > LONGEST:
        parts.pop()
    return line


def _counts(facts: Facts) -> str:
    if facts.lowest == facts.highest:
        return f"{replicas(facts.highest)} all the time"
    return f"{facts.lowest} to {replicas(facts.highest)}"


def _rescales(facts: Facts) -> str:
    if not facts.rescales:
        return "no rescales"
    return often(facts.rescales, "rescale", facts.seconds)


# Many HPAs: this process reads their pasts, worker processes assess them, and little stays in memory.

_AHEAD: Final = 3
"""Items per worker that are read before they can be worked on, so that no worker waits while a range query runs."""


class FleetError(ValueError):
    """The worker processes do not work."""


Assess = Callable[[HpaPast, AdviceOptions], Assessment]
Item = TypeVar("Item")
Result = TypeVar("Result")


def assessed(
    pasts: Iterable[HpaPast], options: AdviceOptions, workers: int, one: Assess = assess
) -> Iterator[Assessment | NotAssessed]:
    """Yields what `one` says of each past.

    An HPA that cannot be assessed does not end the others. All else is as in `spread`.
    """
    yield from spread(pasts, functools.partial(_safely, options=options, one=one), workers)


def spread(items: Iterable[Item], one: Callable[[Item], Result], workers: int) -> Iterator[Result]:
    """Yields what `one` returns for each item, in their order, with few items at a time in memory.

    `workers`: the number of processes, which end at once if the caller stops early, also at Ctrl-C; 0 is this process.
    Raises what `items` and `one` raise, and FleetError if the operating system ends a worker.
    """
    if workers == 0:
        yield from map(one, items)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once, by the process that all workers are forked from
    resource_tracker.ensure_running()  # its start unblocks the signal
    pool = concurrent.futures.ProcessPoolExecutor(workers, context)
    try:
        yield from _in_flight(pool, items, one, workers * _AHEAD)
    except concurrent.futures.BrokenExecutor:
        raise FleetError("a worker process was ended from outside, perhaps for lack of memory: try fewer") from None
    except BaseException:
        for process in (pool._processes or {}).values():
            process.kill()  # what it is at would take seconds
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _in_flight(
    pool: concurrent.futures.Executor, items: Iterable[Item], one: Callable[[Item], Result], most: int
) -> Iterator[Result]:
    waiting: deque[concurrent.futures.Future[Result]] = deque()
    for item in items:
        with _interrupts_wait():
            waiting.append(pool.submit(one, item))
        while waiting and (len(waiting) >= most or waiting[0].done()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _safely(past: HpaPast, options: AdviceOptions, one: Assess) -> Assessment | NotAssessed:
    if past.problem:
        return NotAssessed(past.hpa.key, past.problem)
    try:
        return one(past, options)
    except Exception as error:  # noqa: BLE001 - a defect that one HPA meets must not hide the advice on all others
        return NotAssessed(past.hpa.key, f"could not be assessed: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Defers Ctrl-C, which all processes of the terminal get; processes that start meanwhile never see it.

    It is left to the process that reads, which ends the workers. The handler serves the threads that read: a signal
    that the main thread blocks goes to them.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone has handlers
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, before)
    for number in pressed:
        signal.raise_signal(number)
