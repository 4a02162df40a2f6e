"""Metric sources: are they built, and do they answer what the HPAs ask?"""

import asyncio
from collections.abc import Iterable

import msgspec

from hpad.adapter import AdapterError, Query
from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli.checkup.finding import ERROR, NOTE, OK, WARNING, Finding
from hpad.clock import Clock
from hpad.engine import spec as goal
from hpad.kube import cluster, codec
from hpad.kube.client import Client
from hpad.settings import Settings
from hpad.sources import direct, manager, plugins

_MOST = 20
_SECONDS = 10.0
_CORRECT = "correct it there; `hpad check` shows the line"
_EVERY_POD = selector.parse("")


def decoded(items: Iterable[msgspec.Raw]) -> list[HorizontalPodAutoscaler]:
    """The HPAs that can be read."""
    found = []
    for item in items:
        try:
            found.append(codec.hpa(item).value)
        except codec.UndecodableError:
            continue
    return found


def questions(hpas: Iterable[HorizontalPodAutoscaler]) -> list[tuple[Key, Query]]:
    """One for each metric that HPAs name, up to a number; the pods asked about are all of the namespace."""
    found: dict[tuple[str, str], tuple[Key, Query]] = {}
    for hpa in hpas:
        for spec in hpa.spec.metrics or ():
            wanted = goal.compile_metric(spec, hpa.metadata.namespace)
            if wanted.flaw is None and len(found) < _MOST:
                query = wanted.query
                if query.type not in ("External", "Object"):
                    query = msgspec.structs.replace(query, pods=_EVERY_POD)
                found.setdefault((query.type, query.name), (hpa.metadata.key, query))
    return list(found.values())


async def built(told: Settings, clock: Clock) -> list[Finding]:
    """Errors of sources that are not configured well, or a finding that all are; nothing is asked."""
    found = []
    make = plugins.Contexts(clock)
    for source in told.sources:
        wrong = [str(flaw) for flaw in await asyncio.to_thread(plugins.wrong, source)]
        try:
            if not wrong:
                async with direct.opened(source, make):
                    pass
        except AdapterError as error:
            wrong = [error.message.removeprefix(f'source "{source.name}": ')]
        place = f'{source.origin}: source "{source.name}"' if source.origin else f'source "{source.name}"'
        found += [Finding("configuration", ERROR, f"{place}: {each}", _CORRECT) for each in wrong]
    return found or [Finding("configuration", OK, _good(told))]


def _good(told: Settings) -> str:
    if not told.sources:
        return "the settings are good"
    names = ", ".join(source.name for source in told.sources)
    return f"the settings are good, those of the source{'' if len(told.sources) == 1 else 's'} {names} too"


async def check(client: Client, told: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """A finding for each source that cannot be built, and for each metric that was asked for."""
    asked = questions(hpas)
    make = plugins.Contexts(client.clock, api=cluster.Api(client))
    gatherer = manager.Gatherer(told.sources, told.routes, contexts=make, period=told.sync_period.total_seconds())
    await gatherer.start()
    try:
        configured = {source.name for source in told.sources}  # `built` has said what is wrong with those
        found = [
            Finding("sources", ERROR, error.message, "install hpad again: one of its own adapters does not work")
            for name, error in gatherer.problems().items()
            if name not in configured
        ]
        for key, query in asked:
            (answer,) = await gatherer.gather(key, [query], deadline=_SECONDS)
            found.append(_judged(key, query, answer))
    finally:
        await gatherer.aclose()
    if told.sources and not asked:
        says = "no HPA asks for a metric yet, so the sources were built, but not asked"
        found.append(Finding("sources", NOTE, says, "ask by hand: hpad sources test"))
    return found or [Finding("sources", OK, "no metric source is configured, and no HPA asks for one")]


def _judged(key: Key, query: Query, answer: object) -> Finding:
    metric = f'{query.type} metric "{query.name}" of {key}'
    if isinstance(answer, AdapterError):
        return Finding("sources", WARNING, f"{metric}: {answer.message}", _advice(answer))
    return Finding("sources", OK, f"{metric} has an answer")


def _advice(error: AdapterError) -> str:
    return {
        "spec": "correct the HPA, or the settings of the source",
        "cluster": "look at the API that serves it: kubectl get apiservices",
        "bug": "report it with the log of hpad run --log-level=debug",
    }.get(error.blame, "look at the source, and at how it is configured")
