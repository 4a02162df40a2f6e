"""Which source answers: routes first, then the sources' own rules, then what their adapters serve."""

from typing import Any

import msgspec
import pytest

from hpad import settings, testing
from hpad.adapter import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE, AdapterError
from hpad.sources.manager import RoutePlan
from hpad.sources.offers import Offer


def offer(name: str, match: tuple[settings.Match, ...] = (), namespaces: tuple[str, ...] = (), **fields: Any) -> Offer:
    source = settings.SourceSettings(name=name, adapter=name, match=match, namespaces=namespaces)
    return Offer(settings=source, **fields)


def rabbit(match: tuple[settings.Match, ...], **fields: Any) -> Offer:
    """Returns the offer of RABBITMQ with these rules."""
    metrics = ("queue_messages", "queue_messages_ready")
    return offer("rabbit", match, serves=frozenset({EXTERNAL}), metrics=metrics, **fields)


METRICS_SERVER = offer("metrics-server", serves=frozenset({RESOURCE, CONTAINER_RESOURCE}))
RABBITMQ = rabbit(())
EXTERNAL_METRICS = offer("external-metrics", serves=frozenset({EXTERNAL}))


def route(source: str, **match: object) -> settings.Route:
    return settings.Route(match=settings.Match(**match), source=source)


@pytest.mark.parametrize(
    ("query", "source"),
    [
        (testing.resource("cpu", "app=web"), "metrics-server"),
        (testing.container_resource("memory", "app", "app=web"), "metrics-server"),
        (testing.external("queue_messages", "queue=a"), "rabbit"),
        (testing.external("queue_messages_ready", "queue=a"), "rabbit"),
        (testing.external("requests_per_second"), "external-metrics"),
    ],
)
def test_without_routes_adapters_and_match_rules_decide(query, source):
    assert RoutePlan((), (METRICS_SERVER, RABBITMQ, EXTERNAL_METRICS)).source(query) == source


@pytest.mark.parametrize(
    ("match", "goes"),
    [
        ({}, True),
        ({"types": (EXTERNAL,)}, True),
        ({"types": (PODS, OBJECT)}, False),
        ({"metrics": ("queue_*",)}, True),
        ({"metrics": ("Queue_*", "other")}, False),
        ({"namespaces": ("shop-*",)}, True),
        ({"namespaces": ("default",)}, False),
        ({"types": (EXTERNAL,), "metrics": ("queue_messages",), "namespaces": ("default",)}, False),
        ({"labels": {"queue": "a"}}, True),
        ({"labels": {"queue": "[ab]"}}, True),
        ({"labels": {"queue": "b"}}, False),
        ({"labels": {"queue": "a", "vhost": "*"}}, False),
    ],
)
def test_a_route_matches_when_all_of_its_fields_fit(match, goes):
    plan = RoutePlan([route("external-metrics", **match)], (RABBITMQ, EXTERNAL_METRICS))
    query = testing.external("queue_messages", "queue=a", namespace="shop-eu")
    assert plan.source(query) == ("external-metrics" if goes else "rabbit")


def test_the_first_route_wins():
    routes = [route("b", metrics=("queue_messages",)), route("a", metrics=("queue_*",))]
    offers = [offer(name, serves=frozenset({EXTERNAL})) for name in "ab"]
    assert RoutePlan(routes, offers).source(testing.external("queue_messages")) == "b"
    assert RoutePlan(routes, offers).source(testing.external("queue_age")) == "a"


def test_a_rule_of_the_source_replaces_what_its_adapter_serves_by_itself():
    backlog = offer(
        "rabbit", serves=frozenset({EXTERNAL}), metrics=("queue_messages",),
        match=(settings.Match(metrics=("backlog",)),),
    )  # fmt: skip
    plan = RoutePlan((), (backlog, EXTERNAL_METRICS))
    assert plan.source(testing.external("backlog")) == "rabbit"
    assert plan.source(testing.external("queue_messages")) == "external-metrics"


