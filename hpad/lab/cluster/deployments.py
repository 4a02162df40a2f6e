"""Deployment: one ReplicaSet a template, and a rolling change from the old ones to the new one."""

import copy
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from hpad.lab.cluster import pods, recorder, strategy
from hpad.lab.cluster.resources import DEPLOYMENTS, REPLICA_SETS, Object, Resource
from hpad.lab.cluster.writes import Writer

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def template_hash(template: Object) -> str:
    """A short, stable name for a pod template (not the number that kube-controller-manager computes)."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(strategy.SUFFIX[byte % len(strategy.SUFFIX)] for byte in digest[:10])


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

    def _sets(self, deployment: Object) -> list[Object]:
        return pods.controlled(self.writer.store, REPLICA_SETS, deployment["metadata"]["uid"])

    def _split(self, deployment: Object) -> tuple[Object | None, list[Object]]:
        """The ReplicaSet of the current template, if there is one yet, and the others, oldest first."""
        label = template_hash(deployment["spec"]["template"])
        held = sorted(self._sets(deployment), key=_revision)
        new = next((each for each in held if each["metadata"]["labels"].get(HASH_LABEL) == label), None)
        return new, [each for each in held if each is not new]

    def _roll(self, deployment: Object) -> None:
        wanted = deployment["spec"].get("replicas", 1)
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
            self._resize(deployment, new or self._create(deployment, old), wanted)
            return
        new = new or self._create(deployment, old)
        limits = _limits(plan.get("rollingUpdate") or {}, wanted)
        self._grow(deployment, new, old, wanted + limits[0])
        self._shrink(deployment, self.writer.store.get(REPLICA_SETS, *_key(new)), old, wanted - limits[1])
        self._forget(old, deployment["spec"].get("revisionHistoryLimit", 10))

    def _create(self, deployment: Object, old: list[Object]) -> Object:
        metadata, spec = deployment["metadata"], deployment["spec"]
        label = template_hash(spec["template"])
        template = copy.deepcopy(spec["template"])
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[HASH_LABEL] = label
        selector = copy.deepcopy(spec["selector"])
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
        """A template that comes back is the newest revision again."""
        metadata = replica_set["metadata"]
        revision = {REVISION: str(max(map(_revision, old)) + 1)}
        annotations = {**(metadata.get("annotations") or {}), **revision}
        body = {**replica_set, "metadata": {**metadata, "annotations": annotations}}
        return self.writer.update(REPLICA_SETS, replica_set, body)

    def _resize(self, deployment: Object, replica_set: Object, replicas: int) -> None:
        current = self.writer.store.get(REPLICA_SETS, *_key(replica_set))
        if (have := current["spec"]["replicas"]) != replicas:
            way, name = "up" if have < replicas else "down", current["metadata"]["name"]
            message = f"Scaled {way} replica set {name} from {have} to {replicas}"
            self.events.record("deployment-controller", (DEPLOYMENTS, deployment), "ScalingReplicaSet", message)
            body = {**current, "spec": {**current["spec"], "replicas": replicas}}
            self.writer.update(REPLICA_SETS, current, body)

    def _grow(self, deployment: Object, new: Object, old: list[Object], most: int) -> None:
        """The new set up to what is wanted, as far as the surge allows; down at once."""
        wanted, have = deployment["spec"].get("replicas", 1), new["spec"]["replicas"]
        room = most - have - sum(each["spec"]["replicas"] for each in old)
        self._resize(deployment, new, wanted if have >= wanted else min(wanted, have + max(0, room)))

    def _shrink(self, deployment: Object, new: Object, old: list[Object], least: int) -> None:
        """Old sets down as far as availability allows, those pods that are not available first."""
        in_old = sum(each["spec"]["replicas"] for each in old)
        unavailable_new = new["spec"]["replicas"] - _available(new)
        budget = max(0, in_old + new["spec"]["replicas"] - least - unavailable_new)
        left = {each["metadata"]["name"]: each["spec"]["replicas"] for each in old}
        for each in old:
            unhealthy = min(budget, each["spec"]["replicas"] - _available(each))
            if unhealthy > 0:
                left[each["metadata"]["name"]] -= unhealthy
                budget -= unhealthy
        # what is counted as available may lag behind what was decided already: hence the budget as well
        spare = min(budget, _available(new) + sum(_available(each) for each in old) - least)
        for each in old:
            step = min(left[each["metadata"]["name"]], max(0, spare))
            left[each["metadata"]["name"]] -= step
            spare -= step
            self._resize(deployment, each, left[each["metadata"]["name"]])

    def _forget(self, old: list[Object], keep: int) -> None:
        empty = [each for each in old if not each["spec"]["replicas"] and not each["status"].get("replicas")]
        for each in empty[: max(0, len(empty) - keep)]:
            self.writer.delete(REPLICA_SETS, each)

    def _report(self, deployment: Object) -> None:
        new, old = self._split(deployment)
        if new is not None:
            self._mark(deployment, new)
        held = [*old, new] if new else old
        wanted, ready = deployment["spec"].get("replicas", 1), _total(held, "readyReplicas")
        available, replicas = _total(held, "availableReplicas"), _total(held, "replicas")
        updated = _total([new], "replicas") if new else 0
        plan = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        complete = updated == wanted == replicas == available
        numbers = {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": available,
            "unavailableReplicas": max(0, max(wanted, replicas) - available),
        }
        status: Object = {name: number for name, number in numbers.items() if number}
        status["conditions"] = [
            self._condition(deployment, "Available", available >= wanted - _limits(plan, wanted)[1]),
            self._condition(deployment, "Progressing", True, complete),
        ]
        self.writer.set_status(DEPLOYMENTS, deployment, status)

    def _mark(self, deployment: Object, new: Object) -> None:
        """The Deployment itself says at which revision it is, too; as with its status, that is no new generation."""
        current = self.writer.store.get(DEPLOYMENTS, *_key(deployment))
        annotations = current["metadata"].get("annotations") or {}
        revision = {REVISION: str(_revision(new))}
        if annotations.items() >= revision.items():
            return
        metadata = {**current["metadata"], "annotations": {**annotations, **revision}}
        self.writer.store.update(DEPLOYMENTS, {**current, "metadata": metadata})

    def _condition(self, deployment: Object, kind: str, holds: bool, complete: bool = False) -> Object:
        held = pods.condition(deployment, kind) or {}
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
        same = held.get("status") == value
        return {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": held["lastTransitionTime"] if same else now,
            "lastUpdateTime": held["lastUpdateTime"] if same and held.get("reason") == reason else now,
        }


def _limits(plan: dict[str, Any], wanted: int) -> tuple[int, int]:
    """How many pods more, and how many fewer, than wanted there may be during an update."""
    surge = _portion(plan.get("maxSurge", "25%"), wanted, math.ceil)
    unavailable = _portion(plan.get("maxUnavailable", "25%"), wanted, math.floor)
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
