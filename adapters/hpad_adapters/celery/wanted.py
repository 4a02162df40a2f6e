"""What a query of a Celery source asks for."""

from collections.abc import Mapping

import msgspec

from hpad.adapter import AdapterError, Query
from hpad_adapters.celery.settings import Settings
from hpad_adapters.clearing.goal import GOAL
from hpad_adapters.selection import EQUALITY, no_metric

TASKS, WAITING, UNACKED = "celery_tasks", "celery_tasks_waiting", "celery_tasks_unacknowledged"
TO_CLEAR, HEAD_AGE = "celery_workers_to_clear", "celery_head_age"
ACTIVE = "celery_tasks_active"
METRICS = (TASKS, WAITING, UNACKED, TO_CLEAR, HEAD_AGE, ACTIVE)
BY_WORD = frozenset({TASKS, WAITING, ACTIVE})
"""Metrics that the workers correct, where they are asked."""
_OF_QUEUES = ("queue", "task")
PARAMETERS = _OF_QUEUES + GOAL
_NO_RATES = (
    f"{TO_CLEAR} over Redis needs the setting `workers` of the source: the lengths of lists do not tell how many tasks "
    "came and how many were done, so that the workers are asked; without it, scale by celery_tasks"
)


class WantedTasks(msgspec.Struct, frozen=True):
    """A parsed query. `queues` is empty for all of the application; `goal`: parameters of celery_workers_to_clear."""

    query: Query
    queues: tuple[str, ...] = ()
    goal: Mapping[str, str] = {}


def wanted(query: Query, settings: Settings) -> WantedTasks:
    """Parses the name and selector of a query; raises AdapterError (blame "spec") with the correct form."""
    if query.name not in METRICS:
        raise no_metric(query, METRICS)
    if query.name == ACTIVE and settings.workers is None:
        raise AdapterError(f"{ACTIVE}: only the workers know it: the source needs `workers`", "spec")
    if settings.redis is not None and settings.workers is None:
        if query.members is not None:
            raise AdapterError("Redis does not say which worker has fetched a task: the source needs `workers`", "spec")
        if query.name == TO_CLEAR:
            raise AdapterError(_NO_RATES, "spec")
    terms = _terms(query)
    queues = [*terms.get("queue", ()), *map(settings.queue_of, terms.get("task", ()))]
    for name in queues:
        if settings.only_queues and name not in settings.known:
            raise _wrong(query, f'the queue "{name}" is not one that hpad\'s configuration offers')
    goal = {name: terms[name][0] for name in GOAL if name in terms}
    if query.name == TO_CLEAR:
        goal = {"prefetch": str(settings.prefetch_multiplier), **goal}
    return WantedTasks(query, tuple(dict.fromkeys(queues)), goal)


def _terms(query: Query) -> dict[str, tuple[str, ...]]:
    allowed = PARAMETERS if query.name == TO_CLEAR else _OF_QUEUES
    found: dict[str, tuple[str, ...]] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        if term.key not in allowed:
            raise _wrong(query, f'"{term.key}" is not a parameter; the parameters are {", ".join(allowed)}')
        several = term.key in _OF_QUEUES
        if term.operator not in EQUALITY or not all(term.values) or (len(term.values) != 1 and not several):
            raise _wrong(query, f'"{term}": write a value, such as {term.key}={"mail" if several else "60s"}')
        if term.key in found:
            raise _wrong(query, f'"{term.key}" occurs twice')
        found[term.key] = tuple(term.values)
    return found


def _wrong(query: Query, message: str) -> AdapterError:
    return AdapterError(f'selector of External metric "{query.name}": {message}', "spec")
