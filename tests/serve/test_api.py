"""The JSON API v1: its answers and errors, requested by HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from support import api_world, http_server
from support.api_world import QUEUE, World, hpa, scaled_up
from support.engine import Workload, external, series

from hpad.api.hpa import KIND, from_builtins
from hpad.api.metadata import Key
from hpad.api.text import CONTROLS
from hpad.election.leader import KnownReplica
from hpad.engine.outlook import outlook
from hpad.engine.outlook.types import Outlook
from hpad.engine.turn import Reconcile
from hpad.engine.view import ScaleError
from hpad.serve import api
from hpad.serve.api_types import Status
from hpad.settings.model import Serving
from hpad.sources.limits import SourceReport

WEB = "hpas/default/web"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with api_world.opened() as made:
        yield made


async def test_the_summary_of_an_hpa(world: World) -> None:
    world.decided(scaled_up())
    status, answer = await world.get("hpas")
    assert status == 200
    assert (answer["total"], "continue" in answer) == (1, False)
    [item] = answer["items"]
    assert item["target"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    # 95 / 10 per replica is 10 replicas; the default policies allow 2 + 4.
    assert (item["currentReplicas"], item["desiredReplicas"], item["minReplicas"], item["maxReplicas"]) == (2, 6, 1, 10)
    assert item["metrics"] == [{"address": "queue", "proposal": 10, "current": "47.5", "target": "10", "ratio": 4.75}]
    last = item["lastDecision"]
    assert (last["time"], last["action"], last["heldBy"]) == ("2026-01-01T12:00:00Z", "scale_up", "scale_up_limit")
    assert last["sentence"].startswith("scale web from 2 to 6: ")
    assert "error" not in last
    assert item["states"] == ["limited"]
    assert answer["counts"] == {
        "failing": 0,
        "atMax": 0,
        "limited": 1,
        "fallback": 0,
        "competing": 0,
        "paused": 0,
        "shadow": 0,
        "dryRun": 0,
    }


async def test_an_autoscaler_beside_an_hpa_of_its_name(world: World) -> None:
    work = scaled_up()
    world.decided(work)
    work.reconcile(series(5), after=60)
    world.decided(work, kind="Autoscaler")
    _, first = await world.get("hpas?limit=1")
    _, second = await world.get(f"hpas?limit=1&continue={first['continue']}")
    hpa, autoscaler = (*first["items"], *second["items"])
    assert "continue" not in second
    assert [(each["kind"], each["name"]) for each in (hpa, autoscaler)] == [(KIND, "web"), ("Autoscaler", "web")]
    assert (hpa["currentReplicas"], autoscaler["currentReplicas"]) == (2, 6)
    for filters in ("hpa=default/autoscaler/web", "kind=Autoscaler", "search=autoscaler/web"):
        assert (await world.get(f"hpas?{filters}"))[1]["items"] == [autoscaler], filters
    assert (await world.get("hpas?search=default/web"))[1]["total"] == 2

    for kind, count in ((KIND, 2), ("Autoscaler", 6)):
        asked = "" if kind == KIND else f"?kind={kind}"
        _, detail = await world.get(f"{WEB}{asked}")
        _, history = await world.get(f"{WEB}/history{asked}")
        _, decision = await world.get(f"{WEB}/decision{asked}")
        _, recording = await world.get(f"{WEB}/recording{asked}")
        for each in (detail, detail["trace"], *history["items"], decision, decision["trace"]):
            assert (each["kind"], each["name"]) == (kind, "web")
        assert [each["current"] for each in history["items"]] == [count]
        assert [each["hpa"]["kind"] for each in recording["scenarios"]] == [kind]


async def test_an_object_of_the_other_kind_is_named(world: World) -> None:
    world.decided(scaled_up(), kind="Autoscaler")
    world.decided(scaled_up(), "api")
    error = "no HPA default/web; did you mean default/autoscaler/web (kind=Autoscaler)?"
    assert await world.get(WEB) == (404, {"error": error})
    error = "no Autoscaler default/api; did you mean default/api (kind=HorizontalPodAutoscaler)?"
    assert await world.get("hpas/default/api?kind=Autoscaler") == (404, {"error": error})


async def test_a_summary_has_the_bounds_of_an_open_window(world: World) -> None:
    def decided() -> Workload:
        text = "* * * * * for 1h: min=4, max=6"
        work = Workload(external("queue", averageValue="10"), replicas=2, annotations={"hpad.io/schedule": text})
        work.reconcile(series(95))
        work.reconcile(series(95), after=15)
        return work

    world.decided(await asyncio.to_thread(decided))  # it reads the file of a time zone
    _, answer = await world.get("hpas")
    [item] = answer["items"]
    assert (item["minReplicas"], item["maxReplicas"], item["currentReplicas"]) == (4, 6, 4)
    assert "atMax" in item["states"], "the window allows no more than 6"


async def test_a_summary_in_shadow_mode_has_both_counts(world: World) -> None:
    work = Workload(external("queue", averageValue="10"), replicas=2, annotations={"hpad.io/mode": "shadow"})
    work.reconcile(series(95))
    world.decided(work)
    _, answer = await world.get("hpas")
    [item] = answer["items"]
    assert (item["currentReplicas"], item["desiredReplicas"], item["shadowReplicas"]) == (2, 2, 6)
    assert item["states"] == ["limited", "shadow"]


async def test_before_the_first_decision_a_summary_has_the_values_of_the_status(world: World) -> None:
    value = {"metric": {"name": "queue"}, "current": {"averageValue": "47500m"}}
    status = {
        "currentReplicas": 2,
        "desiredReplicas": 2,
        "currentMetrics": [{"type": "External", "external": value}],
    }
    world.source.put(hpa("web", metrics=[QUEUE], status=status))
    _, answer = await world.get("hpas")
    [item] = answer["items"]
    assert item["metrics"] == [{"address": "queue", "current": "47500m", "target": "10"}]
    assert "lastDecision" not in item
    detail = (await world.get(WEB))[1]
    assert (detail["sentence"], detail["outlook"]) == ("", [])


async def test_one_hpa_with_its_trace(world: World) -> None:
    world.decided(scaled_up())
    status, answer = await world.get(WEB)
    assert status == 200
    assert answer["trace"]["policies"]["allows"] == 6
    assert answer["sentence"] == answer["lastDecision"]["sentence"] == answer["trace"]["sentence"]
    assert answer["specMetrics"][0]["external"]["target"] == {"type": "AverageValue", "averageValue": "10"}
    assert answer["currentMetrics"][0]["external"]["current"] == {"averageValue": "47500m"}
    assert answer["behavior"]["scaleUp"]["selectPolicy"] == "Max"
    assert [each["type"] for each in answer["conditions"]] == ["AbleToScale", "ScalingActive", "ScalingLimited"]
    assert answer["annotationErrors"] == {}
    assert answer["owner"] == (await world.get("replicas"))[1]["self"]
    # The four pods and the 100 % of 15 s are used up; then the policies allow 6 + 6.
    step, shrinking = answer["outlook"]
    assert step == {
        "text": "6 -> 10 once the scaleUp policies allow it at 12:00:15Z, if queue still wants 10",
        "kind": "step",
        "at": "2026-01-01T12:00:15Z",
        "rest": ", if queue still wants 10",
        "replicas": 10,
    }
    # 50 / 10 per replica are 5 replicas, and more than 50 are 6.
    assert shrinking["thresholds"] == [{"metric": "queue", "relation": "atMost", "amount": "50", "pods": 6}]


async def test_the_current_metrics_are_those_of_the_last_decision(world: World) -> None:
    """Those of the status may be older, with `status_refresh`."""
    done = world.decided(scaled_up())
    older = from_builtins({"status": {"desiredReplicas": 2}}).status
    world.source.put(msgspec.structs.replace(done.view.hpa, status=older))
    _, answer = await world.get(WEB)
    assert answer["currentMetrics"][0]["external"]["current"] == {"averageValue": "47500m"}
    assert answer["metrics"][0]["current"] == "47.5"


async def test_without_measured_metrics_the_current_metrics_are_those_of_the_status(world: World) -> None:
    """The target cannot be read: Kubernetes leaves the values of an earlier reconcile in the status."""
    work = scaled_up()
    work.reconcile(after=15, scale=None, scale_error=ScaleError("no such target"))
    world.decided(work)
    _, answer = await world.get(WEB)
    assert answer["currentMetrics"][0]["external"]["current"] == {"averageValue": "47500m"}


async def test_errors_in_annotations_have_the_text_of_the_condition(world: World) -> None:
    work = Workload(QUEUE, replicas=2, annotations={"hpad.io/fallback": "other=hold"})
    work.reconcile(series(20))
    world.decided(work)
    _, answer = await world.get(WEB)
    text = "there is no metric 'other' here; there are queue"
    assert answer["annotationErrors"] == {"hpad.io/fallback": text}
    [message] = [each["message"] for each in answer["conditions"] if each["type"] == "HpadAnnotationsValid"]
    assert message == f"annotation hpad.io/fallback: {text}"


async def test_an_hpa_that_does_not_exist_is_a_404(world: World) -> None:
    for path in ("", "/history", "/decision"):
        assert await world.get(f"hpas/default/other{path}") == (404, {"error": "no HPA default/other"})


async def test_a_path_that_does_not_exist_is_a_404(world: World) -> None:
    error = "no path /api/v1/hpa; /api/v1/openapi.json describes all"
    assert await world.get("hpa") == (404, {"error": error})


async def test_the_history_and_past_decisions(world: World) -> None:
    work = Workload(QUEUE, replicas=2)
    for index, value in enumerate((20, 20, 60)):  # 60 / 10 per replica is 6 replicas
        work.reconcile(series(value), after=15 if index else 0)
        world.decided(work)
    status, answer = await world.get(f"{WEB}/history")
    assert status == 200
    assert [(entry["desired"], entry["turns"]) for entry in answer["items"]] == [(6, 1), (2, 2)]
    assert "trace" not in answer["items"][0]
    _, answer = await world.get(f"{WEB}/history?until=2026-01-01T12:00:29Z")
    assert [entry["desired"] for entry in answer["items"]] == [2]
    _, answer = await world.get(f"{WEB}/history?since=2026-01-01T12:00:16Z")
    assert [entry["desired"] for entry in answer["items"]] == [6]
    _, then = await world.get(f"{WEB}/decision?at=2026-01-01T12:00:20Z")
    assert (then["desired"], then["trace"]["replicas"]["desired"]) == (2, 2)
    assert then["outlook"][0]["text"] == "grows once queue is above 22 (11 per replica; now 20)"
    assert "notes" not in then
    _, now = await world.get(f"{WEB}/decision")
    assert (now["desired"], now["trace"]["replicas"]["desired"]) == (6, 6)
    assert [each["kind"] for each in now["outlook"]] == ["growth", "shrinking"]


async def test_a_page_of_the_history_begins_before_the_last_entry_of_the_previous_one(world: World) -> None:
    work = Workload(QUEUE, replicas=2)
    for count in (1, 2, 3, 4):
        work.reconcile(series(10 * count), after=15)
        world.decided(work)
    seen, token = [], ""
    while True:
        _, answer = await world.get(f"{WEB}/history?traces=true&limit=2{token}")
        seen += [entry["trace"]["metrics"][0]["proposal"] for entry in answer["items"]]
        if "continue" not in answer:
            break
        if not token:  # a decision after the first page is not part of the second one
            work.reconcile(series(90), after=15)
            world.decided(work)
        token = f"&continue={answer['continue']}"
    assert seen == [4, 3, 2, 1]


async def test_a_decision_before_the_history_is_a_404_that_says_where_it_begins(world: World) -> None:
    world.decided(scaled_up())
    error = "the decision history of the HPA default/web begins at 2026-01-01T12:00:00Z"
    assert await world.get(f"{WEB}/decision?at=2026-01-01T11:59:59Z") == (404, {"error": error})
    world.source.put(hpa("new"))
    error = "there is no decision for the HPA default/new yet"
    assert await world.get("hpas/default/new/decision") == (404, {"error": error})
    assert await world.get("hpas/default/new/history") == (200, {"items": []})


async def test_version_sources_and_replicas() -> None:
    report = SourceReport(name="rabbit", adapter="rabbitmq", state="ok", calls=3)
    async with http_server.opened(Serving(), reports=[report]) as opened:
        texts = [await http_server.get(f"{opened.url}/api/v1/{name}") for name in ("version", "sources", "replicas")]
    version, sources, replicas = [http_server.decoded(text) for _, text in texts]
    assert (version["kubernetes"], version["api"]) == ("1.36", "v1")
    assert [(each["name"], each["state"], each["calls"]) for each in sources["items"]] == [("rabbit", "ok", 3)]
    assert replicas["items"] == [{"identity": replicas["self"], "role": "single", "owned": 0}]


async def test_the_status_has_activity_and_problems() -> None:
    mode = Status(doing="Deciding for 0 HPAs", facts=("standby", "version 1"), dry_run=True)
    server = http_server.opened(Serving(), mode=mode, problems=lambda: ["p"], unready=lambda: ["u"])
    async with server as opened:
        answer = http_server.decoded((await http_server.get(f"{opened.url}/api/v1/status"))[1])
    assert answer == {
        **{"doing": "Deciding for 0 HPAs", "facts": ["standby", "version 1"], "dryRun": True},
        **{"problems": ["p"], "unready": ["u"]},
    }


async def test_a_decision_during_the_answer_is_in_no_part_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work = scaled_up()
    before = world.decided(work)

    def slow(done: Reconcile) -> tuple[Outlook, ...]:
        work.reconcile(series(10))
        world.decided(work)
        return outlook(done)

    monkeypatch.setattr(api, "outlook", slow)
    _, answer = await world.get(WEB)
    assert world.decisions.last(Key("default", "web")) is not before
    assert "95 in total" in answer["sentence"]
    assert answer["trace"]["sentence"] == answer["sentence"]


async def test_notes_name_competing_writers_and_mistakes_in_annotations(world: World) -> None:
    noted = [
        {"type": kind, "status": "True", "message": f"about {kind}"}
        for kind in ("CompetingWriters", "AbleToScale", "HpadAnnotationsValid")
    ]
    world.source.put(hpa("web", status={"desiredReplicas": 1, "conditions": noted}))
    [item] = (await world.get("hpas"))[1]["items"]
    assert item["notes"] == ["about CompetingWriters", "about HpadAnnotationsValid"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("hpas?limit=0", "limit: '0' is not a whole number from 1 to 5000"),
        ("hpas?limit=5001", "limit: '5001' is not a whole number from 1 to 5000"),
        ("hpas?limit=x", "limit: 'x' is not a whole number from 1 to 5000"),
        ("hpas?limit=1&limit=2", "limit is given 2 times; it may be given once"),
        (
            "hpas?state=failed",
            "state: 'failed' is not one of failing, atMax, limited, fallback, competing, paused, shadow, dryRun"
            ' (did you mean "failing"?)',
        ),
        (
            "hpas?sort=zzz",
            "sort: 'zzz' is not one of name, failing, target, state, current, desired, min, max, lastDecision,"
            " lastScaleTime, each with a minus sign for the reverse",
        ),
        *(
            (
                f"hpas?hpa={wrong}",
                f"hpa: '{wrong}' is not namespace/name of an HPA, such as shop/web, or of an Autoscaler, such as"
                " shop/autoscaler/web",
            )
            for wrong in ("web", "shop/", "/web", "a/b/c")
        ),
        ("hpas?continue=name.x", "continue: 'name.x' is not the `continue` of a previous page"),
        (
            "hpas?stat=failing",
            "unknown query parameter 'stat' (did you mean \"state\"?): this path takes hpa, namespace, kind,"
            " search, selector, state, sort, limit, continue",
        ),
        ("version?x=%1b", "unknown query parameter 'x': this path takes none"),
        (f"{WEB}?at=x", "unknown query parameter 'at': this path takes kind"),
        (f"{WEB}/history?since=yesterday", "since: 'yesterday' is not a time such as 2026-01-31T12:00:00Z"),
        (
            f"{WEB}/history?until=2026-02-30T00:00:00Z",
            "until: '2026-02-30T00:00:00Z' is not a time such as 2026-01-31T12:00:00Z",
        ),
        (
            f"{WEB}/decision?at=2026-01-31T12:00:00+01:00",
            "at: '2026-01-31T12:00:00 01:00' is not a time such as 2026-01-31T12:00:00Z; in a query, + is written %2B",
        ),
        (f"{WEB}/history?traces=1", "traces: '1' is not one of true, false"),
        (f"{WEB}/history?continue=-1", "continue: '-1' is not the `continue` of a previous page"),
    ],
)  # fmt: skip
async def test_errors_in_a_query_name_the_parameter_its_value_and_what_would_be_right(
    world: World, query: str, error: str
) -> None:
    world.decided(scaled_up())
    assert await world.get(query) == (400, {"error": error})


async def test_other_methods_are_refused(world: World) -> None:
    for path in ("hpas", "decisions"):
        async with world.session.post(f"{world.server.url}/api/v1/{path}") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")
            assert await response.json() == {"error": "405: Method Not Allowed"}


async def test_a_client_without_a_token_gets_no_answer_of_any_path(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("secret")
    paths = ("hpas", WEB, f"{WEB}/history", f"{WEB}/decision", "sources", "replicas", "version", "openapi.json")
    async with api_world.opened(Serving(token_file=tmp_path / "tokens")) as world:
        world.decided(scaled_up())
        for path in (*paths, "decisions", "nothing", "hpas?limit=x"):
            assert await world.get(path) == (401, {"error": "401: Unauthorized"}), path
        for path in paths:
            url = f"{world.server.url}/api/v1/{path}"
            assert (await http_server.get(url, token="secret"))[0] == 200, path


async def test_answers_have_no_control_characters(world: World) -> None:
    odd = "\x1b[2J\u202eowned\x9b\n"
    condition = {"type": "ScalingActive", "status": "False", "reason": odd, "message": odd}
    world.source.put(hpa("web", target=odd, status={"conditions": [condition]}))
    for path in ("hpas", WEB, "nothing%1b[2Jowned", "hpas?owned%1b=1", "hpas/default/owned%1b"):
        async with world.session.get(f"{world.server.url}/api/v1/{path}") as response:
            text = await response.text()
        assert "owned" in text
        assert not any(character in CONTROLS or character == "\n" for character in text), path


async def test_another_process_that_decides_is_named_where_no_decision_is_in_memory(world: World) -> None:
    world.source.put(hpa("web"))
    text = "no decision for the HPA default/web is in memory"
    assert await world.get(f"{WEB}/recording") == (404, {"error": text})
    world.others = [KnownReplica("hpad-2", "standby"), KnownReplica("hpad-1", "leader")]
    assert await world.get(f"{WEB}/recording") == (404, {"error": f"{text}; hpad-1 decides for it"})
