"""Which replicas of hpad are asked, and how their answers are combined."""

import urllib.parse
from datetime import datetime
from typing import Any

import pytest

from hpad.cli.fetch import Refusal
from hpad.cli.kubectl.fleet import Fleet, combined, deciding, is_decided
from hpad.cli.kubectl.proxied import Sampled
from hpad.cli.output import Failure

Json = dict[str, Any]
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"


class Replica:
    """A Reader with these answers by path; an exception is raised. `roles` are those that it knows, its own first."""

    def __init__(self, name: str, answers: Json | None = None, **roles: str) -> None:
        self.name = name
        self.answers = answers or {}
        self.asked: list[str] = []
        if roles:
            items = [{"identity": f"{each.replace('_', '-')}_uuid", "role": role} for each, role in roles.items()]
            self.answers["/api/v1/replicas"] = {"items": items, "self": items[0]["identity"]}

    def __str__(self) -> str:
        return f"pod hpad/{self.name}"

    def get(self, path: str) -> Any:
        self.asked.append(path)
        answer = self.answers.get(path, Refusal("404", 404))
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def choose(*replicas: Replica) -> tuple[list[str], list[str]]:
    """Returns the names of the replicas that decide, and the warnings."""
    warnings: list[str] = []
    fleet = deciding(replicas, warnings.append)
    return [str(each).rpartition("/")[2] for each in fleet.replicas], warnings


def row(name: str, time: str | None = None) -> Json:
    return {"namespace": "shop", "name": name, "target": {}, **({"lastDecision": {"time": time}} if time else {})}


def hpas(*rows: Json) -> Json:
    return {"items": list(rows), "total": len(rows), "counts": {}}


def test_the_leader_is_asked_alone() -> None:
    a, b = Replica("hpad-a", hpad_a="standby", hpad_b="leader"), Replica("hpad-b", hpad_b="leader", hpad_a="standby")
    c = Replica("hpad-c", hpad_c="standby", hpad_b="leader")
    assert choose(a, c, b) == (["hpad-b"], [])
    assert c.asked == []


def test_a_leader_whose_host_name_is_not_its_pod_is_found_too() -> None:
    a, b = Replica("a", node_1="standby", node_2="leader"), Replica("b", node_2="leader")
    assert choose(a, b) == (["b"], [])


def test_a_single_replica_is_asked() -> None:
    assert choose(Replica("a", a="single"), Replica("b", b="single")) == (["a"], [])


def test_without_a_leader_all_standbys_are_asked() -> None:
    assert choose(Replica("a", a="standby"), Replica("b", b="standby")) == (["a", "b"], [])


def test_replicas_that_do_not_tell_their_role_are_all_asked() -> None:
    assert choose(Replica("a"), Replica("b")) == (["a", "b"], [])


def test_a_replica_that_does_not_answer_is_left_out_with_a_warning() -> None:
    broken = Replica("a", {"/api/v1/replicas": Failure("pod hpad/a: connection refused")})
    assert choose(broken, Replica("b", b="standby")) == (["b"], ["pod hpad/a: connection refused"])


def test_if_none_answers_each_reason_is_given() -> None:
    one, other = Failure("a: refused"), Refusal("b: 401", 401)
    with pytest.raises(Failure, match=r"^a: refused; b: 401$"):
        choose(Replica("a", {"/api/v1/replicas": one}), Replica("b", {"/api/v1/replicas": other}))


def test_of_several_rows_the_newest_decision_counts() -> None:
    answers = [hpas(row("a", OLD), row("b"), row("c")), hpas(row("a", NEW), row("b", OLD), row("c"), row("d"))]
    expected = hpas(row("a", NEW), row("b", OLD), row("c"), row("d"))["items"]
    assert combined(answers)["items"] == expected
    assert combined(answers[::-1])["items"] == [expected[0], expected[1], expected[2], expected[3]]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (row("a"), row("a", OLD)),
        (row("a", OLD), row("a", NEW)),
        ({"items": []}, {"items": [{"ended": OLD}]}),
        ({"items": [{"ended": OLD}]}, {"items": [{"ended": NEW}, {"ended": OLD}]}),
    ],
)
def test_of_other_answers_the_newest_counts(older: Json, newer: Json) -> None:
    assert combined([older, newer]) == combined([newer, older]) == newer


