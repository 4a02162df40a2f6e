"""Finds hpad in a cluster: its Service and its pods, by the label `app.kubernetes.io/name=hpad` or by name."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hpad.api.text import begin, shown
from hpad.cli.kubectl.command import Forbidden, Kubectl
from hpad.cli.output import Failure, WrongUse

SELECTOR: Final = "app.kubernetes.io/name=hpad"
PORT: Final = 8473
_FORM: Final = re.compile(r"([a-z0-9.-]+)/([a-z0-9.-]+)")
_NAMES: Final = ("hpad", "https", "http")
_USUAL: Final = ("hpad", "kube-system")
"""Namespaces that are searched when the user may not list all."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class HpadPod:
    """A pod of hpad, the port on which hpad listens, and the Service that was found or named, "" without one."""

    namespace: str
    name: str
    scheme: str
    port: int
    service: str = ""

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


def find(kubectl: Kubectl, chosen: str | None, namespace: str) -> list[HpadPod]:
    """Finds the pods of hpad by the Service `chosen`, else by its label; ready ones come first.

    `namespace` is searched if not all may be listed. Raises Failure if there is no pod, or if kubectl fails. Raises it
    also if there are several hpads: an author of HPAs may label a Service as well, and must not be asked instead of
    hpad without the user's knowledge.
    """
    search = _Search(kubectl, tuple(dict.fromkeys((namespace, *_USUAL))))
    if chosen is not None:
        return search.of_service(search.service(chosen))
    services = search.labelled("services")
    if services:
        return search.of_service(_only(services))
    pods = search.labelled("pods")
    if not pods:
        raise Failure(_absent(search.denied))
    _only(pods)
    return [_pod(pod, None) for pod in _running(pods)]


class _Search:
    """Lists objects with kubectl. `denied` says what the user may not list."""

    def __init__(self, kubectl: Kubectl, places: Sequence[str]) -> None:
        self._kubectl = kubectl
        self._places = places
        self.denied: list[str] = []

    def service(self, chosen: str) -> Json:
        """Returns the Service that `--service` names; raises Failure."""
        match = _FORM.fullmatch(chosen)
        if match is None:
            raise WrongUse(f"--service: {shown(chosen)} is not of the form NAMESPACE/NAME")
        return self._get(f"service/{match[2]}", f"--namespace={match[1]}")

    def of_service(self, service: Json) -> list[HpadPod]:
        """Returns the running pods of a Service; raises Failure if there is none."""
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        entry = _preferred((service.get("spec") or {}).get("ports") or (), "port")
        selector = (service.get("spec") or {}).get("selector") or {}
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        pods = self._list("pods", f"--namespace={namespace}", labels) if labels else ()
        found = [
            _pod(pod, entry.get("targetPort"), "https" if _is_https(entry) else "", name) for pod in _running(pods)
        ]
        if not found:
            raise Failure(f"the Service {namespace}/{name} has no running pod: its selector is {shown(labels)}")
        return found

    def labelled(self, plural: str) -> Sequence[Json]:
        """Returns the objects with the label of all namespaces; if that is forbidden, those of some.

        Notes in `denied` what is forbidden if there are none.
        """
        try:
            return self._list(plural, "--all-namespaces", SELECTOR)
        except Forbidden:
            refused, found = [f"list {plural} in all namespaces"], list[Json]()
        for namespace in self._places:
            try:
                found += self._list(plural, f"--namespace={namespace}", SELECTOR)
            except Forbidden:
                refused.append(f"list {plural} in namespace {namespace}")
        if not found:
            self.denied += refused
        return found

    def _list(self, plural: str, scope: str, labels: str) -> Sequence[Json]:
        return list(self._get(plural, scope, f"--selector={labels}").get("items") or ())

    def _get(self, *arguments: str) -> Json:
        text = self._kubectl.output("get", *arguments, "--output=json")
        try:
            found: Json = json.loads(text)
        except ValueError:  # as of a wrapper of kubectl that prints a line of its own
            raise Failure(f"kubectl get has printed something else than JSON: {shown(begin(text))}") from None
        return found


def _only(objects: Sequence[Json]) -> Json:
    """Returns the first object; raises Failure if they are in several namespaces."""
    places = sorted({each["metadata"]["namespace"] for each in objects})
    if len(places) > 1:
        raise Failure(
            f"there is an hpad in each of the namespaces {', '.join(places)}: choose one with --service NAMESPACE/NAME"
        )
    return objects[0]


def _absent(denied: Sequence[str]) -> str:
    where = f" that you may see (you may not {', '.join(denied)})" if denied else ""
    return (
        f"there is no Service or pod with the label {SELECTOR}{where}: name hpad's Service with --service "
        "NAMESPACE/NAME, or its address with --address"
    )


def _running(pods: Iterable[Json]) -> Iterator[Json]:
    """Yields the pods that may answer, ready ones first."""
    alive = [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    yield from sorted(alive, key=lambda pod: (not _is_ready(pod), pod["metadata"]["name"]))


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _preferred(ports: Sequence[Json], number: str) -> Json:
    """Returns the port with hpad's usual number, else with a usual name, else the first one; {} if there is none."""
    usual = next((each for each in ports if each.get(number) == PORT), None)
    names = [each for name in _NAMES for each in ports if each.get("name") == name]
    return usual or next(iter((*names, *ports)), {})


def _is_https(port: Json) -> bool:
    return "https" in (port.get("name"), str(port.get("appProtocol", "")).lower())


def _pod(pod: Json, target: int | str | None, scheme: str = "", service: str = "") -> HpadPod:
    """Returns a pod, and the number of the port `target` of its Service; None: the port of hpad."""
    containers: Sequence[Json] = pod["spec"].get("containers") or ()
    ports = [(each, container) for container in containers for each in container.get("ports") or ()]
    if isinstance(target, int):
        matching = [each for each, _ in ports if each.get("containerPort") == target]
    elif target is not None:
        matching = [each for each, _ in ports if each.get("name") == target]
    else:
        matching = [_preferred([each for each, _ in ports], "containerPort")]
    entry: Json = next(iter(matching), {})
    number = int(entry.get("containerPort", target if isinstance(target, int) else PORT))
    container: Json = next((owner for each, owner in ports if each is entry), {})
    secure = _is_https(entry) or _probed_by_https(container)
    metadata = pod["metadata"]
    return HpadPod(metadata["namespace"], metadata["name"], scheme or ("https" if secure else "http"), number, service)


def _probed_by_https(container: Json) -> bool:
    probes = [container.get(kind) or {} for kind in ("livenessProbe", "readinessProbe")]
    return any((probe.get("httpGet") or {}).get("scheme") == "HTTPS" for probe in probes)
