"""Small valid inputs of each target."""

import json
from datetime import UTC, datetime
from typing import Any

from hpad.api.metadata import Key
from hpad.engine.history import History, Memory, PastRecommendation, Rescale
from hpad.store import record

_NOW = "2026-01-02T03:04:05Z"
_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
_RULES = {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _hpa(version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"scaleTargetRef": _TARGET, "minReplicas": 1, "maxReplicas": 9, **spec},
        "status": {"currentReplicas": 2, "desiredReplicas": 3},
    }


def _metric(kind: str, **source: Any) -> dict[str, Any]:
    return {"type": kind, kind[:1].lower() + kind[1:]: source}


_METRICS = [
    _metric("Resource", name="cpu", target={"type": "Utilization", "averageUtilization": 70}),
    _metric("ContainerResource", name="cpu", container="app", target={"type": "AverageValue", "averageValue": "300m"}),
    _metric("Pods", metric={"name": "rps"}, target={"type": "AverageValue", "averageValue": "10"}),
    _metric("Object", metric={"name": "rps"}, describedObject=_TARGET, target={"type": "Value", "value": "2k"}),
    _metric(
        "External",
        metric={"name": "depth", "selector": {"matchLabels": {"queue": "work"}}},
        target={"type": "AverageValue", "averageValue": "30"},
    ),
]
_ALPHA = {"autoscaling.alpha.kubernetes.io/behavior": json.dumps({"ScaleUp": {"StabilizationWindowSeconds": 3}})}
_TERMS = {
    "hpad.io/fallback": "cpu@app=hold,#0=ignore,depth{queue in (work)}=last-good:10m after 60s,rps=hold",
    "hpad.io/failure-duration-seconds": "60",
    "hpad.io/activation": "depth=5",
}
_V1 = {**_hpa("v1", targetCPUUtilizationPercentage=80), "metadata": {"name": "web", "annotations": _ALPHA}}
_BETA = _hpa("v2beta1", metrics=[_metric("Resource", name="cpu", targetAverageUtilization=50)])
_V2 = _hpa("v2", metrics=_METRICS, behavior={"scaleUp": _RULES, "scaleDown": {"selectPolicy": "Disabled"}})

QUANTITIES = (b"10500m", b"15Mi", b"1e3", b"-0.5", b"9223372036854775807Ki", b"194209608n", b"1.5E", b"0", b"1E-3")
SELECTORS = (b"app=web,tier in (a,b),!canary", b"a/b!=c,x>5", b"k notin (v,),e", b"", b"a==b")
DURATIONS = (b"15s", b"1h30m", b"1.5h2m3s4ms5us6ns", b"-0.1s", b"0")
NAMES = (b"web", b"web-1.example.com", b"a" * 63, b"Web_1", b"..", b"a/b")
HPAS = (
    _json(_V2), _json({**_V2, "metadata": {"name": "web", "annotations": _TERMS}}),
    _json(_hpa("v2beta2", metrics=_METRICS[:1])), _json(_BETA), _json(_V1),
)  # fmt: skip
MANIFESTS = (
    b"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata:\n  name: web\nspec:\n  maxReplicas: 3\n"
    b"  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}\n---\nkind: Deployment\n",
    _json(_V2),
    _json({"kind": "List", "items": [_V2, _V1]}),
    b'{"a": 1}\n{"b": [true, null, 1.5]}\n',
    b"a: &a {b: 1, b: 2}\nc: [*a, *a]\nd:\n  <<: *a\ne: !!str 5\nf: |\n  x\n",
)


def _scaled(kind: str, metadata: dict[str, str], **spec: Any) -> bytes:
    return _json({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "triggers": [{"type": kind, "metricType": "AverageValue", "metadata": metadata}],
            **spec,
        },
    })  # fmt: skip


