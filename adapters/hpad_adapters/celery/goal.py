"""`celery_workers_to_clear` over Redis: remembers the tasks and workers of queues, and makes the value."""

from collections import OrderedDict
from collections.abc import Mapping

from hpad.adapter import Context
from hpad_adapters.celery.measuring import TaskCounters
from hpad_adapters.celery.workers import Said
from hpad_adapters.clearing.goal import GOAL, ClearingGoal, parsed_goal
from hpad_adapters.clearing.workers import MOST_QUEUES, Clearing


def goal_of(parameters: Mapping[str, str]) -> ClearingGoal:
    """Returns the goal of a selector; raises ValueError, "field: text"."""
    return parsed_goal({name: parameters.get(name, "") for name in GOAL})


class GoalsOverRedis:
    """The values of all goals of a source. Queues that are asked for together are one backlog of the same workers."""

    def __init__(self, context: Context) -> None:
        self._monotonic = context.clock.monotonic
        self._clearing = Clearing(self._monotonic)
        self._counters: OrderedDict[frozenset[str], TaskCounters] = OrderedDict()

    def workers(self, queues: tuple[str, ...], goal: ClearingGoal, name: str, waiting: int, said: Said) -> float:
        """Returns how many tasks have to be worked on at once; raises AdapterError where that is unknown.

        `waiting` tasks are in the lists of these queues, for which `name` stands in sentences.
        """
        place = frozenset(queues)
        counters = self._counters.setdefault(place, TaskCounters(queues))
        self._counters.move_to_end(place)
        if len(self._counters) > MOST_QUEUES:
            self._counters.popitem(last=False)
        return self._clearing.workers(counters.measured(name, waiting, said, self._monotonic()), goal)
