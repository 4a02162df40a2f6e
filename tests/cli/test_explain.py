"""`hpad explain`: what it asks, and what it prints. The lines of a decision are in tests/engine/test_render.py."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml
from support.engine import Workload, external, resource, series, used

from hpad.cli import fetch, main
from hpad.cli.fetch import Refusal
from hpad.cli.output import Failure
from hpad.engine.trace import Trace
from hpad.records.entry import first

Json = dict[str, Any]
HPA = "/api/v1/hpas/default/web"
NO_HPA = "no HPA default/web"


class Answers:
    """A Reader with fixed answers by path; a missing one is a 404 of hpad."""

    def __init__(self, answers: dict[str, Any], *, error: str = NO_HPA) -> None:
        self.answers = answers
        self.error = error
        self.asked: list[str] = []

    def __str__(self) -> str:
        return "http://hpad"

    def get(self, path: str) -> Any:
        self.asked.append(path)
        for known, answer in self.answers.items():
            if path.partition("?")[0] == known:
                return answer
        raise Refusal("404", 404, self.error)


def detail(made: Trace) -> Json:
    return {
        "sentence": "as its metrics ask",
        "trace": json.loads(msgspec.json.encode(made)),
        "outlook": [{"text": "5 -> 2 once the window frees", "kind": "step"}],
    }


def entry(web: Workload, **changes: Any) -> Json:
    """Returns the entry of the decision history that begins with the last decision."""
    assert web.done is not None
    return json.loads(msgspec.json.encode(first(web.done))) | changes


@pytest.fixture
def held() -> Workload:
    web = Workload(external("orders", averageValue="10"), replicas=5)
    web.reconcile(series(50))
    web.reconcile(series(20), after=60)
    return web


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `hpad explain` with the answers of a Reader."""

    def run(reader: Any, *arguments: str) -> int:
        monkeypatch.setattr("hpad.cli.client.reader", lambda args: reader)
        return main(["explain", *arguments])

    return run


Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


def test_a_trace_of_another_version_of_hpad(run: Run, held: Workload, capsys: Capture) -> None:
    found = detail(held.trace)
    del found["trace"]["time"]
    assert run(Answers({HPA: found}), "web") == 1
    assert capsys.readouterr() == (
        "",
        "hpad: http://hpad did not answer as hpad does (Object missing required field `time`): that is no hpad, or one "
        "of another version\n",
    )


def test_a_trace_without_counts(run: Run, held: Workload, capsys: Capture) -> None:
    """As any server may answer it."""
    found = detail(held.trace)
    for stages in ([], [stage | {"replicas": None} for stage in found["trace"]["stages"]]):
        found["trace"]["stages"] = stages
        assert run(Answers({HPA: found}), "web") == 0
        assert "Replicas:" in capsys.readouterr().out.splitlines()


def test_the_last_decision_and_what_comes_next(run: Run, held: Workload, capsys: Capture) -> None:
    assert run(Answers({HPA: detail(held.trace)}), "web") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "HPA:       default/web"
    assert printed[2].startswith("Time:      2026-01-01 12:01:00Z, ")
    assert printed[-1] == "  - 5 -> 2 once the window frees"


def test_notes_about_the_hpa(run: Run, held: Workload, capsys: Capture) -> None:
    notes = ["helm sets the replicas of the target, too", "annotation hpad.io/fallback: it is wrong"]
    more = {"dryRun": True, "notes": notes}
    run(Answers({HPA: detail(held.trace) | more}), "web")
    assert capsys.readouterr().out.splitlines()[3:6] == [
        "Note:      dry run: hpad decides, but writes nothing",
        "Note:      helm sets the replicas of the target, too",
        "Note:      annotation hpad.io/fallback: it is wrong",
    ]


def test_all_pods_are_shown_if_asked_for(run: Run, capsys: Capture) -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=8)
    web.reconcile(used([100] * 8))
    run(Answers({HPA: detail(web.trace)}), "web")
    assert "      and 3 more; --pods shows all\n" in capsys.readouterr().out
    run(Answers({HPA: detail(web.trace)}), "web", "--pods")
    assert sum("ready  100m   200m     50%" in line for line in capsys.readouterr().out.splitlines()) == 8