SCALED_OBJECTS = (
    _scaled(
        "rabbitmq",
        {"host": "http://rabbitmq:15672/vhost", "queueName": "work", "mode": "QueueLength", "value": "20",
         "activationValue": "5", "useRegex": "true", "operation": "max", "pageSize": "100", "vhostName": "v"},
        pollingInterval=10, minReplicaCount=0, maxReplicaCount=7, fallback={"failureThreshold": 3, "replicas": 6},
    ),
    _scaled("prometheus", {"serverAddress": "http://p:9090", "query": "sum(x)", "threshold": "1.5", "metricName": "m"}),
    _scaled(
        "redis-streams",
        {"address": "r:6379", "stream": "orders", "consumerGroup": "g", "pendingEntriesCount": "5"},
        advanced={"scalingModifiers": {"formula": "a", "target": "1"}}, idleReplicaCount=0,
    ),
    _scaled("redis", {"host": "r", "port": "7", "listName": "jobs:mail", "enableTLS": "true", "passwordFromEnv": "P"}),
    _scaled("cron", {"timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 18 * * 1-5", "desiredReplicas": "9"}),
    _scaled(
        "cpu", {"value": "60"}, minReplicaCount=1,
        advanced={"horizontalPodAutoscalerConfig": {"name": "mine", "behavior": {"scaleUp": _RULES}}},
    ),
)  # fmt: skip
SOURCES = (
    _json({"url": "http://r:15672", "metrics": {"d": {"queues": ["a"], "mode": "publish_rate", "vhost": "a"}},
           "username": "u", "password_env": "P", "patterns": {"w": "work-.*"},
           "rate_window": "60s", "smoothing": 0.5, "page_size": 9}),
    _json({"url": "http://p:9090", "metrics": {"d": {"query": "sum(x{<<.LabelMatchers>>})", "types": ["External"],
           "window": {"fetch": "5m", "last": "1m"}}}, "params": {"dedup": "true"}, "query_timeout": "5s"}),
    _json({"url": "http://p", "rules": {"rules": [{"seriesQuery": "http_total", "name": {"matches": "^(.*)_total$"},
           "resources": {"template": "<<.Resource>>"}, "metricsQuery": "sum(<<.Series>>) by (<<.GroupBy>>)"}]}}),
    _json({"metrics": {"d": {"url": "http://h/", "path": "a.b[0].c[*]", "params": ["x"]}}, "headers": {"a": "b"}}),
    _json({"url": "redis://h:6379/0", "keys": {"mail": "jobs:mail"}, "missing_stream": "zero"}),
    _json({"sentinel": {"master": "m", "nodes": ["h:26379", "[::1]"], "tls": True}, "password_env": "P"}),
    _json({"bootstrap_servers": ["h:9092"], "metrics": {"d": {"group": "g", "partition_limitation": "1,3-4"}}}),
    _json({"region": "eu-central-1", "metrics": {"d": {"queue": "https://h/1/q", "counts": ["visible"]}}}),
    _json({"address": "s.ns:9090", "metrics": {"d": {"metadata": {"a": "b"}, "params": ["c"]}}, "tls": True}),
    _json({"cluster": {"nodes": ["h:6379"], "tls": True}, "ca": "/ca.pem"}),
    _json({"metrics": {"d": {"start": "0 8 * * 1-5", "end": "0 18 * * *", "replicas": 5, "timezone": "Europe/Rome"}}}),
    _json({"file": "/run/metrics.yaml"}),
)  # fmt: skip
_POD = {
    "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}, "resourceVersion": "5"},
    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}]},
    "status": {
        "phase": "Running",
        "startTime": "2026-01-02T03:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:00:00Z"}],
    },
}
_POD_METRICS = {
    "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}},
    "timestamp": _NOW,
    "window": "30s",
    "containers": [{"name": "app", "usage": {"cpu": "88m", "memory": "280Mi"}}],
}
_CUSTOM = {"describedObject": {"kind": "Pod", "name": "web-0"}, "timestamp": _NOW, "windowSeconds": 60, "value": "5"}
_EXTERNAL = {"metricName": "depth", "metricLabels": {"queue": "work"}, "timestamp": _NOW, "value": "120"}
_SCALE = {
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1"},
    "spec": {"replicas": 2},
    "status": {"replicas": 2, "selector": "app=web"},
}
_STEP = {
    "time": _NOW,
    "scale": _SCALE,
    "pods": [_POD],
    "podMetrics": {"items": [_POD_METRICS]},
    "customMetrics": {"rps": {"items": [_CUSTOM]}},
    "externalMetrics": {"depth": {"items": [_EXTERNAL]}},
}
SCENARIOS = (
    _json({"id": "a", "controller": {"tolerance": 0.1}, "hpa": _V2, "steps": [_STEP, {**_STEP, "spec": _V2["spec"]}]}),
    _json({"hpa": _V2, "steps": [{"time": _NOW, "scaleError": "gone"}]}) + b"\n",
    _json({"hpa": _V2, "otherHpaSelectors": {"x": "app=web"}, "steps": [{**_STEP, "scaleUpdateErrors": ["conflict"]}]}),
)
_WHEN = datetime(2026, 1, 2, tzinfo=UTC)
_HISTORY = History((PastRecommendation(_WHEN, 3),), (Rescale(_WHEN, 2),), (Rescale(_WHEN, 1),))
RECORDS = (
    record.encode(Key("shop", "web"), Memory(uid="u", history=_HISTORY, at=_WHEN, last_count=3)),
    record.encode(Key("shop", "web"), Memory()),
)
SETTINGS = (
    b"sync_period: 15s\nworkers: 5\ntolerance: 0.1\nlisten: 127.0.0.1:8080\nfeature_gates: {HPAScaleToZero: true}\n",
    b"sources:\n  rabbitmq:\n    adapter: rabbitmq\n    url: http://rabbitmq:15672\n    match: {types: [External]}\n"
    b"routes:\n- {match: {metrics: [depth]}, source: rabbitmq}\n",
    b"namespaces: [a, b]\nstore: {kind: sqlite, path: /var/lib/hpad/h.db}\nleader_elect: true\nlog_level: info\n",
)
WATCHES = (
    b"\n".join(_json({"type": kind, "object": held}) for kind, held in (("ADDED", _V2), ("MODIFIED", _POD))) + b"\n",
    _json({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}) + b"\n\n",
    _json({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}) + b"\n",
)
_LIST = {"kind": "PodList", "metadata": {"resourceVersion": "3", "continue": "x"}, "items": [_POD]}
_DEPLOYMENT = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}}
OBJECTS = (_json(_V2), _json(_POD), _json(_LIST), _json(_DEPLOYMENT), b'{"kind":"Status","code":404,"message":"m"}')
METRICS_LISTS = (
    _json({"items": [_POD_METRICS]}),
    _json({"items": [_CUSTOM]}),
    _json({"items": [_EXTERNAL, _EXTERNAL]}),
    b'{"items":null}',
)


