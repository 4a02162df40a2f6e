"""The table of `kubectl hpad status`. What a cluster answers is in tests/e2e/test_kubectl_plugin.py."""

import argparse
from collections.abc import Sequence
from typing import Any

import pytest

from hpad.cli import fetch
from hpad.cli.kubectl import discovery, flags, main, make_parser
from hpad.cli.output import Failure

METRIC = {"address": "cpu", "target": "50%"}


class Hpas:
    """A Reader of these HPAs."""

    def __init__(self, *hpas: dict[str, Any]) -> None:
        self.hpas = hpas

    def get(self, path: str) -> Any:
        return {"items": list(self.hpas), "total": len(self.hpas), "counts": {}}


def summary(*, low: int, current: int, desired: int) -> dict[str, Any]:
    return {
        "namespace": "shop",
        "name": "web",
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": low,
        "maxReplicas": 9,
        "currentReplicas": current,
        "desiredReplicas": desired,
        "states": ["failing"],
        "metrics": [METRIC],
        "lastDecision": {"time": "2026-01-01T12:00:00Z", "sentence": "none", "action": "none"},
    }


@pytest.mark.parametrize(
    ("low", "current", "desired", "shown"),
    [
        (1, 3, 4, "4"),
        (1, 3, 0, "-"),  # no metric could be read yet: no count was decided
        (1, 0, 0, "0"),  # the target is stopped
        (0, 3, 0, "0"),  # perhaps a decision
    ],
)
def test_a_count_that_was_never_decided_is_not_shown_as_zero(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    low: int,
    current: int,
    desired: int,
    shown: str,
) -> None:
    hpas = Hpas(summary(low=low, current=current, desired=desired))
    monkeypatch.setattr("hpad.cli.client.reader", lambda args: hpas)
    assert main(["status", "-n", "shop", "--address", "127.0.0.1:9"]) == 0
    header, row = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert header[4:7] == ["MAXPODS", "REPLICAS", "DESIRED"]
    assert row[2:8] == ["cpu:", "<unknown>/50%", str(low), "9", str(current), shown]


def test_an_autoscaler_is_told_from_an_hpa_of_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hpa = summary(low=1, current=3, desired=3)
    hpas = Hpas(hpa | {"kind": "HorizontalPodAutoscaler"}, hpa | {"kind": "Autoscaler"})
    monkeypatch.setattr("hpad.cli.client.reader", lambda args: hpas)
    assert main(["status", "web", "-n", "shop", "--address", "127.0.0.1:9"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "web", "autoscaler/web"]
    assert main(["status", "web", "-n", "shop", "-o", "name", "--address", "127.0.0.1:9"]) == 0
    assert capsys.readouterr().out == "horizontalpodautoscaler.autoscaling/web\nautoscaler.hpad.io/web\n"


class Looks:
    """A Reader that answers with these lists of HPAs, one after the other, and then acts as if Ctrl-C was pressed."""

    def __init__(self, *looks: Sequence[dict[str, Any]] | Failure) -> None:
        self.looks = list(looks)
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        if not self.looks:
            raise KeyboardInterrupt
        look = self.looks.pop(0)
        if isinstance(look, Failure):
            raise look
        return {"items": list(look), "total": len(look), "counts": {}}


def at(time: str, **fields: Any) -> dict[str, Any]:
    made = summary(low=1, current=3, desired=3) | fields
    return made | {"lastDecision": made["lastDecision"] | {"time": time}}


def test_watching_prints_each_row_that_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    web, api = at("2026-01-01T12:00:00Z"), at("2026-01-01T12:00:00Z", name="api")
    later, grown = at("2026-01-01T12:00:15Z"), at("2026-01-01T12:00:30Z", desiredReplicas=4)
    refused = Failure("no hpad answers")
    reader = Looks([web, api], [later, api], refused, refused, [grown, api], [grown, api], [grown])
    monkeypatch.setattr(fetch, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr("hpad.cli.client.reader", lambda args: reader)
    assert main(["status", "-n", "shop", "-w", "-l", "tier=web", "--address", "127.0.0.1:9"]) == 130
    captured = capsys.readouterr()
    header, *rows = captured.out.splitlines()
    assert [(row.split()[0], row.split()[7]) for row in rows] == [("web", "3"), ("api", "3"), ("web", "4")]
    assert rows[2].index("Deployment/web") == header.index("REFERENCE")
    assert captured.err == "kubectl-hpad: no hpad answers; trying again\nkubectl-hpad: shop/api is gone\n"
    assert all("selector=tier%3Dweb" in path for path in reader.asked)


@pytest.mark.parametrize(
    "arguments", [["-w", "-o", "json"], ["web", "-l", "a=b"], ["--via", "proxy"], ["-o", "xml"], ["a/b/c"]]
)
def test_wrong_use_ends_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPAD_LISTEN", raising=False)
    try:
        ended = main(["status", "-n", "shop", *arguments])
    except SystemExit as error:
        ended = int(str(error.code))
    assert ended == 2


@pytest.mark.parametrize(
    ("listen", "arguments", "direct"),
    [
        ("127.0.0.1:9000", [], True),
        ("127.0.0.1:9000", ["--context", "staging"], False),
        ("127.0.0.1:9000", ["--service", "hpad/hpad"], False),
        ("none", [], False),
        ("", [], False),
    ],
)
def test_the_address_of_the_environment_counts_unless_a_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch, listen: str, arguments: list[str], direct: bool
) -> None:
    monkeypatch.setenv("HPAD_LISTEN", listen)
    asked: list[str] = []

    def directly(self: Any, path: str) -> Any:
        asked.append(self.url)
        return {"items": [], "total": 0, "counts": {}}

    def in_cluster(*_: Any) -> Any:
        raise Failure("the cluster is searched")

    monkeypatch.setattr("hpad.cli.client.Direct.get", directly)
    monkeypatch.setattr(discovery, "find", in_cluster)
    assert main(["status", "-n", "shop", *arguments]) == (0 if direct else 1)
    assert asked == ([f"http://{listen}"] if direct else [])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explain", "web"], {"output": "text", "namespace": None}),
        (["-n", "shop", "explain", "web"], {"output": "text", "namespace": "shop"}),
        (["--context", "x", "status", "-A"], {"output": "", "context": "x", "all_namespaces": True}),
        (["-v", "version", "-o", "json"], {"output": "json", "verbose": True}),
    ],
)
def test_flags_stand_on_either_side_of_the_command(arguments: list[str], expected: dict[str, Any]) -> None:
    parser, _ = make_parser()
    args, unknown = parser.parse_known_args(arguments, argparse.Namespace(**flags.DEFAULTS))
    assert unknown == []
    assert {name: getattr(args, name) for name in expected} == expected
