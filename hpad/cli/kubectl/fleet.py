"""The replicas of hpad that decide, as one Reader.

With leader election one replica decides, and the standbys know no decision. While the leader changes, several may
answer, which is combined: of two rows of an HPA the one with the newer decision counts. Past decisions are those of all
replicas, since any of them may have decided before.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from hpad.cli.fetch import Reader, Refusal
from hpad.cli.kubectl import past
from hpad.cli.output import Failure

REPLICAS_PATH: Final = "/api/v1/replicas"
_ALONE: Final = ("leader", "single")
_UNKNOWN: Final = ""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Answered(NamedTuple):
    """What one replica answers; `replica` names it."""

    replica: str
    answer: Any


class Fleet:
    """A Reader that asks several replicas, each a Reader whose text names it.

    `replicas` are those that decide, `others` those that may have decided before. `warn` gets what goes wrong
    meanwhile.
    """

    def __init__(self, replicas: Sequence[Reader], warn: Callable[[str], None], others: Sequence[Reader] = ()) -> None:
        self.replicas = replicas
        self._others = others
        self._warn = warn

    def get(self, path: str) -> Any:
        """Asks each replica, and combines what they answer. Raises Failure if all fail."""
        if past.is_page(path):
            return past.merged(path, lambda query: self._answers(query, [*self.replicas, *self._others]))
        if past.is_decision(path):
            return past.latest(self._answers(path, [*self.replicas, *self._others]))
        return combined(self._answers(path, self.replicas))

    def each(self, path: str) -> list[Answered]:
        """Returns what each replica that decides answers, without those that fail; raises Failure if all fail."""
        return self._asked(path, self.replicas)

    def _answers(self, path: str, replicas: Sequence[Reader]) -> list[Any]:
        return [each.answer for each in self._asked(path, replicas)]

    def _asked(self, path: str, replicas: Sequence[Reader]) -> list[Answered]:
        found: list[Answered] = []
        failures: list[Failure] = []
        for replica in replicas:
            try:
                found.append(Answered(str(replica), replica.get(path)))
            except Failure as failure:
                failures.append(failure)
        if not found:
            raise failures[0]
        for each in failures:
            if not isinstance(each, Refusal):  # a Refusal is an answer, such as 404 where no decision is known
                self._warn(str(each))
        return found


def deciding(replicas: Sequence[Reader], warn: Callable[[str], None]) -> Fleet:
    """Returns the Fleet of the replicas that decide; raises Failure if none of `replicas` answers.

    Asks each for its role until one decides alone. If all are standbys, as while the leader changes, all are kept.
    """
    pending, failures = list(replicas), []
    others: list[Reader] = []
    while pending:
        replica = pending.pop(0)
        try:
            role, leader = _role(replica)
        except Failure as failure:
            failures.append(str(failure))
            continue
        if role in _ALONE:
            return Fleet([replica], warn, [*others, *pending])
        others.append(replica)
        pending.sort(key=lambda each: not _is_pod_of(leader, str(each)))
    if not others:
        raise Failure("; ".join(failures))
    for text in failures:
        warn(text)
    return Fleet(others, warn)


class Deciding:
    """A Reader of the replicas that decide at the time of each request, for commands that outlast a leader."""

    def __init__(self, replicas: Sequence[Reader], warn: Callable[[str], None]) -> None:
        self._replicas = replicas
        self._warn = warn

    def get(self, path: str) -> Any:
        """See Reader.get."""
        return deciding(self._replicas, self._warn).get(path)


def _role(replica: Reader) -> tuple[str, str]:
    """Returns the role of a replica, and the identity of the leader that it knows; "" for what it does not tell."""
    try:
        known = replica.get(REPLICAS_PATH)
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        return _UNKNOWN, ""
    items = known.get("items") or ()
    roles = {each.get("identity", ""): each.get("role", _UNKNOWN) for each in items}
    leader = next((identity for identity, role in roles.items() if role in _ALONE), "")
    return roles.get(known.get("self"), _UNKNOWN), leader


def _is_pod_of(identity: str, name: str) -> bool:
    """Whether the host name in an identity (`HOST_UUID`) is the name of this pod, as it usually is."""
    return bool(identity) and identity.rpartition("_")[0] == name.rpartition("/")[2]


def combined(answers: Sequence[Any]) -> Any:
    """Combines the answers of several replicas to one request: lists of HPAs row by row, else takes the newest."""
    first = answers[0]
    if len(answers) > 1 and all(isinstance(each, dict) for each in answers):
        return {**first, "items": _rows(answers)} if "total" in first else max(answers, key=_newest)
    return first


def _rows(answers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns one row per HPA, in the order of the first answer that has it."""
    rows: dict[tuple[str, str], Mapping[str, Any]] = {}
    for answer in answers:
        for row in answer["items"]:
            key = row["namespace"], row["name"]
            rows[key] = max(rows.get(key, row), row, key=_newest)
    return list(rows.values())


def _newest(answer: Mapping[str, Any]) -> datetime:
    """Returns the time of the newest decision in an answer."""
    if "items" in answer:
        return max(map(_newest, answer["items"]), default=_NEVER)
    time = (answer.get("lastDecision") or {}).get("time") or answer.get("ended")
    return datetime.fromisoformat(time) if isinstance(time, str) else _NEVER


def is_decided(answer: Any) -> bool:
    """Whether an answer can be that of a replica that decides: it has a decision of each HPA, or used a source."""
    if not isinstance(answer, dict):
        return True
    items = answer.get("items")
    if items is None:
        return "trace" in answer or "lastDecision" in answer or "namespace" not in answer
    if "total" in answer:
        return all("lastDecision" in item for item in items)
    return any(item.get("asked") or "ended" in item for item in items)