def _series(kind: str, result: Any) -> bytes:
    return _json({"status": "success", "data": {"resultType": kind, "result": result}, "warnings": ["w"]})


PROMETHEUS = (
    _series("vector", [{"metric": {"pod": "web-0"}, "value": [1767323045.5, "1.5"]}]),
    _series("vector", [{"metric": {"a": str(n)}, "value": [1767323045, "1e3"]} for n in range(3)]),
    _series("matrix", [{"metric": {}, "values": [[1767323030, "1"], [1767323045, "2"], [1767323046, "NaN"]]}]),
    _series("scalar", [1767323045.5, "3"]),
    b'{"status":"error","errorType":"bad_data","error":"no"}',
)
_DETAILS = {"avg_rate": 1.5, "samples": [{"sample": 90, "timestamp": 1767323045000}, {"sample": 80, "timestamp": 1}]}
_QUEUE = {
    "name": "work", "vhost": "/", "type": "classic", "messages": 12, "messages_ready": 10,
    "messages_unacknowledged": 2, "consumers": 1, "consumer_capacity": 0.5,
    "message_stats": {"publish_details": _DETAILS, "deliver_get_details": _DETAILS, "ack_details": _DETAILS},
}  # fmt: skip
_OTHERS = [{**_QUEUE, "name": name} for name in "abc"]
RABBITMQ = (
    _json(_QUEUE),
    _json({**_QUEUE, "items": [_QUEUE, *_OTHERS], "page_count": 1, "filtered_count": 4, "page": 1}),
    b'{"error":"Object Not Found","reason":"Not Found"}',
)

HTTP_DOCUMENTS = (
    b'{"jobs": [{"n": 3}, {"n": 4}], "by.name": 5, "text": "1500m"}',
    b"jobs:\n- n: 3\n- n: 4\ntext: 1500m\nday: 2001-01-01\ntime: 1:30\nmore: {<<: {a: 1}}\n",
    b'<?xml version="1.0" encoding="UTF-8"?><all xmlns="urn:x" max="9"><jobs><n> 3 </n></jobs>'
    b'<jobs><n u="s">4</n></jobs><![CDATA[x]]></all>',
    b'# TYPE jobs gauge\njobs{queue="mail",state="n\\"ew"} 3\njobs{queue="web"} 4 1700000000000\njobs 1e3\n',
)
OWN_QUERIES = (
    b'{"query": "sum(rate(x{<<.LabelMatchers>>,q=\\"<<index .Labels \\"q\\">>\\"}[2m]))", "window": {"step": "5s"}}',
    b'{"url": "/queues/mail?since=<<now-5m:iso>>", "path": "a[0][*].b", "params": ["queue"], "format": "xml"}',
    b'{"url": "/metrics", "path": "jobs{queue=\\"mail\\",state!=\\"done\\"}", "format": "prometheus"}',
    b'{"queue": "mail", "vhost": ["a", "b"], "mode": "workers_to_clear", "goal": "60s", "prefetch": 2}',
    b'{"group": "shop", "topics": ["orders"], "partition_limitation": "1,2,10-12", "lag_threshold": 1.5}',
    b'{"stream": "orders", "consumer": "mailer", "value": "pending"}',
    b'{"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "replicas": 3, "timezone": "Europe/Berlin"}',
)
