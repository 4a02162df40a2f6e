"""The embedded API server answers each recorded request as the real one did."""

import dataclasses

import pytest
from lab.fixtures import exchanges, replay

FOLDERS = (
    "client_go",
    "errors",
    "events",
    "hpa",
    "invalid",
    "lease",
    "metrics",
    "pods",
    "scale",
    "scale_to_zero",
    "scenario",
    "table",
    "watch",
)
ELSEWHERE = {
    "table/hpa_list_includeObject_none": "has none of the objects it is about; test_cluster_tables has it",
    "metrics/podmetrics_503_apiservice_unavailable": "test_cluster_documents has it",
    "metrics/podmetrics_503_server_down": "test_cluster_documents has it",
    "metrics/podmetrics_503_from_server": "a fault injected into metrics-server",
    "metrics/custom_404": "the answer of a custom metrics API server",
    "metrics/custom_object_namespace": "the answer of a custom metrics API server",
    "metrics/custom_object_service": "the answer of a custom metrics API server",
    "metrics/custom_pods": "the answer of a custom metrics API server",
    "metrics/external": "the answer of an external metrics API server",
    "metrics/external_404": "the answer of an external metrics API server",
    "metrics/external_selector": "the answer of an external metrics API server",
    "metrics/external_selector_empty": "the answer of an external metrics API server",
}
"""Exchanges that are not replayed here, and why."""


@pytest.mark.parametrize("exchange", exchanges.of(*FOLDERS, without=ELSEWHERE))
async def test_the_server_answers_as_recorded(exchange):
    assert await replay.differences(exchange) == {}


@pytest.mark.parametrize("exchange", exchanges.of("errors")[:1])
async def test_a_different_answer_is_noticed(exchange):
    wrong = dataclasses.replace(
        exchange, status=418, answer={"kind": "Teapot"}, answer_headers={**exchange.answer_headers, "retry-after": "9"}
    )
    found = await replay.differences(wrong)
    assert {"status", "headers", "body.kind", "body.message"} <= found.keys()


def test_every_recorded_exchange_is_replayed_or_excluded():
    names = {each.name for each in exchanges.everything()}
    assert ELSEWHERE.keys() <= names
    assert {name.partition("/")[0] for name in names} == {*FOLDERS, "discovery"}  # test_cluster_documents has discovery