def test_colors_are_printed_if_asked_for(run: Run, held: Workload, capsys: Capture) -> None:
    run(Answers({HPA: detail(held.trace)}), "web", "--color=always")
    colored = capsys.readouterr().out
    assert "\x1b[1mReplicas:\x1b[0m" in colored
    assert "  after windows   \x1b[33m5\x1b[0m  5 was recommended" in colored, "the stage that changed the count"
    for choice in ("--color=never", "--color=auto"):
        run(Answers({HPA: detail(held.trace)}), "web", choice)
        assert "\x1b" not in capsys.readouterr().out


def test_a_foreign_text_cannot_move_the_cursor(run: Run, held: Workload, capsys: Capture) -> None:
    hostile = msgspec.structs.replace(held.trace, sentence="keep 5\x1b[2J\n")
    run(Answers({HPA: detail(hostile)}), "web", "--color=never")
    assert "Decision:  keep 5\\u001b[2J\\n\n" in capsys.readouterr().out
    run(Answers({f"{HPA}/history": {"items": [entry(held, sentence="keep 5\x1b[2J")]}}), "web", "--last=1")
    assert "keep 5\\u001b[2J\n" in capsys.readouterr().out


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_whole_answer_is_printed_as_json_or_yaml(
    run: Run, held: Workload, capsys: Capture, form: str, read: Callable[[str], Any]
) -> None:
    answer = detail(held.trace)
    run(Answers({HPA: answer}), "web", "-o", form)
    assert read(capsys.readouterr().out) == answer
    made = entry(held)
    run(Answers({f"{HPA}/history": {"items": [made]}}), "web", "--last=5", "-o", form)
    assert read(capsys.readouterr().out) == {"items": [made]}


def test_past_decisions_are_listed_with_the_newest_last(run: Run, capsys: Capture) -> None:
    """Scenario 30."""
    web = Workload(external("orders", averageValue="10"), replicas=2)
    web.reconcile(series(20), after=60)
    kept = entry(web, turns=5, ended="2026-01-01T12:02:00Z")
    web.reconcile(series(40), after=60)
    reader = Answers({f"{HPA}/history": {"items": [entry(web), kept]}})
    assert run(reader, "web", "--last", "2") == 0
    assert capsys.readouterr().out.splitlines() == [
        "TIME                  REPLICAS  RECONCILES  FOR  DECISION",
        "2026-01-01 12:01:00Z  2         5           60s  keep 2: external metric orders at its target"
        " (10 / 10 per replica, 20 in total)",
        "2026-01-01 12:02:00Z  2 -> 4    1           -    scale web from 2 to 4: external metric orders above target"
        " (20 / 10 per replica, 40 in total)",
    ]
    assert reader.asked == [f"{HPA}/history?limit=2"]


def test_a_long_list_is_read_page_by_page(run: Run, held: Workload, capsys: Capture) -> None:
    made = entry(held)

    class Pages(Answers):
        def get(self, path: str) -> Any:
            self.asked.append(path)
            items = [made] * 1000
            return {"items": items, "continue": "7"} if len(self.asked) < 3 else {"items": [made]}

    reader = Pages({})
    assert run(reader, "web", "--since=2h") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2001
    assert [path.count("since=") for path in reader.asked] == [1, 1, 1]
    assert ["continue=7" in path for path in reader.asked] == [False, True, True]


def test_no_decision_in_that_time_is_an_error(run: Run, capsys: Capture) -> None:
    assert run(Answers({f"{HPA}/history": {"items": []}}), "web", "--since=1m") == 1
    assert capsys.readouterr().err == "hpad: there is no decision for the HPA default/web in that time\n"


def test_an_earlier_decision_says_for_how_long_it_was_in_force(run: Run, held: Workload, capsys: Capture) -> None:
    """Scenario 30."""
    answer = detail(held.trace) | {"turns": 7, "began": "2026-01-01T12:01:00Z", "ended": "2026-01-01T12:02:30Z"}
    reader = Answers({f"{HPA}/decision": answer})
    assert run(reader, "web", "--at", "2026-01-01T12:02:00Z") == 0
    assert capsys.readouterr().out.splitlines()[2:4] == [
        "Time:      2026-01-01 12:01:00Z",
        "Note:      the first of 7 equal decisions in 1m30s, the last one at 2026-01-01 12:02:30Z",
    ]
    # Times are shown without parts of a second: a decision of 12:02:00.7 is shown as one of 12:02:00.
    assert reader.asked == [f"{HPA}/decision?at=2026-01-01T12%3A02%3A00.999999%2B00%3A00"]


