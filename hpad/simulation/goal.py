"""The count that another spec would want in the same turns: the common goal of the candidates of a search.

Measured against its own metric targets, the spec with the highest ones would always be the best.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.quantity import MAX_INT32
from hpad.api.sample import AdapterError, Sample
from hpad.engine.annotations import PLAIN
from hpad.engine.decide import decide
from hpad.engine.examine import Proceed, examine
from hpad.engine.view import Tunables
from hpad.simulation.run import Turn

_UNREAD: Final = AdapterError("the spec that was tried does not read this metric")


class Goal:
    """What the metrics of an HPA ask for, without its minimum, maximum, windows and policies."""

    def __init__(self, hpa: HorizontalPodAutoscaler, tunables: Tunables) -> None:
        own = PLAIN.of(hpa)
        self._spec = msgspec.structs.replace(hpa.spec, min_replicas=1, max_replicas=MAX_INT32)
        self._policies = own.policies
        self._controls = msgspec.structs.replace(own.controls, schedule=None)
        self._tunables = tunables.of_hpa(own.controls)

    def wanted(self, turn: Turn) -> int | None:
        """Returns the count for a turn of another spec; None where the metrics could not decide."""
        view = msgspec.structs.replace(
            turn.view,
            hpa=msgspec.structs.replace(turn.view.hpa, spec=self._spec),
            tunables=self._tunables,
            fallback_policies=self._policies,
            controls=self._controls,
        )
        verdict = examine(view)
        if not isinstance(verdict, Proceed):
            return None
        recommendation = decide(view, verdict, list(self._answers(turn, verdict))).recommendation
        return None if recommendation is None or recommendation.leader is None else recommendation.replicas

    def _answers(self, turn: Turn, verdict: Proceed) -> Iterator[Sample | AdapterError]:
        known = turn.decision.verdict.queries
        for query in verdict.queries:
            yield next((answer for each, answer in zip(known, turn.answers, strict=True) if each == query), _UNREAD)
