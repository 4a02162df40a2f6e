"""How `kubectl hpad` finds hpad in a cluster."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support import overlays

from hpad.cli.kubectl import discovery
from hpad.cli.kubectl.command import Forbidden
from hpad.cli.kubectl.discovery import SELECTOR, HpadPod
from hpad.cli.output import Failure

Json = dict[str, Any]


class Lister:
    """Answers `kubectl get` from these objects; `denied` are the scopes in which lists are forbidden."""

    def __init__(self, *objects: Json, denied: Sequence[str] = ()) -> None:
        self.objects = objects
        self.denied = denied

    def output(self, *arguments: str) -> str:
        verb, what, scope, *options = arguments
        assert (verb, options[-1]) == ("get", "--output=json")
        if scope in self.denied:
            raise Forbidden(f"{what} is forbidden")
        kind, _, name = what.partition("/")
        found = [each for each in self.objects if each["kind"].lower() == kind.removesuffix("s")]
        if scope != "--all-namespaces":
            found = [each for each in found if f"--namespace={each['metadata']['namespace']}" == scope]
        if name:
            named = [each for each in found if each["metadata"]["name"] == name]
            if not named:
                raise Failure(f'kubectl get: (NotFound): services "{name}" not found')
            return json.dumps(named[0])
        wanted = dict(pair.split("=") for pair in options[0].removeprefix("--selector=").split(","))
        matching = [each for each in found if wanted.items() <= each["metadata"]["labels"].items()]
        return json.dumps({"items": matching}, default=str)


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


def find(lister: Lister, chosen: str | None = None, namespace: str = "shop") -> list[HpadPod]:
    return discovery.find(lister, chosen, namespace)  # type: ignore[arg-type]


def test_the_pods_of_the_service_with_the_label_are_found() -> None:
    found = find(Lister(service(), pod("a"), pod("b")))
    assert found == [HpadPod("hpad", "a", "http", 8473, "hpad"), HpadPod("hpad", "b", "http", 8473, "hpad")]


def test_pods_are_found_without_a_service() -> None:
    assert find(Lister(pod("a"))) == [HpadPod("hpad", "a", "http", 8473)]


def test_ready_pods_come_first_and_those_that_cannot_answer_are_left_out() -> None:
    pods = [
        pod("a", ready=False),
        pod("b"),
        pod("c", phase="Pending"),
        pod("d", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("e", phase="Failed"),
    ]
    assert [each.name for each in find(Lister(service(), *pods))] == ["b", "a"]


@pytest.mark.parametrize(
    ("ports", "of_pod", "expected"),
    [
        ([{"port": 80, "targetPort": 9000}], [{"containerPort": 9000}], ("http", 9000)),
        ([{"port": 80, "targetPort": 9000}], [], ("http", 9000)),
        ([{"name": "https", "port": 443, "targetPort": "t"}], [{"name": "t", "containerPort": 8443}], ("https", 8443)),
        ([{"port": 443, "targetPort": 8443, "appProtocol": "HTTPS"}], [{"containerPort": 8443}], ("https", 8443)),
        (
            [{"name": "metrics", "port": 1, "targetPort": 1}, {"name": "http", "port": 2, "targetPort": 2}],
            [{"containerPort": 1}, {"containerPort": 2}],
            ("http", 2),
        ),
        (
            [{"name": "http", "port": 1, "targetPort": 1}, {"name": "x", "port": 8473, "targetPort": 2}],
            [{"containerPort": 1}, {"containerPort": 2}],
            ("http", 2),
        ),
    ],
)  # fmt: skip
def test_the_port_of_hpad_is_found_by_number_or_name(
    ports: list[Json], of_pod: list[Json], expected: tuple[str, int]
) -> None:
    [found] = find(Lister(service(*ports), pod("a", *of_pod)))
    assert (found.scheme, found.port) == expected


@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe"])
def test_a_pod_that_is_probed_by_https_serves_tls(kind: str) -> None:
    [found] = find(Lister(service(), pod("a", container={kind: {"httpGet": {"scheme": "HTTPS", "port": "http"}}})))
    assert found.scheme == "https"


def test_a_service_is_chosen_by_name() -> None:
    other = service({"port": 80, "targetPort": 9000}, namespace="shop", name="other")
    lister = Lister(service(), other, pod("a"), pod("b", namespace="shop"))
    assert find(lister, "shop/other") == [HpadPod("shop", "b", "http", 9000, "other")]
    with pytest.raises(Failure, match='services "none" not found'):
        find(lister, "shop/none")


def test_a_service_without_a_running_pod_is_an_error() -> None:
    with pytest.raises(Failure, match=r"^the Service hpad/hpad has no running pod: its selector is 'app"):
        find(Lister(service(), pod("a", phase="Pending")))


@pytest.mark.parametrize("text", ["hpad", "hpad/", "/hpad", "a/b/c", "hpad/https:hpad", "hpad/hpad:80", "A/b", "a/b c"])
def test_other_names_of_services_are_refused(text: str) -> None:
    with pytest.raises(Failure, match=r"--service: .* is not of the form NAMESPACE/NAME"):
        find(Lister(), text)


def test_without_the_right_to_list_all_services_the_usual_namespaces_are_searched() -> None:
    for namespace in ("hpad", "kube-system", "shop"):
        lister = Lister(service(namespace=namespace), pod("a", namespace=namespace), denied=["--all-namespaces"])
        assert [each.namespace for each in find(lister, namespace="shop")] == [namespace]
    with pytest.raises(Failure, match=r"name=hpad that you may see \(you may not list services in all namespaces"):
        find(Lister(service(namespace="elsewhere"), denied=["--all-namespaces"]))


def test_pods_that_may_not_be_listed_are_an_error() -> None:
    class Narrow(Lister):
        def output(self, *arguments: str) -> str:
            if arguments[1] == "pods":
                raise Forbidden("pods is forbidden")
            return super().output(*arguments)

    with pytest.raises(Forbidden, match="pods is forbidden"):
        find(Narrow(service(), pod("a")))


def test_none_is_an_error_that_names_the_label() -> None:
    with pytest.raises(Failure, match=f"^there is no Service or pod with the label {SELECTOR}: name hpad's Service"):
        find(Lister())


@pytest.mark.parametrize("kind", [service, lambda **options: pod("a", **options)])
def test_of_several_hpads_none_is_chosen_in_silence(kind: Any) -> None:
    lister = Lister(kind(namespace="hpad"), kind(namespace="shop"))
    with pytest.raises(Failure, match=r"^there is an hpad in each of the namespaces hpad, shop: choose one with"):
        find(lister, namespace="shop")


@pytest.mark.parametrize(
    ("overlay", "namespace", "name"), [("replace", "hpad", "hpad"), ("sidecar", "shop", "worker-hpad")]
)
def test_the_hpad_of_the_sample_manifests_is_found(overlay: str, namespace: str, name: str) -> None:
    documents = overlays.documents(overlay)
    services = [each for each in documents if each["kind"] == "Service"]
    template = next(each["spec"]["template"] for each in documents if each["kind"] == "Deployment")
    head = {"kind": "Pod", "status": {"phase": "Running"}}
    instance = {**head, **template, "metadata": {**template["metadata"], "namespace": namespace, "name": "a"}}
    assert find(Lister(*services, instance)) == [HpadPod(namespace, "a", "http", 8473, name)]


def test_a_kubectl_that_prints_more_than_json_is_named() -> None:
    class Wrapped(Lister):
        def output(self, *arguments: str) -> str:
            return "Logged in as me\n" + super().output(*arguments)

    for chosen in (None, "hpad/hpad"):
        with pytest.raises(Failure, match=r"^kubectl get has printed something else than JSON: 'Logged in as me"):
            find(Wrapped(service()), chosen)


def test_other_errors_are_those_of_kubectl() -> None:
    class Failing(Lister):
        def output(self, *arguments: str) -> str:
            raise Failure("kubectl get: etcdserver: leader changed")

    with pytest.raises(Failure, match=r"^kubectl get: etcdserver: leader changed$"):
        find(Failing())
