"""The stages from the metrics to the written count: the one list that all texts about a decision are made from."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from hpad.engine.budget import Budgeted
from hpad.engine.deletion_costs import Spared
from hpad.engine.examine import (
    AMBIGUOUS_SELECTOR,
    DISABLED,
    INVALID_SPEC,
    STALE_CACHE,
    UNREACHABLE,
    ZERO_DISABLED,
    Halt,
)
from hpad.engine.restrain import SCALE_DOWN_LIMIT, SCALE_UP_LIMIT, TOO_FEW, TOO_MANY, ZERO_DELAYED, Restrained
from hpad.engine.view import TOO_LARGE

NOW: Final = "now"
HALT: Final = "halt"
METRICS: Final = "metrics"
SPARE: Final = "spare"
WINDOWS: Final = "windows"
POLICIES: Final = "policies"
BOUNDS: Final = "bounds"
BUDGET: Final = "budget"
BUSY: Final = "busy"
WRITE: Final = "write"
"""The names of the stages, in their order."""

TARGET_UNREADABLE: Final = "target_unreadable"
STALE: Final = "stale_cache"
STOPPED: Final = "disabled"
OVER_LIMITS: Final = "too_large"
NOT_VALID: Final = "invalid_spec"
INVALID_SELECTOR: Final = "invalid_selector"
SHARED_PODS: Final = "ambiguous_selector"
INVALID_METRICS: Final = "invalid_metrics"
TOLERANCE: Final = "tolerance"
STABILIZATION: Final = "stabilization"
UP_LIMIT: Final = "scale_up_limit"
DOWN_LIMIT: Final = "scale_down_limit"
MAXIMUM: Final = "maximum"
MINIMUM: Final = "minimum"
LAST_REPLICA: Final = "last_replica"
SHARED_BUDGET: Final = "budget"
BUSY_PODS: Final = "busy_pods"
IN_DRY_RUN: Final = "dry_run"
IN_SHADOW: Final = "shadow"
IS_PAUSED: Final = "paused"
COMPETING_HPA: Final = "competing_hpa"
WRITE_FAILED: Final = "write_failed"
HOLDS: Final = (
    TARGET_UNREADABLE, STALE, OVER_LIMITS, NOT_VALID, STOPPED, INVALID_SELECTOR, SHARED_PODS, INVALID_METRICS,
    TOLERANCE, STABILIZATION, UP_LIMIT, DOWN_LIMIT, MAXIMUM, MINIMUM, LAST_REPLICA, SHARED_BUDGET, BUSY_PODS,
    IN_DRY_RUN, IN_SHADOW, IS_PAUSED, COMPETING_HPA, WRITE_FAILED,
)  # fmt: skip
"""What may hold a count, in the order of the stages: label values of a series."""


class Stage(msgspec.Struct, frozen=True, gc=False):
    """One stage: the count after it (None: there is none), and why.

    `text` is what the sentence says about it; "" where it changed nothing, for the metrics, whose clauses
    `hpad.engine.phrases` makes, and for the windows, which are `restrained`. `holds` is the reason, one of HOLDS, for
    which the target does not get the count that its metrics ask for ("": it does not hold the count). A stage may cut
    what an earlier one holds, and hold nothing.
    """

    name: str
    replicas: int | None
    text: str = ""
    holds: str = ""
    restrained: Restrained | None = None

    @property
    def clause(self) -> str:
        """The part of the sentence; "" where it says nothing about the stage. That of the windows is made anew."""
        return self.text if self.restrained is None else self.restrained.stabilization


class Limit(NamedTuple):
    """A limit of the count: its stage, and the reason that it is; both "" without one."""

    stage: str = ""
    reason: str = ""


_LIMITS: Final = {
    SCALE_UP_LIMIT: Limit(POLICIES, UP_LIMIT),
    SCALE_DOWN_LIMIT: Limit(POLICIES, DOWN_LIMIT),
    TOO_MANY: Limit(BOUNDS, MAXIMUM),
    TOO_FEW: Limit(BOUNDS, MINIMUM),
    ZERO_DISABLED: Limit(BOUNDS, MINIMUM),
    ZERO_DELAYED: Limit(BOUNDS, LAST_REPLICA),
}
"""By the reason of the condition ScalingLimited."""


def limit_of(found: Restrained) -> Limit:
    """Returns the limit that changed the count, also where a window would hold it as well."""
    return _LIMITS.get(found.limited[0], Limit())


def halted(verdict: Halt) -> Stage:
    """Returns the only stage where nothing was measured."""
    if verdict.reason == TOO_LARGE:
        holds = OVER_LIMITS
    elif verdict.reason == INVALID_SPEC:
        holds = NOT_VALID
    elif verdict.kind == UNREACHABLE:
        holds = STALE if verdict.reason == STALE_CACHE else TARGET_UNREADABLE
    elif verdict.kind == DISABLED:
        holds = STOPPED
    else:
        holds = SHARED_PODS if verdict.reason == AMBIGUOUS_SELECTOR else INVALID_SELECTOR
    return Stage(HALT, None, holds=holds)


def restraints(found: Restrained, count: int) -> Iterator[Stage]:
    """Yields windows, policies, minimum and maximum. `count` is that after all of them."""
    yield Stage(WINDOWS, found.stabilized, holds="" if found.deciding is None else STABILIZATION, restrained=found)
    limiting, limit = limit_of(found)
    holds = limit if found.limits_hold else ""
    if limiting == POLICIES:
        # From zero, the minimum overrules the policies.
        yield Stage(POLICIES, found.replicas, found.limit, holds if count == found.replicas else "")
    else:
        yield Stage(POLICIES, found.stabilized)
    if count != found.replicas:
        yield Stage(BOUNDS, count, f"the minimum is {count}", MINIMUM)
    elif limiting == BOUNDS:
        yield Stage(BOUNDS, count, found.limit, holds)
    else:
        yield Stage(BOUNDS, count)


def budgeted(found: Budgeted, asked: int | None) -> Stage:
    """Returns the budget that the HPA shares. `asked` is what the metrics ask for, None where they do not decide.

    A budget that only cuts what a window holds does not hold the count.
    """
    if not found.held:
        return Stage(BUDGET, found.replicas)
    holds = SHARED_BUDGET if asked is None or found.replicas < asked else ""
    return Stage(BUDGET, found.replicas, found.holding, holds)


def spared(found: Spared) -> Stage:
    """Returns the floor at the busy pods."""
    if not found.held:
        return Stage(BUSY, found.replicas)
    return Stage(BUSY, found.replicas, f"{found.holding}: hpad.io/keep-busy keeps {found.replicas}", BUSY_PODS)
