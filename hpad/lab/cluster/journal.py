"""What the server was asked: every write, and a count of all requests, for tests to assert on."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Write:
    """One request that changes something. `status` is the HTTP code of the answer."""

    time: datetime
    verb: str
    resource: str
    subresource: str
    path: str
    user_agent: str
    status: int


class Journal:
    """`writes` in order, and `requests` by (verb, resource, subresource), e.g. ("get", "deployments", "scale")."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.requests: Counter[tuple[str, str, str]] = Counter()

    def count(self, verb: str | None = None, resource: str | None = None, subresource: str | None = None) -> int:
        """Requests that match what is given; None matches anything, `""` means no subresource."""
        wanted = (verb, resource, subresource)
        return sum(
            number
            for key, number in self.requests.items()
            if all(want in (None, have) for want, have in zip(wanted, key, strict=True))
        )

    def clear(self) -> None:
        self.writes.clear()
        self.requests.clear()
