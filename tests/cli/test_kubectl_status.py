"""The table of `kubectl hpad status`. What a cluster answers is in tests/e2e/test_kubectl_plugin.py."""

from typing import Any

import pytest

from hpad.cli.kubectl import main

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
