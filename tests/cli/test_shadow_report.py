"""`hpad shadow-report`: both counts, when they differed, and why."""

import argparse
import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, external, series

from hpad import cli
from hpad.api.hpa import AUTOSCALER, KINDS
from hpad.cli import client
from hpad.cli.output import Failure
from hpad.cli.shadow_report import report
from hpad.records.entry import Entry, first

Json = dict[str, Any]
STEP = timedelta(minutes=1)
ONE_MORE: Json = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}


def history(targets: list[int], loads: list[int], mode: str = "shadow") -> list[Entry]:
    """Returns one entry per minute: the target has these counts, and the queue these lengths."""
    web = Workload(
        external("orders", averageValue="10"), replicas=2, behavior=ONE_MORE, annotations={"hpad.io/mode": mode}
    )
    found = []
    for number, (target, load) in enumerate(zip(targets, loads, strict=True)):
        web.replicas = target
        web.reconcile(series(load), after=60 if number else 0)
        assert web.done is not None
        found.append(msgspec.structs.replace(first(web.done), number=number + 1, turns=1, kind=AUTOSCALER))
    return found


TARGETS, LOADS = [2, 4, 4, 5, 4], [40, 40, 40, 40, 40]
"""hpad goes from 2 to 4 at once; another client sets the target to 4 a minute later, then to 5 and back."""


def test_both_curves_and_their_differences() -> None:
    found = report(history(TARGETS, LOADS), START)
    assert found is not None
    assert (found.begin, found.end, found.seconds) == (START, START + 4 * STEP, 240.0)
    assert (found.fewer, found.more) == (60.0, 60.0)
    assert (found.shadow.rescales, found.target.rescales) == (1, 3)
    assert found.shadow.replica_hours == pytest.approx(4 * 4 / 60)
    assert found.target.replica_hours == pytest.approx((2 + 4 + 4 + 5) / 60)
    assert [(each.begin - START, each.end - START, each.shadow, each.target) for each in found.differences] == [
        (0 * STEP, 1 * STEP, 4, 2),
        (3 * STEP, 4 * STEP, 4, 5),
    ]
    # The decision that led to 4 explains both: since then hpad had no reason for another count.
    assert {each.why.partition(":")[0] for each in found.differences} == {"scale web from 2 to 4"}


def test_a_time_in_which_the_count_was_not_known_is_left_out() -> None:
    entries = history(TARGETS, LOADS)
    entries[2] = msgspec.structs.replace(entries[2], current=None, desired=None)
    found = report(entries, START)
    assert found is not None
    assert (found.seconds, found.fewer, found.shadow.lowest) == (180.0, 60.0, 4)


def test_an_hpa_with_a_long_period_has_no_gaps() -> None:
    """Half an hour between two reconciles: a rescale of the shadow, then it keeps 4 for three of them, and goes on."""
    entries = history([2, 2, 3], [40, 40, 40])
    times = [(0, 0, 1), (30, 90, 3), (120, 120, 1)]
    entries = [
        msgspec.structs.replace(each, began=START + begin * STEP, ended=START + end * STEP, turns=turns)
        for each, (begin, end, turns) in zip(entries, times, strict=True)
    ]
    found = report(entries, START)
    assert found is not None
    assert (found.seconds, found.more) == (7200.0, 7200.0)


def test_what_was_before_counts_not() -> None:
    found = report(history(TARGETS, LOADS), START + 2.5 * STEP)
    assert found is not None
    assert (found.begin, found.seconds, found.shadow.rescales) == (START + 3 * STEP, 60.0, 0)
    long = [msgspec.structs.replace(each, ended=each.began + STEP / 2) for each in history(TARGETS, LOADS)]
    found = report(long, START + 2.25 * STEP)
    assert found is not None
    assert (found.begin, found.seconds) == (START + 2.25 * STEP, 0.75 * 60 + 60 + 30)


def test_a_time_without_decisions_counts_nowhere() -> None:
    entries = history(TARGETS, LOADS)
    late = [msgspec.structs.replace(each, began=each.began + timedelta(hours=1)) for each in entries[2:]]
    late = [msgspec.structs.replace(each, ended=each.began) for each in late]
    found = report([*entries[:2], *late], START)
    assert found is not None
    assert found.seconds == 60.0 + 120.0


def test_an_hpa_that_scales_has_no_report() -> None:
    assert report(history(TARGETS, LOADS, mode="active"), START) is None
    assert report([], START) is None


class Answers:
    def __init__(self, entries: list[Entry]) -> None:
        self.entries = [json.loads(msgspec.json.encode(each)) for each in reversed(entries)]

    def get(self, path: str) -> Any:
        if path.startswith("/api/v1/hpas?"):
            of = [{"namespace": "default", "name": "web", "kind": kind} for kind in KINDS]
            return {"items": of, "total": 2, "counts": {}}
        assert path.startswith("/api/v1/hpas/default/web/history?")
        return {"items": self.entries if "kind=Autoscaler" in path else []}


def run(monkeypatch: pytest.MonkeyPatch, entries: list[Entry], *arguments: str) -> int:
    monkeypatch.setattr(client, "reader", lambda args: Answers(entries))
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers(), "shadow-report")
    args = parser.parse_args(["shadow-report", "--since", "2026-01-01T00:00:00Z", *arguments])
    status: int = args.run(args)
    return status


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, history(TARGETS, LOADS), "--color", "never") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "default/autoscaler/web: in shadow mode for 4m, 2026-01-01 12:00:00Z to 2026-01-01 12:04:00Z"
    assert [each.split() for each in lines[1:4]] == [
        ["RESCALES", "REPLICA-HOURS", "LOWEST", "HIGHEST"],
        ["hpad", "1", "0.27", "4", "4"],
        ["target", "3", "0.25", "2", "5"],
    ]
    assert lines[4] == "hpad had fewer replicas than the target for 1m (25 %), more for 1m (25 %)"
    assert lines[5].split() == ["FROM", "FOR", "HPAD", "TARGET", "DECISION", "OF", "HPAD"]
    assert lines[6].startswith("2026-01-01 12:00:00Z  1m   4     2       scale web from 2 to 4: ")
    assert run(monkeypatch, history(TARGETS, LOADS), "asr/web", "-o", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["kind"], found["name"]) == (AUTOSCALER, "web")
    assert [each["target"] for each in found["differences"]] == [2, 5]


def test_without_a_shadow_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match=r"no HPA was in shadow mode since 2026-01-01 00:00:00Z"):
        run(monkeypatch, history(TARGETS, LOADS, mode="active"))
