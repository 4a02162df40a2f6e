"""The settings of leader election, and the rules between them."""

from datetime import timedelta
from functools import partial
from typing import Annotated

import msgspec

from hpad.api import duration
from hpad.api.problem import Problem
from hpad.settings import parsers
from hpad.settings.rows import Group, Setting

JITTER = 1.2
"""Candidates wait one to 1 + JITTER retry periods between two attempts (client-go, leaderelection.go: JitterFactor)."""
_SECOND = timedelta(seconds=1)
_MAX_LEASE_DURATION = timedelta(seconds=2**31 - 1)
_MIN_RETRY_PERIOD = timedelta(milliseconds=10)
_setting = partial(Setting, group=Group.ELECTION)


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Leader election, off by default. Other defaults, except `name`, are those of kube-controller-manager.

    `lease_duration`: how long other replicas respect a Lease that is not renewed. `renew_deadline`: how long after its
    last renewal a leader continues to work. `retry_period`: how often a leader renews and, with jitter, a candidate
    reads the Lease. `name` and `namespace` are those of the Lease.
    """

    enabled: Annotated[
        bool,
        _setting(
            parsers.flag,
            "of several replicas that could act on the same HPAs, only the leader works (on by default in "
            "kube-controller-manager)",
            name="leader_elect",
            common=True,
        ),
    ] = False
    lease_duration: Annotated[
        timedelta,
        _setting(
            parsers.positive_duration,
            "time without a renewal after which another replica takes over",
            name="leader_elect_lease_duration",
        ),
    ] = timedelta(seconds=15)
    renew_deadline: Annotated[
        timedelta,
        _setting(
            parsers.positive_duration,
            "time without a renewal after which the leader stops working",
            name="leader_elect_renew_deadline",
        ),
    ] = timedelta(seconds=10)
    retry_period: Annotated[
        timedelta,
        _setting(
            parsers.positive_duration,
            "time between renewals of the Lease, or between attempts to acquire it",
            name="leader_elect_retry_period",
        ),
    ] = timedelta(seconds=2)
    name: Annotated[
        str,
        _setting(
            parsers.object_name,
            "name of the Lease; hpads with different namespaces need different ones",
            name="leader_elect_resource_name",
        ),
    ] = "hpad"
    namespace: Annotated[
        str,
        _setting(
            parsers.namespace,
            "namespace of the Lease",
            name="leader_elect_resource_namespace",
        ),
    ] = "kube-system"


def election_problems(election: Election) -> list[Problem]:
    """Returns the violated rules between the durations.

    The rules on lease duration, deadline and jitter are client-go's (leaderelection.go: NewLeaderElector). hpad also
    requires whole seconds of at most 32 bits, since a Lease holds nothing else, and a minimal retry period, since
    renewals without a pause would only load the API server.
    """
    lease, deadline, retry = election.lease_duration, election.renew_deadline, election.retry_period
    written = {each: duration.write(each) for each in (lease, deadline, retry)}
    found: list[Problem] = []
    if lease % _SECOND or lease < _SECOND:
        found.append(
            Problem("lease_duration", f"{written[lease]} is not a whole number of seconds, as a Lease requires")
        )
    if lease > _MAX_LEASE_DURATION:
        maximum = _MAX_LEASE_DURATION // _SECOND
        found.append(Problem("lease_duration", f"{written[lease]} is more than a Lease can hold, {maximum}s"))
    if retry < _MIN_RETRY_PERIOD:
        found.append(Problem("retry_period", f"{written[retry]} is less than {duration.write(_MIN_RETRY_PERIOD)}"))
    if lease <= deadline:
        text = f"is not more than the renew deadline of {written[deadline]}: work must end before others may take over"
        found.append(Problem("lease_duration", f"{written[lease]} {text}"))
    if deadline <= retry * JITTER:
        text = f"is not more than {JITTER} times the retry period of {written[retry]}: a leader needs a second attempt"
        found.append(Problem("renew_deadline", f"{written[deadline]} {text}"))
    return found
