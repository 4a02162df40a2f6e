"""Assesses many HPAs: this process reads their pasts, worker processes assess them, and little stays in memory."""

import concurrent.futures
import functools
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, NotAssessed
from hpad.simulation.advice.past import HpaPast

_AHEAD: Final = 3
"""Items per worker that are read before they can be worked on, so that no worker waits while a range query runs."""
_PRELOADED: Final = "hpad.simulation.advice.assess"
"""Imported once, by the process that all workers are forked from."""


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
    context.set_forkserver_preload([_PRELOADED])
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, _ignore_interrupts)
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


def _ignore_interrupts() -> None:
    """Leaves Ctrl-C, which all processes of the terminal get, to the process that reads: it ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
