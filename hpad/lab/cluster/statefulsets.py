"""The StatefulSet controller: pods with stable names, created and deleted one at a time unless Parallel."""

from dataclasses import dataclass

from hpad.lab.cluster import deployments, pods, recorder
from hpad.lab.cluster.resources import PODS, STATEFUL_SETS, Object, Resource
from hpad.lab.cluster.writes import Writer

REVISION_LABEL = "controller-revision-hash"


@dataclass(frozen=True, eq=False, slots=True)
class StatefulSetController:
    """Creates, deletes and updates the pods of a StatefulSet. A pod is replaced only after it is gone."""

    writer: Writer
    events: recorder.Recorder
    resource: Resource = STATEFUL_SETS

    def reconcile(self, namespace: str, name: str) -> float | None:
        owner = self.writer.store.find(STATEFUL_SETS, namespace, name)
        if owner is None:
            return None
        if "deletionTimestamp" not in owner["metadata"]:
            self._scale(owner)
        self._report(owner)
        return None

    def _by_ordinal(self, owner: Object) -> dict[int, Object]:
        owned = pods.owned_pods(self.writer.store, owner["metadata"]["uid"])
        return {int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in owned}

    def _scale(self, owner: Object) -> None:
        spec, current = owner["spec"], self._by_ordinal(owner)
        ordered = spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        start = (spec.get("ordinals") or {}).get("start", 0)
        desired = range(start, start + spec.get("replicas", 1))
        for ordinal in desired:
            if not self._ensure(owner, ordinal, current.get(ordinal)) and ordered:
                return
        for ordinal in sorted(current.keys() - set(desired), reverse=True):
            if pods.is_active(current[ordinal]):
                self._delete(owner, current[ordinal])
            if ordered:
                return
        self._update(owner, current)

    def _ensure(self, owner: Object, ordinal: int, pod: Object | None) -> bool:
        """Creates a missing pod, deletes a finished one; returns True once it is ready and the next may follow."""
        if pod is None:
            self._create(owner, ordinal)
            return False
        if pods.phase(pod) in ("Failed", "Succeeded") and "deletionTimestamp" not in pod["metadata"]:
            self._delete(owner, pod)
            return False
        return pods.is_active(pod) and pods.is_ready(pod)

    def _create(self, owner: Object, ordinal: int) -> None:
        metadata = owner["metadata"]
        pod = pods.from_template(STATEFUL_SETS, owner, owner["spec"]["template"])
        name = f"{metadata['name']}-{ordinal}"
        pod["metadata"]["name"] = name
        pod["metadata"].setdefault("labels", {}).update(
            {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
                REVISION_LABEL: _revision(owner),
            }
        )
        pod["spec"].setdefault("hostname", name)
        self.writer.create(PODS, metadata["namespace"], pod)
        self._record(owner, "SuccessfulCreate", f"create Pod {name} in StatefulSet {metadata['name']} successful")

    def _delete(self, owner: Object, pod: Object) -> None:
        self.writer.delete(PODS, pod)
        message = f"delete Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']} successful"
        self._record(owner, "SuccessfulDelete", message)

    def _record(self, owner: Object, reason: str, message: str) -> None:
        self.events.record("statefulset-controller", (STATEFUL_SETS, owner), reason, message)

    def _update(self, owner: Object, current: dict[int, Object]) -> None:
        """Deletes one pod of an older template, that of the highest ordinal, while all others are ready."""
        plan = owner["spec"].get("updateStrategy") or {}
        partition = (plan.get("rollingUpdate") or {}).get("partition", 0)
        if plan.get("type") == "OnDelete":
            return
        if not all(pods.is_ready(pod) and pods.is_active(pod) for pod in current.values()):
            return
        for ordinal in sorted(current, reverse=True):
            if ordinal >= partition and current[ordinal]["metadata"]["labels"].get(REVISION_LABEL) != _revision(owner):
                self._delete(owner, current[ordinal])
                return

    def _report(self, owner: Object) -> None:
        current = self._by_ordinal(owner).values()
        now, needed = self.writer.clock.now(), owner["spec"].get("minReadySeconds", 0)
        waits = [wait for pod in current if (wait := pods.available_in(pod, needed, now)) is not None]
        revision = _revision(owner)
        updated = sum(pod["metadata"]["labels"].get(REVISION_LABEL) == revision for pod in current)
        numbers = {
            "readyReplicas": len(waits),
            "availableReplicas": sum(wait <= 0 for wait in waits),
            "updatedReplicas": updated,
            "currentReplicas": updated,
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        status: Object = {"replicas": len(current), **{name: number for name, number in numbers.items() if number}}
        status |= {"currentRevision": revision, "updateRevision": revision, "collisionCount": 0}
        self.writer.set_status(STATEFUL_SETS, owner, status)


def _revision(owner: Object) -> str:
    return f"{owner['metadata']['name']}-{deployments.template_hash(owner['spec']['template'])}"
