"""How several hpads agree on who works: the figures of Kubernetes' own components and their rules.

One leads and the others stand by, or all of them share the HPAs (`shards`).
"""

from datetime import timedelta

import msgspec

from hpad.api import duration
from hpad.api.text import shown

JITTER = 1.2
"""Candidates wait one to 1 + JITTER retry periods between two tries (client-go: JitterFactor)."""
LEASES = "leases"
LONGEST_LABEL = 63
_TRIES = 4
_SECOND = timedelta(seconds=1)
_LONGEST = timedelta(seconds=2**31 - 1)
_LEAST_RETRY = timedelta(milliseconds=10)


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Off by default; the other defaults are those of kube-controller-manager's `--leader-elect-*`, but for the name.

    `lease_duration`: how long others respect a Lease that they do not see renewed. `renew_deadline`: how long after its
    last renewal a leader goes on working. `retry_period`: how often a leader renews, and (with jitter) a candidate
    looks. `name` and `namespace` are the Lease's. With `shards` the figures hold for each member's own Lease, and the
    Leases of members are called after the one they have in common.
    """

    enabled: bool = False
    shards: bool = False
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    name: str = "hpad"
    namespace: str = "kube-system"


def problems(election: Election) -> list[str]:
    """What is wrong with the figures, a sentence each that begins with a field's name (client-go's rules).

    Some are our own: a Lease holds whole seconds, of which a fraction would be cut off behind the leader's back, and no
    more than 32 bits do; and renewals without a pause between them would keep the API server busy and nothing else.
    """
    lease, deadline, retry = election.lease_duration, election.renew_deadline, election.retry_period
    found = []
    if lease % _SECOND or lease < _SECOND:
        found.append(f"lease_duration: {duration.write(lease)} is not a whole number of seconds, as a Lease needs it")
    if lease > _LONGEST:
        found.append(f"lease_duration: {duration.write(lease)} is more than a Lease can hold, {_LONGEST // _SECOND}s")
    if retry < _LEAST_RETRY:
        found.append(f"retry_period: {duration.write(retry)} is less than {duration.write(_LEAST_RETRY)}")
    if lease <= deadline:
        found.append(
            f"lease_duration: {duration.write(lease)} is not more than the renew deadline of"
            f" {duration.write(deadline)}: work must end before others may take over"
        )
    if deadline <= retry * JITTER:
        found.append(
            f"renew_deadline: {duration.write(deadline)} is not more than {JITTER} times the retry period of"
            f" {duration.write(retry)}: a leader needs at least one more try"
        )
    return [*found, *_problems_of_shards(election)] if election.shards else found


def _problems_of_shards(election: Election) -> list[str]:
    found = []
    if election.renew_deadline < election.retry_period * _TRIES:
        found.append(
            f"renew_deadline: {duration.write(election.renew_deadline)} is less than {_TRIES} times the retry period"
            f" of {duration.write(election.retry_period)}: with shards a member learns in two rounds that another died"
        )
    if len(election.name) > LONGEST_LABEL:
        found.append(
            f"resource_name: {shown(election.name)} has more than {LONGEST_LABEL} characters: with shards it is the "
            "value of a label"
        )
    return found
