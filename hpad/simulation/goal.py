"""The count that another spec would want in the same turns: the common goal of the candidates of a search.

Measured against its own metric targets, the spec with the highest ones would always be the best.
"""

import functools
from collections.abc import Sequence
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.quantity import MAX_INT32
from hpad.api.sample import AdapterError, Query, Sample
from hpad.engine.annotations import PLAIN
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import Tunables

_UNREAD: Final = AdapterError("the spec that was tried does not read this metric")


class Goal:
    """What the metrics of an HPA ask for, without its minimum, maximum, windows and policies."""

    def __init__(self, hpa: HorizontalPodAutoscaler, tunables: Tunables) -> None:
        own = PLAIN.of(hpa)
        self._spec = msgspec.structs.replace(hpa.spec, min_replicas=1, max_replicas=MAX_INT32)
        self._policies = own.policies
        self._controls = msgspec.structs.replace(own.controls, schedule=None)
        self._tunables = tunables.of_hpa(own.controls)

    def wanted(self, done: Reconcile) -> int | None:
        """Returns the count for a turn of another spec; None where the metrics could not decide."""
        view = msgspec.structs.replace(
            done.view,
            hpa=msgspec.structs.replace(done.view.hpa, spec=self._spec),
            tunables=self._tunables,
            fallback_policies=self._policies,
            controls=self._controls,
        )
        recommendation = run(view, functools.partial(_known, done)).decision.recommendation
        return None if recommendation is None or recommendation.leader is None else recommendation.replicas


def _known(done: Reconcile, queries: Sequence[Query | AdapterError]) -> list[Sample | AdapterError]:
    """Returns the answers that the turn had, and an error for each query that it did not ask."""
    known = list(zip(done.queries, done.answers, strict=True))
    return [next((answer for each, answer in known if each == query), _UNREAD) for query in queries]