def test_without_a_source_the_error_names_metric_sources_and_remedy():
    with pytest.raises(AdapterError) as caught:
        RoutePlan((), (METRICS_SERVER, RABBITMQ)).source(testing.external("foo", namespace="shop"))
    assert caught.value.blame == "spec"
    assert caught.value.message == (
        'no source serves External metric "foo" in namespace "shop": configured sources: '
        "metrics-server (ContainerResource, Resource); rabbit (External: queue_messages, queue_messages_ready); "
        "to configure one, add it under `sources:` of hpad's configuration; a route under `routes:` sends "
        "further metrics to it"
    )


def test_a_broken_source_is_listed_with_its_error():
    broken = offer("mine", problem='source "mine": there is no adapter')
    with pytest.raises(AdapterError, match='configured sources: source "mine": there is no adapter'):
        RoutePlan((), (broken,)).source(testing.external("foo"))
    assert RoutePlan([route("mine")], (broken,)).source(testing.external("foo")) == "mine"


def test_a_route_to_a_source_of_another_type_is_an_error():
    with pytest.raises(
        AdapterError, match='source "rabbit" serves External metrics, it cannot answer Pods metric "pps"'
    ):
        RoutePlan([route("rabbit")], (RABBITMQ,)).source(testing.pods_metric("pps", "app=web"))


def test_a_route_to_an_unknown_source_is_an_error():
    with pytest.raises(
        AdapterError, match='a route sends External metric "x" to source "gone", which is not configured'
    ):
        RoutePlan([route("gone")], (RABBITMQ,)).source(testing.external("x"))


def test_a_source_is_confined_to_the_namespaces_of_its_setting():
    mine = offer("mine", serves=frozenset({EXTERNAL}), namespaces=("team-*",))
    other = offer("other", serves=frozenset({EXTERNAL}), metrics=("b",))
    chosen = RoutePlan((), (mine, other))
    assert chosen.source(testing.external("a", namespace="team-a")) == "mine"
    assert chosen.source(testing.external("b", namespace="shop")) == "other"
    with pytest.raises(AdapterError, match='source "mine" is not offered to HPAs of namespace "shop"') as raised:
        chosen.source(testing.external("a", namespace="shop"))
    assert raised.value.blame == "spec"


def test_a_confined_metric_does_not_go_to_a_built_in_source_instead():
    named = offer("mine", serves=frozenset({EXTERNAL}), metrics=("a",), namespaces=("shop",))
    anything = offer("prom", serves=frozenset({EXTERNAL}), namespaces=("shop",))
    own = offer("external-metrics", serves=frozenset({EXTERNAL}), implicit=True)
    chosen = RoutePlan((), (named, anything, own))
    assert chosen.source(testing.external("b")) == "external-metrics"
    with pytest.raises(AdapterError, match='source "mine" is not offered to HPAs of namespace "default"'):
        chosen.source(testing.external("a"))


def test_a_route_does_not_open_a_source_to_other_namespaces():
    mine = offer("mine", serves=frozenset({EXTERNAL}), namespaces=("shop",))
    chosen = RoutePlan((settings.Route(match=settings.Match(), source="mine"),), (mine,))
    with pytest.raises(AdapterError, match="is not offered"):
        chosen.source(testing.external("a", namespace="other"))


