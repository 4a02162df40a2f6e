"""How `kubectl hpad` finds hpad in a cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpad.cli.kubectl import discovery
from hpad.cli.kubectl.apiserver import StatusError
from hpad.cli.kubectl.discovery import SELECTOR, Pod, Service
from hpad.cli.output import Failure

Json = dict[str, Any]


class Api:
    """Answers lists and reads from these objects; `denied` are the paths that are forbidden."""

    def __init__(self, *objects: Json, denied: Sequence[str] = ()) -> None:
        self.objects_ = objects
        self.denied = denied

    def objects(self, path: str, **query: str) -> Any:
        if path in self.denied:
            raise StatusError(403, f"{path} is forbidden")
        parts = path.split("/")[3:]
        namespace = parts[1] if parts[0] == "namespaces" else None
        plural, name = (*(parts[2:] if namespace else parts), "")[:2]
        found = [each for each in self.objects_ if each["kind"].lower() + "s" == plural]
        found = [each for each in found if namespace in (None, each["metadata"]["namespace"])]
        if name:
            named = [each for each in found if each["metadata"]["name"] == name]
            if not named:
                raise StatusError(404, f'{plural} "{name}" not found')
            return named[0]
        labels = [pair.split("=") for pair in query["labelSelector"].split(",")]
        return {
            "items": [
                each for each in found if all(each["metadata"]["labels"].get(key) == value for key, value in labels)
            ]
        }


CONFIG = Path(__file__).resolve().parents[2] / "config"
LABELS = {"app.kubernetes.io/name": "hpad"}


def service(*ports: Json, namespace: str = "hpad", name: str = "hpad", **spec: Any) -> Json:
    listed = list(ports) or [{"name": "http", "port": 8473, "targetPort": "http"}]
    metadata = {"namespace": namespace, "name": name, "labels": LABELS}
    return {"kind": "Service", "metadata": metadata, "spec": {"selector": LABELS, "ports": listed, **spec}}


def pod(name: str, *ports: Json, namespace: str = "hpad", ready: bool = True, **more: Any) -> Json:
    container = {"ports": list(ports) or [{"name": "http", "containerPort": 8473}], **more.pop("container", {})}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    metadata = {"namespace": namespace, "name": name, "labels": LABELS, **more.pop("metadata", {})}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}, "status": {**status, **more}}


def find(api: Api, chosen: str | None = None, namespace: str = "shop") -> discovery.Found:
    return discovery.find(api, chosen, namespace)  # type: ignore[arg-type]


def test_the_service_with_the_label_and_its_pods_are_found() -> None:
    found = find(Api(service(), pod("a"), pod("b")))
    assert found.service == Service("hpad", "hpad", "http", "8473")
    assert found.pods == [Pod("hpad", "a", "http", 8473), Pod("hpad", "b", "http", 8473)]
    assert found.service.path == "/api/v1/namespaces/hpad/services/hpad:8473/proxy"
    assert found.pods[0].path == "/api/v1/namespaces/hpad/pods/a:8473/proxy"


def test_pods_are_found_without_a_service() -> None:
    assert find(Api(pod("a"))) == discovery.Found(None, [Pod("hpad", "a", "http", 8473)], [])


def test_ready_pods_come_first_and_those_that_cannot_answer_are_left_out() -> None:
    pods = [
        pod("a", ready=False),
        pod("b"),
        pod("c", phase="Pending"),
        pod("d", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("e", phase="Failed"),
    ]
    assert [each.name for each in find(Api(service(), *pods)).pods] == ["b", "a"]


@pytest.mark.parametrize(
    ("ports", "of_pod", "expected"),
    [
        ([{"port": 80, "targetPort": 9000}], [{"containerPort": 9000}], ("http", "80", 9000)),
        ([{"port": 80, "targetPort": 9000}], [], ("http", "80", 9000)),
        (
            [{"name": "https", "port": 443, "targetPort": "tls"}],
            [{"name": "tls", "containerPort": 8443}],
            ("https", "443", 8443),
        ),
        (
            [{"port": 443, "targetPort": 8443, "appProtocol": "HTTPS"}],
            [{"containerPort": 8443}],
            ("https", "443", 8443),
        ),
        (
            [{"name": "metrics", "port": 1, "targetPort": 1}, {"name": "http", "port": 2, "targetPort": 2}],
            [{"containerPort": 1}, {"containerPort": 2}],
            ("http", "2", 2),
        ),
        (
            [{"name": "http", "port": 1, "targetPort": 1}, {"name": "x", "port": 8473, "targetPort": 2}],
            [{"containerPort": 1}, {"containerPort": 2}],
            ("http", "8473", 2),
        ),
    ],
)  # fmt: skip
def test_the_port_of_hpad_is_found_by_number_or_name(
    ports: list[Json], of_pod: list[Json], expected: tuple[str, str, int]
) -> None:
    found = find(Api(service(*ports), pod("a", *of_pod)))
    assert found.service is not None
    assert (found.service.scheme, found.service.port, found.pods[0].port) == expected


@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe"])
def test_a_pod_that_is_probed_by_https_serves_tls(kind: str) -> None:
    found = find(Api(service(), pod("a", container={kind: {"httpGet": {"scheme": "HTTPS", "port": "http"}}})))
    assert found.service is not None
    assert (found.service.scheme, found.pods[0].scheme) == ("https", "https")
    assert found.service.path == "/api/v1/namespaces/hpad/services/https:hpad:8473/proxy"
    assert found.pods[0].path == "/api/v1/namespaces/hpad/pods/https:a:8473/proxy"


def test_a_service_is_chosen_by_name() -> None:
    api = Api(service(), service({"port": 80, "targetPort": 9000}, namespace="shop", name="other"))
    assert find(api, "shop/other").service == Service("shop", "other", "http", "80")
    assert find(api, "shop/https:other:443").service == Service("shop", "other", "https", "443")
    with pytest.raises(StatusError, match='services "none" not found'):
        find(api, "shop/none")


def test_a_named_service_that_may_not_be_read_may_still_be_used() -> None:
    api = Api(service(), denied=["/api/v1/namespaces/hpad/services/hpad"])
    found = find(api, "hpad/hpad")
    assert found == discovery.Found(Service("hpad", "hpad", "http", "8473"), (), ["get services in namespace hpad"])


@pytest.mark.parametrize(
    "text", ["hpad", "hpad/", "/hpad", "a/b/c", "hpad/ftp:hpad:1", "hpad/hpad:80/x", "A/b", "a/b c"]
)
def test_other_names_of_services_are_refused(text: str) -> None:
    with pytest.raises(Failure, match=r"--service: .* is not of the form NAMESPACE/NAME"):
        find(Api(), text)


def test_without_the_right_to_list_all_services_the_usual_namespaces_are_searched() -> None:
    all_denied = ["/api/v1/services", "/api/v1/pods"]
    for namespace in ("hpad", "kube-system", "shop"):
        api = Api(service(namespace=namespace), pod("a", namespace=namespace), denied=all_denied)
        found = find(api, namespace="shop")
        assert found.service is not None
        assert (found.service.namespace, [each.namespace for each in found.pods]) == (namespace, [namespace])
    with pytest.raises(Failure, match=r"name=hpad that you may see \(you may not list s"):
        find(Api(service(namespace="elsewhere"), denied=all_denied))


def test_pods_that_may_not_be_listed_are_noted() -> None:
    found = find(Api(service(), pod("a"), denied=["/api/v1/namespaces/hpad/pods"]))
    assert found.service is not None
    assert (found.pods, found.denied) == ([], ["list pods in namespace hpad"])


def test_none_is_an_error_that_names_the_label() -> None:
    with pytest.raises(Failure, match=f"^there is no Service or pod with the label {SELECTOR}: name hpad's Service"):
        find(Api())


@pytest.mark.parametrize("kind", [service, lambda **options: pod("a", **options)])
def test_of_several_hpads_none_is_chosen_in_silence(kind: Any) -> None:
    api = Api(kind(namespace="hpad"), kind(namespace="shop"))
    with pytest.raises(Failure, match=r"^there is an hpad in each of the namespaces hpad, shop: choose one with"):
        find(api, namespace="shop")


@pytest.mark.parametrize(
    ("file", "namespace", "name"), [("deployment.yaml", "hpad", "hpad"), ("sidecar.yaml", "shop", "worker-hpad")]
)
def test_the_hpad_of_the_sample_manifests_is_found(file: str, namespace: str, name: str) -> None:
    documents = list(yaml.safe_load_all((CONFIG / file).read_text("utf-8")))
    services = [each for each in documents if each["kind"] == "Service"]
    template = next(each["spec"]["template"] for each in documents if each["kind"] == "Deployment")
    head = {"kind": "Pod", "status": {"phase": "Running"}}
    instance = {**head, **template, "metadata": {**template["metadata"], "namespace": namespace, "name": "a"}}
    found = find(Api(*services, instance))
    assert found.service == Service(namespace, name, "http", "8473")
    assert found.pods == [Pod(namespace, "a", "http", 8473)]


def test_other_errors_are_those_of_the_api_server() -> None:
    class Failing(Api):
        def objects(self, path: str, **query: str) -> Any:
            raise StatusError(500, "etcdserver: leader changed")

    with pytest.raises(StatusError, match=r"^the API server answered 500: etcdserver: leader changed$"):
        find(Failing())
