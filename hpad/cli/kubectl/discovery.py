"""Finds hpad in a cluster: its Service and its pods, by the label `app.kubernetes.io/name=hpad` or by name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hpad.api.text import shown
from hpad.cli.kubectl.apiserver import ApiServer, StatusError
from hpad.cli.output import Failure, WrongUse

SELECTOR: Final = "app.kubernetes.io/name=hpad"
PORT: Final = 8473
MOST_PODS: Final = 32
_FORM: Final = re.compile(r"([a-z0-9.-]+)/(?:(https?):)?([a-z0-9.-]+)(?::([a-z0-9-]+))?")
_NAMES: Final = ("hpad", "https", "http")
_USUAL: Final = ("hpad", "kube-system")
"""Namespaces that are searched when the user may not list all."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Service:
    """A Service of hpad; `port` is the number or name of its port."""

    namespace: str
    name: str
    scheme: str
    port: str

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """The path through the API server. The scheme is left out for HTTP, as in `kubectl cluster-info`."""
        prefix = "https:" if self.scheme == "https" else ""
        return f"/api/v1/namespaces/{self.namespace}/services/{prefix}{self.name}:{self.port}/proxy"


@dataclass(frozen=True)
class Pod:
    """A pod of hpad, and the port on which hpad listens."""

    namespace: str
    name: str
    scheme: str
    port: int

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """The path through the API server."""
        prefix = "https:" if self.scheme == "https" else ""
        return f"/api/v1/namespaces/{self.namespace}/pods/{prefix}{self.name}:{self.port}/proxy"


@dataclass(frozen=True)
class Found:
    """Where hpad is. `denied` says what the user may not list."""

    service: Service | None = None
    pods: Sequence[Pod] = ()
    denied: Sequence[str] = field(default_factory=tuple)


def named(text: str) -> tuple[str, str, str, str]:
    """Parses `--service`: NAMESPACE/NAME, optionally with kubectl's scheme and port (`hpad/https:hpad:8473`).

    Returns namespace, scheme, name and port, "" for a missing one. Raises Failure.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise WrongUse(f"--service: {shown(text)} is not of the form NAMESPACE/NAME or NAMESPACE/https:NAME:PORT")
    namespace, scheme, name, port = match.groups(default="")
    return namespace, scheme, name, port


def find(api: ApiServer, chosen: str | None, namespace: str) -> Found:
    """Finds hpad by the Service `chosen`, else by its label; `namespace` is searched if not all may be listed.

    Raises Failure if there is none, or if the API server cannot be reached. Raises it also if there are several: an
    author of HPAs may label a Service as well, and must not be asked instead of hpad without the user's knowledge.
    """
    denied: list[str] = []
    if chosen is not None:
        return _of_name(api, chosen, denied)
    places = list(dict.fromkeys((namespace, *_USUAL)))
    services = _listed(api, "services", places, denied)
    if services:
        return _of_service(api, _only(services), denied)
    pods = _listed(api, "pods", places, denied)
    if not pods:
        raise Failure(_absent(denied))
    one = _only(pods)["metadata"]["namespace"]
    found = [_pod(pod, None) for pod in _running(pods) if pod["metadata"]["namespace"] == one]
    return Found(None, found[:MOST_PODS], denied)


def _of_name(api: ApiServer, chosen: str, denied: list[str]) -> Found:
    namespace, scheme, name, port = named(chosen)
    try:
        service = api.objects(f"/api/v1/namespaces/{namespace}/services/{name}")
    except StatusError as error:
        if error.code != 403:
            raise
        # The right to use the proxy does not include the right to read the Service.
        denied.append(f"get services in namespace {namespace}")
        return Found(Service(namespace, name, scheme or "http", port or str(PORT)), (), denied)
    return _of_service(api, service, denied, scheme, port)


def _of_service(api: ApiServer, service: Json, denied: list[str], scheme: str = "", port: str = "") -> Found:
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    entry = _port(service, port)
    number = port or str(entry.get("port", PORT))
    selector = (service.get("spec") or {}).get("selector") or {}
    listed = _pods_of(api, namespace, selector, denied) if selector else []
    pods = [_pod(pod, entry.get("targetPort"), scheme) for pod in _running(listed)]
    scheme = scheme or ("https" if _is_https(entry) else pods[0].scheme if pods else "http")
    return Found(Service(namespace, name, scheme, number), pods[:MOST_PODS], denied)


def _pods_of(api: ApiServer, namespace: str, selector: Mapping[str, str], denied: list[str]) -> Sequence[Json]:
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    return _list(api, f"/api/v1/namespaces/{namespace}/pods", labels, denied, f"list pods in namespace {namespace}")


def _listed(api: ApiServer, plural: str, namespaces: Iterable[str], denied: list[str]) -> Sequence[Json]:
    """Lists objects with the label in all namespaces; if that is forbidden, in those given.

    Notes in `denied` what is forbidden if there are none.
    """
    refused: list[str] = []
    found = _list(api, f"/api/v1/{plural}", SELECTOR, refused, f"list {plural} in all namespaces")
    if not refused:
        return found
    some: list[Json] = []
    for namespace in namespaces:
        what = f"list {plural} in namespace {namespace}"
        some += _list(api, f"/api/v1/namespaces/{namespace}/{plural}", SELECTOR, refused, what)
    if not some:
        denied += refused
    return some


def _list(api: ApiServer, path: str, labels: str, denied: list[str], what: str) -> Sequence[Json]:
    """Lists objects by labels; notes `what` in `denied` if it is forbidden."""
    try:
        return list(api.objects(path, labelSelector=labels, limit="500").get("items") or ())
    except StatusError as error:
        if error.code != 403:
            raise
        denied.append(what)
        return ()


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


def _port(service: Json, chosen: str) -> Json:
    """Returns the port `chosen` (a number or name) of a Service, else the port of hpad; {} if there is none."""
    ports: Sequence[Json] = (service.get("spec") or {}).get("ports") or ()
    if chosen:
        return next((each for each in ports if chosen in (str(each.get("port")), each.get("name"))), {})
    return _preferred(ports, "port")


def _preferred(ports: Sequence[Json], number: str) -> Json:
    """Returns the port with hpad's usual number, else with a usual name, else the first one; {} if there is none."""
    usual = next((each for each in ports if each.get(number) == PORT), None)
    names = [each for name in _NAMES for each in ports if each.get("name") == name]
    return usual or next(iter((*names, *ports)), {})


def _is_https(port: Json) -> bool:
    return "https" in (port.get("name"), str(port.get("appProtocol", "")).lower())


def _pod(pod: Json, target: int | str | None, scheme: str = "") -> Pod:
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
    return Pod(metadata["namespace"], metadata["name"], scheme or ("https" if secure else "http"), number)


def _probed_by_https(container: Json) -> bool:
    probes = [container.get(kind) or {} for kind in ("livenessProbe", "readinessProbe")]
    return any((probe.get("httpGet") or {}).get("scheme") == "HTTPS" for probe in probes)
