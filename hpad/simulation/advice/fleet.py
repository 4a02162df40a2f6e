"""Assesses many HPAs: this process reads their pasts, worker processes assess them, and little stays in memory."""

import concurrent.futures
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from hpad.api.metadata import Key
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment
from hpad.simulation.advice.past import HpaPast

_AHEAD: Final = 3
"""Pasts per worker that are read before they can be assessed, so that no worker waits while a range query runs."""
_PRELOADED: Final = "hpad.simulation.advice.assess"
"""Imported once, by the process that all workers are forked from."""


class NotAssessed(msgspec.Struct, frozen=True):
    """An HPA of which nothing can be said. `problem` is a sentence."""

    key: Key
    problem: str


class FleetError(ValueError):
    """The worker processes do not work."""


Assess = Callable[[HpaPast, AdviceOptions], Assessment]


def assessed(
    pasts: Iterable[HpaPast], options: AdviceOptions, workers: int, one: Assess = assess
) -> Iterator[Assessment | NotAssessed]:
    """Yields what `one` says of each past, in their order, without the past and its curves but for the chart.

    `workers`: the number of processes; 0 assesses in this one. Few pasts at a time are in memory. An HPA that cannot be
    assessed does not end the others. Ends the processes at once if the caller stops early, also at Ctrl-C. Raises what
    `pasts` raises, and FleetError if the operating system ends a worker.
    """
    if workers == 0:
        yield from (_safely(past, options, one) for past in pasts)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, _ignore_interrupts)
    try:
        yield from _in_flight(pool, pasts, options, one, workers * _AHEAD)
    except concurrent.futures.BrokenExecutor:
        raise FleetError("a worker process was ended from outside, perhaps for lack of memory: try fewer") from None
    except BaseException:
        for process in (pool._processes or {}).values():
            process.kill()  # what it is at would take seconds
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _in_flight(
    pool: concurrent.futures.Executor, pasts: Iterable[HpaPast], options: AdviceOptions, one: Assess, most: int
) -> Iterator[Assessment | NotAssessed]:
    waiting: deque[concurrent.futures.Future[Assessment | NotAssessed]] = deque()
    for past in pasts:
        waiting.append(pool.submit(_safely, past, options, one))
        while waiting and (len(waiting) >= most or waiting[0].done()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _safely(past: HpaPast, options: AdviceOptions, one: Assess) -> Assessment | NotAssessed:
    try:
        found = one(past, options)
    except Exception as error:  # noqa: BLE001 - a defect that one HPA meets must not hide the advice on all others
        return NotAssessed(past.hpa.key, f"could not be assessed: {type(error).__name__}: {error}")
    return msgspec.structs.replace(found, past=None, recorded=(), modelled=(), advised=())


def _ignore_interrupts() -> None:
    """Leaves Ctrl-C, which all processes of the terminal get, to the process that reads: it ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