def test_a_decision_without_stored_inputs_gives_its_sentence(run: Run, capsys: Capture) -> None:
    reader = Answers({f"{HPA}/decision": {"sentence": "keep 6000: cpu at its target", "outlook": []}})
    assert run(reader, "web", "--at", "2026-01-01T12:02:00Z") == 1
    assert capsys.readouterr().err == (
        "hpad: only the sentence of this decision is kept, its inputs were too large: keep 6000: cpu at its target\n"
    )


def test_a_decision_that_this_version_makes_otherwise_says_so(run: Run, held: Workload, capsys: Capture) -> None:
    note = "the hpad of that time decided otherwise"
    reader = Answers({f"{HPA}/decision": detail(held.trace) | {"notes": [note]}})
    assert run(reader, "web", "--at", "2026-01-01T12:02:00Z") == 0
    assert f"Note:      {note}" in capsys.readouterr().out


@pytest.mark.parametrize("ago", ["-10m", "10m"])
def test_a_time_ago_may_have_a_minus_sign(run: Run, held: Workload, ago: str) -> None:
    reader = Answers({f"{HPA}/decision": detail(held.trace)})
    assert run(reader, "web", "--at", ago) == 0
    [asked] = reader.asked
    at = datetime.fromisoformat(asked.partition("at=")[2].replace("%3A", ":").replace("%2B", "+"))
    assert timedelta(minutes=10) <= datetime.now(UTC) - at < timedelta(minutes=12)


def test_a_time_before_the_history_says_where_it_begins(run: Run, capsys: Capture) -> None:
    begins = "the decision history of the HPA default/web begins at 2026-01-01T12:00:00Z"
    assert run(Answers({}, error=begins), "web", "--at=1h") == 1
    assert capsys.readouterr().err == f"hpad: {begins}\n"


@pytest.mark.parametrize("flags", [["--at=1h", "--last=2"], ["--watch", "--at=1h"], ["--since=1h", "-w"]])
def test_a_list_a_time_and_following_exclude_each_other(run: Run, capsys: Capture, flags: list[str]) -> None:
    assert run(Answers({}), "web", *flags) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_the_last_decisions_since_a_time(run: Run, held: Workload) -> None:
    reader = Answers({f"{HPA}/history": {"items": [entry(held)]}})
    assert run(reader, "web", "--last=3", "--since=2026-01-01T10:00:00Z") == 0
    assert reader.asked == [f"{HPA}/history?limit=3&since=2026-01-01T10%3A00%3A00%2B00%3A00"]


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (["shop/web"], ""),
        (["-n", "shop", "web"], ""),
        (["shop/web", "-n", "shop"], ""),
        (["shop/autoscaler/web"], "?kind=Autoscaler"),
        (["asr/web", "-n", "shop"], "?kind=Autoscaler"),
    ],
)
def test_a_name_may_have_its_namespace_and_kind(run: Run, held: Workload, arguments: list[str], query: str) -> None:
    reader = Answers({"/api/v1/hpas/shop/web": detail(held.trace)})
    assert run(reader, *arguments) == 0
    assert reader.asked == [f"/api/v1/hpas/shop/web{query}"]


@pytest.mark.parametrize("name", ["a/b/c", "a/b/autoscaler/c", "shop/", "shop/autoscaler/", "/web", ""])
def test_a_name_of_another_form_is_wrong_use(run: Run, capsys: Capture, name: str) -> None:
    assert run(Answers({}), name) == 2
    assert f"NAME: {name!r} is not of the form NAME, NAMESPACE/NAME, autoscaler/NAME or" in capsys.readouterr().err


def test_a_name_without_a_kind_is_that_of_an_autoscaler_where_no_hpa_has_it(
    run: Run, held: Workload, capsys: Capture
) -> None:
    class Autoscalers(Answers):
        def get(self, path: str) -> Any:
            if path == HPA:
                raise Refusal("404", 404, f"{NO_HPA}; did you mean default/autoscaler/web (kind=Autoscaler)?")
            return super().get(path)

    items = [{"namespace": "default", "name": "web", "kind": "Autoscaler"}]
    made = msgspec.structs.replace(held.trace, kind="Autoscaler")
    assert run(Autoscalers({"/api/v1/hpas": {"items": items}, HPA: detail(made)}), "web") == 0
    assert capsys.readouterr().out.startswith("HPA:       default/autoscaler/web\n")


