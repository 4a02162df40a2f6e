"""The request log for tests: every write, and counts of all requests."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Write:
    """One writing request. `status` is the HTTP code of the response."""

    time: datetime
    verb: str
    resource: str
    subresource: str
    path: str
    user_agent: str
    status: int


class RequestLog:
    """`writes` in order, and `requests` by (verb, resource, subresource), e.g. ("get", "deployments", "scale")."""

    def __init__(self, *, keeps_writes: bool = True) -> None:
        self.keeps_writes = keeps_writes
        self.writes: list[Write] = []
        self.requests: Counter[tuple[str, str, str]] = Counter()

    def count(self, verb: str | None = None, resource: str | None = None, subresource: str | None = None) -> int:
        """Counts matching requests; None matches every value, `""` means no subresource."""
        query = (verb, resource, subresource)
        return sum(
            number
            for key, number in self.requests.items()
            if all(expected in (None, actual) for expected, actual in zip(query, key, strict=True))
        )

    def clear(self) -> None:
        self.writes.clear()
        self.requests.clear()
