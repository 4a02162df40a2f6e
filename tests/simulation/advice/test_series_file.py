"""The names of series: what is asked for by default, and the file that replaces some of them."""

import re
from pathlib import Path

import promql_parser
import pytest

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metadata import Key
from hpad.simulation.advice.reading import series
from hpad.simulation.advice.reading.series import DEFAULT, EXPRESSIONS, OF_HPAS, QueueExpressions, Series, SeriesLabels
from hpad.simulation.history import HistoryError

KEYS = [Key("shop", "web"), Key("shop", "cart.v1"), Key("blog", "web")]


def read(tmp_path: Path, text: str) -> Series:
    path = tmp_path / "series.yaml"
    path.write_text(text)
    return series.read_file(path)


def target(name: str, kind: str = "Deployment") -> CrossVersionObjectReference:
    return CrossVersionObjectReference(kind=kind, name=name, api_version="apps/v1")


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_expression_is_promql_with_its_variables_filled(name: str) -> None:
    matchers = DEFAULT.hpas(KEYS) if name in OF_HPAS else DEFAULT.pods_of(name, "shop", target("web"))
    expression = DEFAULT.of(name, matchers, 60)
    assert "<<" not in expression
    promql_parser.parse(expression)


def test_matchers_of_hpas_name_each_once() -> None:
    assert DEFAULT.hpas(KEYS) == 'namespace=~"blog|shop",horizontalpodautoscaler=~"cart[.]v1|web"'
    assert DEFAULT.hpas(KEYS[:1]) == 'namespace="shop",horizontalpodautoscaler="web"'


def test_a_name_cannot_leave_its_matcher() -> None:
    odd = 'a"b\\c\'d`e\n{}[5m],x=~".*"} or vector(1) # .+*?()|^$'
    for matchers in (DEFAULT.hpas([Key(odd, odd)]), DEFAULT.hpas([Key(odd, odd), Key("a", "b")])):
        promql_parser.parse(f"up{{{matchers}}}")
    name = odd[:40]
    pods = DEFAULT.pods_of("cpu_usage", odd, target(name), odd)
    found = promql_parser.parse(f"up{{{pods}}}")
    assert isinstance(found, promql_parser.VectorSelector)
    matched = {each.name: each.value for each in found.matchers.matchers}
    assert matched["namespace"] == odd
    assert re.fullmatch(matched["pod"], f"{name}-7d9f8b6c5d-zzzzz")


@pytest.mark.parametrize(
    ("kind", "name", "pods", "others"),
    [
        ("Deployment", "web", ["web-7d9f8b6c5d-x2x4z", "web-4-bcdfg"], ["web-api-7d9f8b6c5d-x2x4z", "web-0", "web"]),
        ("Deployment", "web", [], ["web-29012345-abcde", "web-29946825-bcdfg", "my-web-7d9f8b6c5d-x2x4z", "web-bcdfg"]),
        ("Rollout", "web", ["web-7d9f8b6c5d-x2x4z"], ["web-0"]),
        ("StatefulSet", "db", ["db-0", "db-12"], ["db-0-1", "db-a", "db-7d9f8b6c5d-x2x4z"]),
        ("ReplicaSet", "web", ["web-x2x4z"], ["web-7d9f8b6c5d-x2x4z"]),
        ("ReplicationController", "web", ["web-x2x4z"], ["web-abcde"]),
        ("DeploymentConfig", "web", ["web-12-x2x4z"], ["web-7d9f8b6c5d-x2x4z"]),
        ("Deployment", "v1.2", ["v1.2-7d9f8b6c5d-x2x4z"], ["v1x2-7d9f8b6c5d-x2x4z"]),
    ],
)
def test_pods_of_a_target_have_names_of_its_kind(kind: str, name: str, pods: list[str], others: list[str]) -> None:
    pattern = re.compile(DEFAULT.pod_names(target(name, kind)))
    assert [pod for pod in (*pods, *others) if pattern.fullmatch(pod)] == pods


@pytest.mark.parametrize("length", range(40, 70))
@pytest.mark.parametrize("template", ["7d9f8b6c5d", "84c5f4d"])
def test_the_pods_of_a_long_name_are_found(length: int, template: str) -> None:
    name = "a" * length
    pod = f"{name}-{template}-"[:58] + "x2x4z"  # as the API server generates a name
    assert re.fullmatch(DEFAULT.pod_names(target(name)), pod)


def test_a_window_is_two_steps_and_no_less_than_two_minutes(tmp_path: Path) -> None:
    assert "[120s]" in DEFAULT.of("cpu_usage", 'pod="a"', 15)
    assert "[600s]" in DEFAULT.of("cpu_usage", 'pod="a"', 300)
    assert "[300s]" in read(tmp_path, "window: 5m").of("cpu_usage", 'pod="a"', 15)


