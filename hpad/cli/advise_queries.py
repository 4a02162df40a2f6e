"""The PromQL by which the past of External, Pods and Object metrics is known, from the sources of hpad's settings."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from hpad.adapter import EXTERNAL, OBJECT, PODS, AdapterError, HPAIdentity, PastPromQL, Query
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli import offline, sources_request
from hpad.cli.sources_request import MetricRequest
from hpad.daemon import logs
from hpad.settings import Settings, SourceSettings
from hpad.simulation.history import metrics_of
from hpad.sources import manager, plugins

Place = tuple[Key, str]
"""An HPA and the address of one of its metrics."""
_LONGEST: Final = 30.0
"""Seconds that calls of one source may fail for; then its last error stands for the rest."""
_SHORTEST: Final = 120.0
"""Seconds of a rate, where two steps are less."""
_NO_SELECTOR: Final = "the labels of the pods of its target are not known: write its PromQL into the series file"


def read(
    args: argparse.Namespace, settings: Settings, hpas: Sequence[HorizontalPodAutoscaler]
) -> Mapping[Place, PastPromQL]:
    """Returns the PromQL of the metrics of these HPAs, for a command with the arguments `kubeconfig` and `step`.

    Raises Failure.
    """
    if not settings.sources:
        return {}
    logs.configure("error", "text")  # errors of adapters go to standard error

    async def asked() -> Mapping[Place, PastPromQL]:
        async with offline.contexts(settings, args) as make:
            return await own_queries(settings, hpas, make, timedelta(seconds=max(2 * args.step, _SHORTEST)))

    return asyncio.run(asked())


async def own_queries(
    settings: Settings, hpas: Sequence[HorizontalPodAutoscaler], make: plugins.Contexts, window: timedelta
) -> dict[Place, PastPromQL]:
    """Returns the PromQL of each metric that a source of the settings answers, or why there is none.

    Metrics of no configured source are left out. Rates are over `window`, unless a query has its own. Reads no value:
    only a source whose rules have to look for the names of series asks its server for these.
    """
    asked: dict[str, list[_Asked]] = {}
    async with offline.gatherer(settings, make) as gatherer:
        for hpa in hpas:
            for each in _asked(gatherer, settings, hpa):
                asked.setdefault(each.request.source.name, []).append(each)
    found: dict[Place, PastPromQL] = {}
    for each_source in asked.values():
        found |= await _answers(each_source, make, window)
    return found


class _Asked(NamedTuple):
    """A metric that a source answers; `problem`: why it cannot be asked for, "" if it can."""

    place: Place
    request: MetricRequest
    problem: str = ""


def _asked(gatherer: manager.Gatherer, settings: Settings, hpa: HorizontalPodAutoscaler) -> Iterator[_Asked]:
    """Yields the metrics that a source of the settings has."""
    sources = {each.name: each for each in settings.sources}
    for address, metric in metrics_of(hpa).items():
        if metric.type not in (EXTERNAL, OBJECT, PODS) or metric.error is not None:
            continue
        query = handed = metric.query
        problem = _NO_SELECTOR if query.type == PODS else ""
        try:
            source = sources.get(gatherer.source_of(query))
        except AdapterError:
            continue
        if source is None:  # the metrics APIs of the cluster, which remember nothing
            continue
        try:
            handed = gatherer.handed(query)
        except AdapterError as error:
            problem = problem or error.message
        yield _Asked((hpa.key, address), MetricRequest(source, query, HPAIdentity.of(hpa), handed), problem)


async def _answers(asked: Sequence[_Asked], make: plugins.Contexts, window: timedelta) -> dict[Place, PastPromQL]:
    """Returns the answers of one source."""
    found = {each.place: PastPromQL(problem=each.problem) for each in asked if each.problem}
    left, source = [each for each in asked if not each.problem], asked[0].request.source
    failed, last = 0.0, PastPromQL(problem=_unknown(source))
    try:
        async with offline.adapter(source, make) as (adapter, redactor):
            past: Any = getattr(adapter, "past", None)
            for each in left:
                began = make.clock.monotonic()
                if past is not None and failed < _LONGEST:
                    last = await _asked_for(past, sources_request.for_hpa(adapter, each.request), window)
                    failed += make.clock.monotonic() - began if last.problem else 0.0
                found[each.place] = msgspec.structs.replace(last, problem=redactor(last.problem))
    except AdapterError as error:
        return {each.place: PastPromQL(problem=error.message) for each in left} | found
    return found


async def _asked_for(past: Any, query: Query, window: timedelta) -> PastPromQL:
    try:
        answer = await past(query, window)
    except AdapterError as error:
        return PastPromQL(problem=error.message)
    except Exception:  # noqa: BLE001 - foreign code may raise anything, and its text may hold a secret
        return PastPromQL(problem="its adapter raised an exception, a bug of the adapter")
    if not isinstance(answer, PastPromQL) or not answer.values:
        return PastPromQL(problem="its adapter answered no PromQL, a bug of the adapter")
    return answer


def _unknown(source: SourceSettings) -> str:
    text = f'the source "{source.name}" (adapter {source.adapter}) does not know which series hold its past'
    return f"{text}: write their PromQL into the series file"
