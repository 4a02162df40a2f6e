"""Recordings written by hand, and `hpad replay` as a function."""

import argparse
from typing import Any

from hpad import cli

QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def step(second: int, length: str = "60", replicas: int = 3, **fields: Any) -> dict[str, Any]:
    recorded = {
        "time": f"2026-01-01T12:00:{second:02}Z",
        "scale": {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}},
        "externalMetrics": {"queue": {"items": [{"metricName": "queue", "value": length}]}},
    }
    return recorded | fields


def scenario(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": [QUEUE], "behavior": {}}
    hpa = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    return {"id": "mine", "hpa": hpa, "steps": list(steps)} | fields


def called(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="hpad")
    cli.add(parser.add_subparsers(), "replay")
    args = parser.parse_args(["replay", *arguments])
    status: int = args.run(args)
    return status
