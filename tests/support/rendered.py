"""Decisions of a workload as lines of text."""

from datetime import timedelta
from textwrap import dedent
from typing import Any

from support.engine import Workload, external, resource

from hpad.api.sample import Query
from hpad.engine.render import lines
from hpad.engine.styled import Line
from hpad.engine.trace import Trace
from hpad.engine.trace.make import make_trace

CPU = resource("cpu", averageUtilization=50)
QUEUE = external("queue", {"queue": "orders"}, averageValue="10")
SOURCES = {"cpu": "metrics-server", "queue": "rabbitmq"}


def traced(web: Workload) -> Trace:
    def source_of(query: Query) -> str:
        return SOURCES.get(query.name, "")

    assert web.done is not None
    return make_trace(web.done, source_of)


def rendered(web: Workload, made: Trace | None = None, **options: Any) -> list[Line]:
    """Returns the lines about the last reconcile; `made` is another trace of it."""
    return list(lines(made or traced(web), web.outlook, **options))


def text(web: Workload, **options: Any) -> str:
    return "".join(f"{line}\n" for line in rendered(web, now=web.now + timedelta(seconds=8), **options))


def part(web: Workload, begin: str, **options: Any) -> list[str]:
    """Returns the lines from the one that begins so to the next blank one, without that heading."""
    found = text(web, **options).splitlines()
    start = next(index for index, line in enumerate(found) if line.strip().startswith(begin))
    end = next((index for index in range(start, len(found)) if not found[index]), len(found))
    return [line.strip() for line in found[start + 1 : end]]


def expected(wanted: str) -> str:
    return dedent(wanted).lstrip("\n")
