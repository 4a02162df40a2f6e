"""Who leads, and who shares the HPAs, where there may be several hpads."""

from prometheus_client import registry

from hpad.telemetry.series import Series


class Sharing(Series):
    """Fed by whoever stands for election or has a share."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._leader = self._gauge(
            "leader_election_master_status", "1 while this process leads, 0 while it stands by", ["name"]
        )
        self._slow_renewals = self._counter(
            "leader_election_slowpath", "Renewals that had to read the Lease first", ["name"]
        )
        self._members = self._gauge("hpad_shard_members", "Members that share the HPAs, as this one sees it")
        self._owned = self._gauge("hpad_shard_hpas", "HPAs that this process acts on")
        self._handovers = self._counter("hpad_shard_handovers", "HPAs that changed hands", ["direction"])
        for direction in ("gained", "lost"):
            self._handovers.labels(direction)

    def leads(self, name: str, leading: bool) -> None:
        """Whether this process leads, by the name of the Lease."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        self._slow_renewals.labels(name).inc(times)

    def members(self, count: int) -> None:
        """How many members share the HPAs, ourselves included; 0 while we have no share."""
        self._members.set(count)

    def owned(self, count: int) -> None:
        """How many HPAs are ours."""
        self._owned.set(count)

    def handed_over(self, gained: int, lost: int) -> None:
        """So many HPAs have become ours, and so many are not any more, because of who shares them."""
        self._handovers.labels("gained").inc(gained)
        self._handovers.labels("lost").inc(lost)
