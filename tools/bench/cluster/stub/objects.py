"""The objects of a population as JSON, rendered from templates; what changes is kept as numbers and small pieces."""

import json
import time
from collections.abc import Iterable
from typing import Any, Final

from tools.bench.cluster import population
from tools.bench.cluster.population import SINCE, Document, Population

HPAS: Final = "horizontalpodautoscalers"
AUTOSCALERS: Final = "autoscalers"
PODS: Final = "pods"
DEPLOYMENTS: Final = "deployments"
EMPTY_STATUS: Final = b'{"desiredReplicas":0,"currentMetrics":null}'
_NUMBER: Final = 987_654_321
"""Stands for the number of an HPA while a template is made."""
_INDEX: Final = 76_543
"""Stands for the number of a pod."""
_PIECE: Final = "@piece@"
_TIME: Final = "@time@"


def compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def managed(manager: str, version: str, fields: Document, subresource: str = "", at: str = SINCE) -> Document:
    """Returns an entry of managedFields."""
    entry: Document = {
        "manager": manager, "operation": "Update", "apiVersion": version, "time": at, "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }  # fmt: skip
    return {**entry, "subresource": subresource} if subresource else entry


def fields_of(value: Any) -> Document:
    """Returns an object's fields in the form of FieldsV1; items of lists by their name or type."""
    if isinstance(value, dict):
        return {f"f:{name}": fields_of(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        key = "name" if "name" in value[0] else "type"
        items = {f'k:{{"{key}":"{each[key]}"}}': {".": {}, **fields_of(each)} for each in value if key in each}
        return {".": {}, **items}
    return {}


class Objects:
    """The HPAs, Deployments and pods. `version` is the newest one.

    `versions`, `statuses` and the times at which these were `written` (RFC 3339) are by number of the HPA.

    `pods` has the indexes of the pods of the HPAs whose pods have changed, `gone` the namespaces that were deleted.
    """

    def __init__(self, of: Population) -> None:
        self.population = of
        self.version = 1000
        self.statuses: dict[int, bytes] = {}
        self.written: dict[int, bytes] = {}
        self.versions: dict[int, int] = {}
        self.target_versions: dict[int, int] = {}
        self.pods: dict[int, range] = {}
        self.gone: set[str] = set()
        self._hpa, self._written_hpa = _hpa_template(of, written=False), _hpa_template(of, written=True)
        self._deployment = _deployment_template(of)
        self._pod = _pod_template(of)

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def numbers(self, namespace: str) -> Iterable[int]:
        """Returns the numbers of the HPAs that exist in a namespace, or in all of them ("")."""
        of = self.population
        if namespace:
            return () if namespace in self.gone else of.numbers(population.index_of(namespace))
        if not self.gone:
            return range(of.hpas)
        return [number for number in range(of.hpas) if of.namespace(number) not in self.gone]

    def hpa(self, number: int) -> bytes:
        status = self.statuses.get(number)
        template = self._hpa if status is None else self._written_hpa
        version, written = b"%d" % self.versions.get(number, 1000), self.written.get(number, b"")
        return _filled(template, self.population, number, version, status or EMPTY_STATUS, written)

    def write(self, number: int, status: bytes) -> int:
        """Stores the status of an HPA; returns its new resourceVersion."""
        version = self.versions[number] = self.next_version()
        self.statuses[number] = status
        self.written[number] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode()
        return version

    def indexes(self, number: int) -> range:
        """Returns the indexes of the pods of an HPA."""
        return self.pods.get(number, range(self.population.pods))

    def deployment(self, number: int) -> bytes:
        version, count = self.target_versions.get(number, 1000), len(self.indexes(number))
        return _filled(self._deployment, self.population, number, b"%d" % version, b"%d" % count)

    def scale(self, number: int) -> bytes:
        """Returns the Scale of a Deployment."""
        count = len(self.indexes(number))
        metadata = {
            "name": population.name(number), "namespace": self.population.namespace(number), "uid": uid(2, number),
            "resourceVersion": str(self.target_versions.get(number, 1000)), "creationTimestamp": SINCE,
        }  # fmt: skip
        status = {"replicas": count, "selector": f"app={population.name(number)}"}
        head = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
        return compact({**head, "spec": {"replicas": count}, "status": status})

    def pod(self, number: int, index: int, version: int | None = None) -> bytes:
        """Returns a pod; without a version, it has that of the last scale of its Deployment."""
        version = self.target_versions.get(number, 1000) if version is None else version
        return _filled(self._pod, self.population, number, b"%d" % version, b"%d" % index)


def uid(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def _metadata(document: Document, kind: int, entries: list[Document]) -> Document:
    """Adds what the server sets; the resourceVersion is a mark."""
    own = {"uid": uid(kind, _NUMBER), "resourceVersion": "@version@", "creationTimestamp": SINCE}
    return {**document["metadata"], **own, "managedFields": entries}


def _hpa_template(of: Population, *, written: bool) -> bytes:
    made = population.hpa(of._replace(per_namespace=1), _NUMBER)
    entries = [managed("kubectl-client-side-apply", made["apiVersion"], {"f:spec": fields_of(made["spec"])})]
    if written:
        types = ("AbleToScale", "ScalingActive", "ScalingLimited")
        names = ("lastTransitionTime", "message", "reason", "status", "type")
        conditions = [{**dict.fromkeys(names, ""), "type": each} for each in types]
        status = {"conditions": conditions, "currentMetrics": {}, "currentReplicas": 0, "desiredReplicas": 0}
        entries.append(managed("hpad", made["apiVersion"], {"f:status": fields_of(status)}, "status", _TIME))
    head = {"kind": made["kind"], "apiVersion": made["apiVersion"], "metadata": _metadata(made, 1, entries)}
    return _escaped(compact({**head, "spec": made["spec"], "status": _PIECE}), f'"{_PIECE}"')


def _deployment_template(of: Population) -> bytes:
    made = population.deployment(of._replace(per_namespace=1, pods=_INDEX), _NUMBER)
    spec, status = fields_of(made["spec"]), fields_of(made["status"])
    entries = [
        managed("kubectl-client-side-apply", "apps/v1", {"f:spec": spec}),
        managed("kube-controller-manager", "apps/v1", {"f:status": status}, "status"),
    ]
    return _escaped(compact({**made, "metadata": _metadata(made, 2, entries)}), str(_INDEX))


def _pod_template(of: Population) -> bytes:
    made = population.pod(of._replace(per_namespace=1), _NUMBER, _INDEX)
    status = population.pod_status(0, 0)
    entries = [
        managed("kube-controller-manager", "v1", {"f:spec": fields_of(made["spec"])}),
        managed("kubelet", "v1", {"f:status": fields_of(status)}, "status"),
    ]
    made["metadata"] = _metadata(made, 3, entries)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": population.name(_NUMBER), "uid": uid(4, _NUMBER)}
    made["metadata"]["uid"] = f"{_INDEX}{uid(3, _NUMBER)[8:]}"
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    return _escaped(compact({**made, "status": status}), str(_INDEX))


def _escaped(template: bytes, piece: str) -> bytes:
    """Makes a template for `_filled`."""
    for old, new in (
        (b"%", b"%%"),
        (b"@version@", b"%(version)b"),
        (_TIME.encode(), b"%(time)b"),
        (population.namespace(_NUMBER).encode(), b"%(namespace)b"),
        (uid(1, _NUMBER).encode()[-12:], b"%(uid)b"),
        (str(_NUMBER).encode(), b"%(number)b"),
        (piece.encode(), b"%(piece)b"),
    ):
        template = template.replace(old, new)
    return template


def _filled(template: bytes, of: Population, number: int, version: bytes, piece: bytes, written: bytes = b"") -> bytes:
    return template % {
        b"version": version,
        b"time": written,
        b"namespace": of.namespace(number).encode(),
        b"uid": b"%012x" % number,
        b"number": b"%d" % number,
        b"piece": piece,
    }