@pytest.mark.parametrize(
    ("labels", "parameters", "left"),
    [
        ({"broker": "eu"}, None, "queue=a"),
        ({"broker": "eu"}, ("queue",), "queue=a"),
        ({"broker": "e*"}, ("queue",), "queue=a"),
        ({"broker": "eu", "queue": "a"}, ("queue",), "queue=a"),
        ({"broker": "eu", "queue": "[ab]"}, None, "queue=a"),
        ({"broker": "eu", "queue": "a"}, None, None),
        # The value says more than the rule, and an adapter that lists no parameters may need it.
        ({"broker": "e*"}, None, "broker=eu,queue=a"),
        ({}, ("queue",), "broker=eu,queue=a"),
    ],
)
@pytest.mark.parametrize("by_route", [True, False])
def test_a_label_that_chose_the_source_is_no_parameter(labels, parameters, left, by_route):
    rule = settings.Match(metrics=("queue_messages",), labels=labels)
    other = settings.Match(metrics=("queue_*",), labels={"broker": "us"})
    offered = None if parameters is None else frozenset(parameters)
    taken = rabbit(() if by_route else (rule, other), parameters=offered)
    plan = RoutePlan([settings.Route(match=rule, source="rabbit")] if by_route else [], (taken, EXTERNAL_METRICS))
    query = testing.external("queue_messages", "queue=a,broker=eu")
    assert plan.source(query) == "rabbit"
    handed = plan.handed(query, "rabbit")
    assert (str(handed.selector) if handed.selector is not None else None) == left
    assert msgspec.structs.replace(handed, selector=query.selector) == query


def test_each_rule_of_a_source_that_matches_takes_its_labels_out():
    """The first one has none."""
    rules = (settings.Match(metrics=("queue_*",)), settings.Match(labels={"broker": "eu"}))
    plan = RoutePlan((), (rabbit(rules, parameters=frozenset({"queue"})),))
    assert str(plan.handed(testing.external("queue_messages", "queue=a,broker=eu"), "rabbit").selector) == "queue=a"


@pytest.mark.parametrize("further", ["broker=us", "!broker", "broker notin (eu)"])
def test_a_second_requirement_that_no_value_can_meet_is_not_taken_out(further):
    """Without it the adapter would answer for "eu", where Kubernetes selects nothing."""
    rules = (settings.Match(labels={"broker": "eu"}),)
    plan = RoutePlan((), (rabbit(rules, parameters=frozenset({"queue"})),))
    handed = plan.handed(testing.external("queue_messages", f"queue=a,broker=eu,{further}"), "rabbit")
    assert handed.selector == testing.external("queue_messages", f"queue=a,{further}").selector


def test_a_second_requirement_that_the_value_meets_is_taken_out_too():
    rules = (settings.Match(labels={"broker": "eu"}),)
    plan = RoutePlan((), (rabbit(rules, parameters=frozenset({"queue"})),))
    query = testing.external("queue_messages", "queue=a,broker in (eu),broker,broker!=us")
    assert str(plan.handed(query, "rabbit").selector) == "queue=a"


def test_a_query_without_such_labels_is_handed_over_as_it_is():
    rules = (settings.Match(labels={"broker": "eu"}),)
    plan = RoutePlan((), (rabbit(rules), EXTERNAL_METRICS))
    for query in (testing.external("queue_messages", "queue=a"), testing.external("queue_messages")):
        assert plan.handed(query, plan.source(query)) is query


@pytest.mark.parametrize("names", [(), {EXTERNAL: (), PODS: ()}, {EXTERNAL: ("other",), PODS: ()}])
def test_an_adapter_without_names_of_a_type_takes_no_metric_of_it(names):
    json = offer("json", serves=frozenset({EXTERNAL, PODS}), metrics=names)
    custom_metrics = offer("custom-metrics", serves=frozenset({OBJECT, PODS}), implicit=True)
    plan = RoutePlan((), (json, EXTERNAL_METRICS, custom_metrics))
    assert plan.source(testing.external("queue_messages")) == "external-metrics"
    assert plan.source(testing.pods_metric("requests_per_second", "app=web")) == "custom-metrics"
    with pytest.raises(AdapterError) as caught:
        RoutePlan((), (json,)).source(testing.pods_metric("requests_per_second", "app=web"))
    described = "External: other" if names and names[EXTERNAL] else "nothing without a rule"
    assert f"configured sources: json ({described});" in caught.value.message
