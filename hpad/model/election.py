"""How a leader is elected among several hpads: the figures of Kubernetes' own components and their rules."""

from datetime import timedelta

import msgspec

from hpad.model import duration

JITTER = 1.2
"""Candidates wait one to 1 + JITTER retry periods between two tries (client-go: JitterFactor)."""
LEASES = "leases"
_SECOND = timedelta(seconds=1)


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Off by default; the other defaults are those of kube-controller-manager's `--leader-elect-*`, but for the name.

    `lease_duration`: how long others respect a Lease that they do not see renewed. `renew_deadline`: how long after its
    last renewal a leader goes on working. `retry_period`: how often a leader renews, and (with jitter) a candidate
    looks. `name` and `namespace` are the Lease's.
    """

    enabled: bool = False
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    name: str = "hpad"
    namespace: str = "kube-system"


def problems(election: Election) -> list[str]:
    """What is wrong with the figures, a sentence each that begins with a field's name (client-go's rules).

    One is our own: a Lease holds whole seconds, so that a fraction would be cut off behind the leader's back.
    """
    lease, deadline, retry = election.lease_duration, election.renew_deadline, election.retry_period
    found = []
    if lease % _SECOND or lease < _SECOND:
        found.append(f"lease_duration: {duration.write(lease)} is not a whole number of seconds, as a Lease needs it")
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
    return found
