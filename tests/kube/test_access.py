"""The version of the API server and the rights of hpad, if the server answers with something else."""

import pytest
from support.scripted_server import refused, says

from hpad.kube.access import Right, allowed, probe_version

GARBAGE = [b"", b"<html>", b"[]", b'{"gitVersion":7,"status":7}', b'{"gitVersion":"\xff","status":"\xff"}']
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize("body", GARBAGE)
async def test_a_server_without_a_version_is_no_kubernetes(script, client, body):
    script.on("GET", "/version", says(body))
    error = await refused(probe_version(client))
    assert (error.status, error.reason) == (0, "NotKubernetes")


@pytest.mark.parametrize("body", GARBAGE)
async def test_an_answer_that_is_no_review_is_an_error(script, client, body):
    script.on("POST", REVIEWS, says(body))
    error = await refused(allowed(client, Right("get", "", "pods")))
    assert (error.status, error.reason) == (0, "BadAnswer")


@pytest.mark.parametrize(
    ("status", "granted"),
    [({"allowed": True}, True), ({"allowed": False}, False), ({"allowed": True, "denied": True}, False), ({}, False)],
)
async def test_a_right_is_granted_if_it_is_allowed_and_not_denied(script, client, status, granted):
    script.on("POST", REVIEWS, says({"status": status}))
    assert await allowed(client, Right("get", "", "pods")) is granted
