"""The controllers of Deployments, and of ReplicaSets and ReplicationControllers.

A Deployment has one ReplicaSet per pod template, and rolling updates from old ones to the new one.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from hpad.lab.cluster import pods, recorder, strategy
from hpad.lab.cluster.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Object, Resource, copied
from hpad.lab.cluster.writes import Writer

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def template_hash(template: Object) -> str:
    """Returns a short, stable name for a pod template, of the form that kube-controller-manager gives it.

    The number is another one. Source: Kubernetes 1.36, pkg/controller/controller_utils.go: ComputeHash.
    """
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    digits = str(int.from_bytes(digest[:4]))
    return "".join(strategy.SUFFIX[ord(digit) % len(strategy.SUFFIX)] for digit in digits)


@dataclass(frozen=True, eq=False, slots=True)
class DeploymentController:
    """Moves replicas between ReplicaSets within maxSurge and maxUnavailable."""

    writer: Writer
    events: recorder.Recorder
    resource: Resource = DEPLOYMENTS

    def reconcile(self, namespace: str, name: str) -> float | None:
        deployment = self.writer.store.find(DEPLOYMENTS, namespace, name)
        if deployment is None:
            return None
        if "deletionTimestamp" not in deployment["metadata"]:
            self._roll(deployment)
        self._report(deployment)
        return None

    def _split(self, deployment: Object) -> tuple[Object | None, list[Object]]:
        """Returns the ReplicaSet of the current template, None before it exists, and the others, oldest first."""
        label = template_hash(deployment["spec"]["template"])
        owned = pods.controlled(self.writer.store, REPLICA_SETS, deployment["metadata"]["uid"])
        sets = sorted(owned, key=_revision)
        new = next((each for each in sets if each["metadata"]["labels"].get(HASH_LABEL) == label), None)
        return new, [each for each in sets if each is not new]

    def _roll(self, deployment: Object) -> None:
        desired = deployment["spec"].get("replicas", 1)
        new, old = self._split(deployment)
        plan = deployment["spec"].get("strategy") or {}
        if deployment["spec"].get("paused") and new is None:
            return
        if new is not None and _revision(new) < max(map(_revision, old), default=0):
            new = self._renumber(new, old)
        if plan.get("type") == "Recreate":
            for each in old:
                self._resize(deployment, each, 0)
            if any(pods.owned_pods(self.writer.store, each["metadata"]["uid"]) for each in old):
                return
            self._resize(deployment, new or self._create(deployment, old), desired)
            return
        new = new or self._create(deployment, old)
        surge, unavailable = _limits(plan.get("rollingUpdate") or {}, desired)
        self._grow(deployment, new, old, desired + surge)
        self._shrink(deployment, self.writer.store.get(REPLICA_SETS, *_key(new)), old, desired - unavailable)
        self._prune(old, deployment["spec"].get("revisionHistoryLimit", 10))

    def _create(self, deployment: Object, old: list[Object]) -> Object:
        metadata, spec = deployment["metadata"], deployment["spec"]
        label = template_hash(spec["template"])
        template = copied(spec["template"])
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[HASH_LABEL] = label
        selector = copied(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH_LABEL] = label
        revision = max((_revision(each) for each in old), default=0) + 1
        body = {
            "metadata": {
                "name": f"{metadata['name']}-{label}",
                "labels": dict(labels),
                "annotations": {REVISION: str(revision)},
                "ownerReferences": [pods.owner_reference(DEPLOYMENTS, deployment)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        return self.writer.create(REPLICA_SETS, metadata["namespace"], body)

    def _renumber(self, replica_set: Object, old: list[Object]) -> Object:
        """Gives the ReplicaSet of a restored template the newest revision."""
        metadata = replica_set["metadata"]
        revision = {REVISION: str(max(map(_revision, old)) + 1)}
        annotations = {**(metadata.get("annotations") or {}), **revision}
        body = {**replica_set, "metadata": {**metadata, "annotations": annotations}}
        return self.writer.update(REPLICA_SETS, replica_set, body)

    def _resize(self, deployment: Object, replica_set: Object, replicas: int) -> None:
        current = self.writer.store.get(REPLICA_SETS, *_key(replica_set))
        if (have := current["spec"]["replicas"]) != replicas:
            direction, name = "up" if have < replicas else "down", current["metadata"]["name"]
            message = f"Scaled {direction} replica set {name} from {have} to {replicas}"
            self.events.record("deployment-controller", (DEPLOYMENTS, deployment), "ScalingReplicaSet", message)
            body = {**current, "spec": {**current["spec"], "replicas": replicas}}
            self.writer.update(REPLICA_SETS, current, body)

    def _grow(self, deployment: Object, new: Object, old: list[Object], most: int) -> None:
        """Scales the new set up as far as the surge allows, or down to the desired count at once."""
        desired, current = deployment["spec"].get("replicas", 1), new["spec"]["replicas"]
        spare = most - current - sum(each["spec"]["replicas"] for each in old)
        self._resize(deployment, new, desired if current >= desired else min(desired, current + max(0, spare)))

    def _shrink(self, deployment: Object, new: Object, old: list[Object], least: int) -> None:
        """Scales the old sets down as far as availability allows, by unavailable pods first."""
        in_old = sum(each["spec"]["replicas"] for each in old)
        unavailable_new = new["spec"]["replicas"] - _available(new)
        budget = max(0, in_old + new["spec"]["replicas"] - least - unavailable_new)
        sizes = {each["metadata"]["name"]: each["spec"]["replicas"] for each in old}
        for each in old:
            unhealthy = min(budget, each["spec"]["replicas"] - _available(each))
            if unhealthy > 0:
                sizes[each["metadata"]["name"]] -= unhealthy
                budget -= unhealthy
        # the counts of available pods lag behind the sizes set just now: the budget keeps both within the limit
        spare = min(budget, _available(new) + sum(_available(each) for each in old) - least)
        for each in old:
            step = min(sizes[each["metadata"]["name"]], max(0, spare))
            sizes[each["metadata"]["name"]] -= step
            spare -= step
            self._resize(deployment, each, sizes[each["metadata"]["name"]])

    def _prune(self, old: list[Object], keep: int) -> None:
        empty = [each for each in old if not each["spec"]["replicas"] and not each["status"].get("replicas")]
        for each in empty[: max(0, len(empty) - keep)]:
            self.writer.delete(REPLICA_SETS, each)

    def _report(self, deployment: Object) -> None:
        new, old = self._split(deployment)
        if new is not None:
            self._mark(deployment, new)
        sets = [*old, new] if new else old
        desired, ready = deployment["spec"].get("replicas", 1), _total(sets, "readyReplicas")
        available, replicas = _total(sets, "availableReplicas"), _total(sets, "replicas")
        updated = _total([new], "replicas") if new else 0
        plan = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        complete = updated == desired == replicas == available
        numbers = {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": available,
            "unavailableReplicas": max(0, max(desired, replicas) - available),
        }
        status: Object = {name: number for name, number in numbers.items() if number}
        status["conditions"] = [
            self._condition(deployment, "Available", available >= desired - _limits(plan, desired)[1]),
            self._condition(deployment, "Progressing", True, complete),
        ]
        self.writer.set_status(DEPLOYMENTS, deployment, status)

    def _mark(self, deployment: Object, new: Object) -> None:
        """Writes the current revision into the Deployment's annotations, without a new generation."""
        current = self.writer.store.get(DEPLOYMENTS, *_key(deployment))
        annotations = current["metadata"].get("annotations") or {}
        revision = {REVISION: str(_revision(new))}
        if annotations.items() >= revision.items():
            return
        metadata = {**current["metadata"], "annotations": {**annotations, **revision}}
        self.writer.store.update(DEPLOYMENTS, {**current, "metadata": metadata})

    def _condition(self, deployment: Object, kind: str, holds: bool, complete: bool = False) -> Object:
        previous = pods.condition(deployment, kind) or {}
        now = strategy.timestamp(self.writer.clock.now())
        reasons = {
            ("Available", True): ("MinimumReplicasAvailable", "Deployment has minimum availability."),
            ("Available", False): (
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        }
        progress = ("NewReplicaSetAvailable" if complete else "ReplicaSetUpdated", "ReplicaSet is progressing.")
        reason, message = reasons.get((kind, holds), progress)
        value = "True" if holds else "False"
        same = previous.get("status") == value
        return {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": previous["lastTransitionTime"] if same else now,
            "lastUpdateTime": previous["lastUpdateTime"] if same and previous.get("reason") == reason else now,
        }


def _limits(plan: dict[str, Any], desired: int) -> tuple[int, int]:
    """Returns how many pods above, and how many below, the desired count an update may use.

    Source: Kubernetes 1.36, pkg/controller/deployment/util/deployment_util.go: ResolveFenceposts.
    """
    surge = _portion(plan.get("maxSurge", "25%"), desired, math.ceil)
    unavailable = _portion(plan.get("maxUnavailable", "25%"), desired, math.floor)
    # with both at zero (25% of few pods) an update could never take its first step
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _portion(value: Any, whole: int, rounding: Any) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return int(rounding(int(value[:-1]) * whole / 100))
    return int(value)


def _revision(replica_set: Object) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, "0"))


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _available(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _total(sets: list[Object], field: str) -> int:
    return sum(int((each.get("status") or {}).get(field, 0)) for each in sets)


@dataclass(frozen=True, eq=False, slots=True)
class ReplicaController:
    """Creates and deletes the pods of one kind of owner; deletes them in the order of `pods.deletion_rank`."""

    resource: Resource
    writer: Writer
    events: recorder.Recorder

    def reconcile(self, namespace: str, name: str) -> float | None:
        owner = self.writer.store.find(self.resource, namespace, name)
        if owner is None:
            return None
        if "deletionTimestamp" not in owner["metadata"]:
            self._scale(owner)
        return self._report(owner)

    def _scale(self, owner: Object) -> None:
        active = self._active(owner)
        missing = owner["spec"].get("replicas", 1) - len(active)
        for _ in range(missing):
            pod = pods.from_template(self.resource, owner, owner["spec"]["template"])
            pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
            made = self.writer.create(PODS, owner["metadata"]["namespace"], pod)
            self._record(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        for pod in sorted(active, key=pods.deletion_rank)[: max(0, -missing)]:
            self.writer.delete(PODS, pod)
            self._record(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _record(self, owner: Object, reason: str, message: str) -> None:
        component = {"ReplicaSet": "replicaset-controller"}.get(self.resource.kind, "replication-controller")
        self.events.record(component, (self.resource, owner), reason, message)

    def _active(self, owner: Object) -> list[Object]:
        return [pod for pod in pods.owned_pods(self.writer.store, owner["metadata"]["uid"]) if pods.is_active(pod)]

    def _report(self, owner: Object) -> float | None:
        active = self._active(owner)
        now, needed = self.writer.clock.now(), owner["spec"].get("minReadySeconds", 0)
        waits = [wait for pod in active if (wait := pods.available_in(pod, needed, now)) is not None]
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": len(waits),
            "availableReplicas": sum(wait <= 0 for wait in waits),
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        shown = {name: number for name, number in status.items() if number or name == "replicas"}
        self.writer.set_status(self.resource, owner, shown)
        return min((wait for wait in waits if wait > 0), default=None)