def test_two_namespaces_are_an_error(run: Run, capsys: Capture) -> None:
    assert run(Answers({}), "shop/web", "-n", "other") == 2
    assert capsys.readouterr().err == "hpad: NAME: 'shop/web' is not of the namespace 'other' (-n)\n"


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["default/wen", "shop/web"], "did you mean shop/web?"),
        (["default/webb", "default/other"], "did you mean default/webb?"),
        (["x/y"], "hpad has 1 HPA"),
    ],
)
def test_an_unknown_hpa_names_similar_ones(run: Run, capsys: Capture, known: list[str], hint: str) -> None:
    items = [dict(zip(("namespace", "name"), each.split("/"), strict=True)) for each in known]
    for flags in ([], ["--last=1"], ["--at=1m"], ["--watch"]):
        assert run(Answers({"/api/v1/hpas": {"items": items}}), "web", *flags) == 1
        assert capsys.readouterr().err == f"hpad: there is no HPA 'default/web'; {hint}\n"


def test_an_hpa_of_another_replica_names_that_replica(run: Run, capsys: Capture) -> None:
    answers = {HPA: {"outlook": [], "owner": "hpad-1"}, "/api/v1/replicas": {"items": [], "self": "hpad-0"}}
    none = "there is no decision for the HPA default/web yet"
    assert run(Answers(answers, error=none), "web") == 1
    text = "hpad: this replica of hpad has not decided for the HPA default/web yet"
    assert capsys.readouterr().err == f"{text}: hpad-1 does; ask that one\n"
    answers[HPA] = {"outlook": [], "owner": "hpad-0"}
    assert run(Answers(answers, error=none), "web") == 1
    assert capsys.readouterr().err == f"{text}\n"


def test_before_the_first_decision_of_this_process_the_history_has_the_last_one(
    run: Run, held: Workload, capsys: Capture
) -> None:
    past = detail(held.trace) | {"turns": 1}
    assert run(Answers({HPA: {"outlook": []}, f"{HPA}/decision": past}), "web") == 0
    assert "Time:      2026-01-01 12:01:00Z, " in capsys.readouterr().out


@pytest.mark.parametrize("number", ["0", "10001", "x", "9" * 5000])
def test_a_number_of_decisions_has_bounds(capsys: Capture, number: str) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "web", "--last", number])
    assert "is not a whole number from 1 to 10000" in capsys.readouterr().err


class Watched(Answers):
    """The answers to the first request, then those to each look; at the end the user presses Ctrl-C."""

    def __init__(self, held: Workload, looks: list[Any]) -> None:
        super().__init__({HPA: detail(held.trace)})
        self.looks = looks

    def get(self, path: str) -> Any:
        if not path.startswith(f"{HPA}/history"):
            return super().get(path)
        if not self.looks:
            raise KeyboardInterrupt
        look = self.looks.pop(0)
        if isinstance(look, Failure):
            raise look
        return {"items": look}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "WATCH_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_watching_goes_on_with_each_new_decision(run: Run, held: Workload, capsys: Capture) -> None:
    """The sentence of a held scale-down counts seconds, so it differs in each turn of the same decision."""
    shown = entry(held)
    same = shown | {"sentence": "keep 5: stabilized for 225 s more"}
    looks: list[Any] = [[shown], [same], Failure("no hpad answers"), Failure("no hpad answers")]
    reader = Watched(held, looks)
    held.reconcile(series(90), after=15)
    new = entry(held)
    looks += [[new, shown], [new, shown]]
    assert run(reader, "web", "--watch") == 130
    captured = capsys.readouterr()
    assert captured.out.startswith("HPA:       default/web\n")
    assert captured.out.splitlines()[-1] == f"2026-01-01 12:01:15Z  {new['sentence']}"
    assert captured.out.count("12:01:15Z") == 1
    assert captured.err == "hpad: no hpad answers; trying again\n"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_watching_prints_documents(run: Run, held: Workload, capsys: Capture, form: str) -> None:
    reader = Watched(held, [])
    held.reconcile(series(90), after=15)
    new = entry(held)
    reader.looks.append([new])
    assert run(reader, "web", "--watch", "-o", form) == 130
    printed = capsys.readouterr().out
    if form == "json":
        assert json.loads(printed.splitlines()[-1]) == new
    else:
        assert list(yaml.safe_load_all(printed))[1] == new