def test_a_file_names_only_what_differs(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """\
        series:
          cpu_usage: node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{<<.Pods>>}
        labels:
          kube_state_metrics: {namespace: exported_namespace, pod: exported_pod}
          cadvisor: {pod: pod_name}
        matchers: cluster="prod"
        pods: {Rollout: "<<.Name>>-[a-z0-9]+"}
        queues:
          shop/worker:
            orders: {messages: a, published: "rate(b[2m])", acked: "rate(c[2m])", per_replica: 2.5}
        """,
    )
    assert found.of("cpu_usage", 'pod="a"', 60) == (
        'node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{pod="a",cluster="prod"}'
    )
    assert found.expressions["current"] == EXPRESSIONS["current"]
    assert found.state == SeriesLabels("exported_namespace", "horizontalpodautoscaler", "exported_pod", "container")
    assert found.pods_of("cpu_usage", "shop", target("web", "Rollout")) == (
        'namespace="shop",pod_name=~"web-[a-z0-9]+",container!="",container!="POD"'
    )
    assert found.pods_of("cpu_requests", "shop", target("db", "StatefulSet"), "app") == (
        'exported_namespace="shop",exported_pod=~"db-[0-9]+",container="app"'
    )
    assert found.queues["shop/worker"]["orders"] == QueueExpressions("a", "rate(b[2m])", "rate(c[2m])", 2.5)
    assert found.file == str(tmp_path / "series.yaml")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing yet\n") == DEFAULT


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("serie: {}", "1: serie: unknown field; did you mean 'series'?"),
        ("series:\n  curent: x", "2: series.curent: unknown field; did you mean 'current'?"),
        (
            "series:\n  current: kube_x",
            "2: series.current: 'kube_x' lacks the variable <<.HPAs>>, as in kube_horizont",
        ),
        ("series:\n  cpu_usage: x{<<.HPAs>>}", "2: series.cpu_usage: 'x{<<.HPAs>>}' has the variable <<.HPAs>>; there"),
        (
            "series:\n  cpu_usage: rate(x{<<.Pods>>}",
            "2: series.cpu_usage: 'rate(x{<<.Pods>>}' is not PromQL: unclosed",
        ),
        ("series:\n  current: 3", "2: series.current: 3 is not text"),
        ("series: x", "1: series: 'x' is not a mapping"),
        ("labels: {cadvisor: {pods: x}}", "1: labels.cadvisor.pods: unknown field; did you mean 'pod'?"),
        ("labels: {cadvisor: {pod: a-b}}", "1: labels.cadvisor.pod: 'a-b' is not text with pattern ^[a-zA-Z_]"),
        ("matchers: cluster", "1: matchers: 'cluster' are no matchers of labels, such as cluster=\"prod\""),
        ('matchers: \'a="b"} or x{c="d"\'', "1: matchers: "),
        ("window: 5", "1: window: 5 is not text"),
        ("window: soon", "1: window: 'soon' is not a duration"),
        ("window: 0s", "1: window: '0s' is too short for a rate"),
        ("pods: {Rollout: web}", "1: pods.Rollout: 'web' lacks the variable <<.Name>>, as in <<.Name>>-[0-9]+"),
        ("pods: {Rollout: '<<.Name>>-['}", "1: pods.Rollout: '<<.Name>>-[' is not a regular expression: unterminated"),
        (
            "pods: {Rollout: '<<.Name>>a{99999999999}'}",
            "is not a regular expression: the repetition number is too large",
        ),
        ("queues: {a/b: {c: {messages: x}}}", "1: queues[a/b].c.published: is missing"),
        ("queues: {a/b: {c: {messages: x, published: x, acked: '<<.HPAs>>'}}}", "acked: '<<.HPAs>>' has the variable"),
        (
            "queues: {a/b: {c: {messages: x, published: x, acked: x, per_replica: 0}}}",
            "per_replica: 0 is not a number > 0",
        ),
        ("- a", "1: is not a mapping"),
        ("a: [", "series.yaml:"),
        ("window: 5m\nwindow: 6m", "series.yaml:"),
        ("window: 5m\n---\nwindow: 6m", "has 2 documents; one is needed"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_would_be_right(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(HistoryError) as caught:
        read(tmp_path, text)
    assert error in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "series.yaml"))


def test_all_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as caught:
        read(tmp_path, "window: soon\nseries:\n  current: x\n  desired: y\nmatchers: '3'\n")
    assert [line.split("series.yaml:")[1].split(":")[0] for line in str(caught.value).splitlines()] == [
        "1", "3", "4", "5",
    ]  # fmt: skip


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"absent.yaml: cannot be read: No such file or directory"):
        series.read_file(tmp_path / "absent.yaml")