def test_one_that_refuses_is_passed_over_and_one_that_fails_is_warned_of() -> None:
    warnings: list[str] = []
    replicas = [
        Replica("a", {"/x": Refusal("no decision yet", 404)}),
        Replica("b", {"/x": Failure("gone")}),
        Replica("c", {"/x": row("a", OLD)}),
    ]
    assert Fleet(replicas, warnings.append).get("/x") == row("a", OLD)
    assert warnings == ["gone"]
    with pytest.raises(Refusal, match="no decision yet"):
        Fleet(replicas[:2], warnings.append).get("/x")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (hpas(), True),
        (hpas(row("a", OLD)), True),
        (hpas(row("a", OLD), row("b")), False),
        (row("a"), False),
        (row("a", OLD), True),
        ({"items": [{"name": "s", "asked": 0}]}, False),
        ({"items": [{"name": "s", "asked": 3}]}, True),
        ({"items": [{"namespace": "n", "name": "a", "ended": OLD}]}, True),
        ({"items": []}, False),
        ({"version": "0.1.0"}, True),
    ],
)
def test_an_answer_shows_whether_the_replica_decides(answer: Json, expected: bool) -> None:
    assert is_decided(answer) is expected


def sampled(*answers: Any) -> Sampled:
    """Returns the Reader of a Service that gives these answers, one after the other."""
    return Sampled(Replica("s", {"/x": list(answers)}))  # type: ignore[arg-type]


def test_a_service_is_asked_until_a_replica_that_decides_answers() -> None:
    service = sampled(row("a"), Refusal("none yet", 404), row("a", OLD), row("a", NEW))
    assert service.get("/x") == row("a", OLD)
    history = {"items": [{"ended": OLD}]}
    assert sampled({"items": []}, history).get("/x") == history


def test_a_service_whose_replicas_have_decided_nothing_is_asked_eight_times() -> None:
    assert sampled(*[row("a")] * 8).get("/x") == row("a")
    assert sampled(*[row("a")] * 7, row("a", OLD)).get("/x") == row("a", OLD)
    assert sampled(*[row("a")] * 8, row("a", OLD)).get("/x") == row("a")
    with pytest.raises(Refusal, match="none yet"):
        sampled(*[Refusal("none yet", 404)] * 8).get("/x")
    with pytest.raises(Refusal, match="401"):
        sampled(Refusal("401", 401), row("a", OLD)).get("/x")


HISTORY = "/api/v1/hpas/shop/web/history"


class Historian:
    """A replica that has decided at these seconds; it answers as the API does."""

    def __init__(self, role: str, *seconds: int) -> None:
        self.role = role
        self.entries = [{"began": f"2026-01-01T00:00:{each:02}Z"} for each in sorted(seconds, reverse=True)]

    def get(self, path: str) -> Any:
        if path == "/api/v1/replicas":
            return {"items": [{"identity": "x", "role": self.role}], "self": "x"}
        place, _, text = path.partition("?")
        query = dict(urllib.parse.parse_qsl(text))
        until = datetime.fromisoformat(query.get("until") or query.get("at") or "9999-01-01T00:00:00Z")
        found = [each for each in self.entries if datetime.fromisoformat(each["began"]) <= until]
        if place.endswith("/decision"):
            if not found:
                raise Refusal("the decision history begins later", 404)
            return found[0]
        limit = int(query.get("limit", "100"))
        return {"items": found[:limit], **({"continue": "opaque"} if len(found) > limit else {})}


def began(page: Json) -> list[int]:
    return [int(each["began"][17:19]) for each in page["items"]]


def test_the_history_is_that_of_all_replicas_page_by_page() -> None:
    members = [Historian("leader", 1, 4, 6, 7), Historian("standby", 2, 3, 5), Historian("standby", 0)]
    fleet = deciding(members, pytest.fail)
    query, seen = {"limit": "3"}, []
    while True:
        page = fleet.get(f"{HISTORY}?{urllib.parse.urlencode(query)}")
        seen.append(began(page))
        if "continue" not in page:
            break
        query["continue"] = page["continue"]
    assert seen == [[7, 6, 5], [4, 3, 2], [1, 0]]
    assert began(fleet.get(HISTORY)) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_what_a_former_leader_decided_is_known() -> None:
    fleet = deciding([Historian("standby", 1, 2), Historian("leader", 5), Historian("standby", 3)], pytest.fail)
    assert began(fleet.get(HISTORY)) == [5, 3, 2, 1]
    at = "/api/v1/hpas/shop/web/decision?at=2026-01-01T00:00:0"
    found = [int(fleet.get(f"{at}{second}Z")["began"][17:19]) for second in (1, 2, 3, 4, 5, 6)]
    assert found == [1, 2, 3, 3, 5, 5]
    with pytest.raises(Refusal, match="the decision history begins later"):
        fleet.get(f"{at}0Z")


def test_the_continue_of_one_replica_is_its_own() -> None:
    fleet = deciding([Historian("single", 1, 2)], pytest.fail)
    assert fleet.get(f"{HISTORY}?limit=1")["continue"] == "opaque"
