"""Typical ScaledObjects, for tests of the conversion."""

import copy
from typing import Any


def trigger(kind: str, metadata: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """Returns an entry of `spec.triggers`."""
    return {"type": kind, "metadata": metadata, **rest}


def scaled(*triggers: Any, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Returns a ScaledObject shop/worker."""
    metadata: dict[str, Any] = {"name": "worker", "namespace": "shop"}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata,
        "spec": {"scaleTargetRef": {"name": "worker"}, "triggers": copy.deepcopy(list(triggers)), **spec},
    }


RABBITMQ = trigger(
    "rabbitmq",
    {"host": "http://monitor@rabbit.shop.svc:15672/prod", "queueName": "orders", "mode": "QueueLength", "value": "20"},
)
PROMETHEUS = trigger(
    "prometheus",
    {"serverAddress": "http://prom:9090", "query": "sum(x)", "threshold": "100.5", "ignoreNullValues": "false"},
    metricType="Value",
)
REDIS = trigger("redis", {"address": "redis.shop.svc:6379", "listName": "jobs:mail", "listLength": "10"})
STREAM = trigger(
    "redis-streams",
    {"address": "redis.shop.svc:6379", "stream": "orders", "consumerGroup": "workers", "pendingEntriesCount": "7"},
)
METRICS_API = trigger(
    "metrics-api", {"url": "http://api.shop:8080/stats", "valueLocation": "jobs.0.depth", "targetValue": "8"}
)
CPU = trigger("cpu", {"value": "60"}, metricType="Utilization")
MEMORY = trigger("memory", {"value": "1Gi", "containerName": "app"}, metricType="AverageValue")
CRON = trigger(
    "cron", {"timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 18 * * *", "desiredReplicas": "10"}
)
PULSAR = trigger(
    "pulsar",
    {"adminURL": "http://pulsar:80", "topic": "persistent://public/default/t", "subscription": "s"},
    authenticationRef={"name": "pulsar-credentials"},
)
"""A trigger that is not carried over."""

FULL = scaled(
    trigger(
        "rabbitmq",
        RABBITMQ["metadata"]
        | {"protocol": "http", "useRegex": "true", "operation": "max", "pageSize": "100", "activationValue": "5"}
        | {"vhostName": "v", "excludeUnacknowledged": "true", "timeout": "1000", "unsafeSsl": "true"}
        | {"usernameFromEnv": "RABBIT_USER", "workloadIdentityResource": "id", "metricName": "old"},
        authenticationRef={"name": "broker", "kind": "ClusterTriggerAuthentication"},
        useCachedMetrics=True,
    ),
    trigger(
        "prometheus",
        PROMETHEUS["metadata"]
        | {"activationThreshold": "3", "namespace": "n", "customHeaders": "A=b", "queryParameters": "c=d"}
        | {"authModes": "bearer", "unsafeSsl": "true", "cortexOrgID": "team", "timeout": "900", "awsRegion": "eu"},
        name="requests",
    ),
    trigger("redis", REDIS["metadata"] | {"databaseIndex": "3", "enableTLS": "true", "passwordFromEnv": "P"}),
    trigger("redis-streams", STREAM["metadata"] | {"streamLength": "9", "hostFromEnv": "H", "unsafeSsl": "true"}),
    trigger(
        "metrics-api",
        METRICS_API["metadata"]
        | {"unsafeSsl": "true", "authMode": "apiKey", "method": "header", "format": "json"}
        | {"keyParamName": "k", "activationTargetValue": "2", "aggregationType": "max"},
    ),
    CPU,
    MEMORY,
    CRON,
    PULSAR,
    annotations={
        "team": "a",
        "autoscaling.keda.sh/paused-scale-in": "true",
        "autoscaling.keda.sh/force-activation": "false",
        "scaledobject.keda.sh/transfer-hpa-ownership": "true",
    },
    minReplicaCount=2,
    maxReplicaCount=30,
    pollingInterval=10,
    cooldownPeriod=60,
    initialCooldownPeriod=5,
    idleReplicaCount=0,
    fallback={"failureThreshold": 3, "replicas": 6, "behavior": "static"},
    advanced={
        "restoreToOriginalReplicaCount": True,
        "horizontalPodAutoscalerConfig": {
            "name": "mine",
            "behavior": {"scaleUp": {"stabilizationWindowSeconds": 30}},
        },
        "scalingModifiers": {"formula": "a + b", "target": "2", "activationTarget": "1", "metricType": "Value"},
    },
)
"""A ScaledObject with nearly every field."""
