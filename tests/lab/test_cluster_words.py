"""Error messages of the embedded API server; expected texts are those of kube-apiserver 1.36.2."""

import json

import pytest

from hpad.lab.cluster import Resource, gojson

# ruff: noqa: E501 - the texts of an API server are as long as they are
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
CANNOT = 'HorizontalPodAutoscaler in version "v2" cannot be handled as a HorizontalPodAutoscaler: '
FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"
UNREAD = "the object provided is unrecognized (must be of type HorizontalPodAutoscaler): "
GIZMOS = Resource(
    "oracle.example",
    ("v1",),
    "gizmos",
    "Gizmo",
    schema={
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "replicas": {"type": "integer", "minimum": 0, "maximum": 3},
                    "size": {"type": "string", "enum": ["a", "b"]},
                    "list": {"type": "array", "items": {"type": "string"}},
                },
            }
        },
    },
)


def hpa(**spec):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec}}


@pytest.fixture
async def client(start):
    client = await start(kubelet=False, controllers=False, kinds=[GIZMOS])
    assert (await client.ask("POST", HPAS, hpa()))[0] == 201
    return client


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a"', "unexpected end of JSON input"),
        (b'"abc', "unexpected end of JSON input"),
        (b'"a\nb"', "invalid character '\\n' looking for beginning of value"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b'{"a":\x81}', "invalid character '\\x81' looking for beginning of value"),
        (b'{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        ("é".encode(), "invalid character 'é' looking for beginning of value"),
    ],
)
def test_invalid_json_has_an_error_like_that_of_go(raw, expected):
    with pytest.raises(gojson.SyntaxFault) as caught:
        gojson.loads(raw)
    assert str(caught.value) == expected


def test_valid_json_is_decoded_and_duplicates_are_found():
    for value in (None, 1.5, -0.0, "é\n", [1, {"a": [True, False]}], {}):
        assert gojson.loads(json.dumps(value).encode()) == value
    assert gojson.duplicates(b'{"a":1,"b":[{"c":1,"c":2}],"m":{"n":1,"n":2}}') == ["b[0].c", "m.n"]
    assert gojson.duplicates(b'{"a":{"b":1},"c":{"b":1}}') == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (" ", UNREAD + "couldn't get version/kind; json parse error: unexpected end of JSON input (20)"),
        ("", UNREAD + "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"),
        (
            '{"kind":5}',
            f"{UNREAD}couldn't get version/kind; json parse error: "
            'json: cannot unmarshal number into Go struct field .kind of type string ({"kind":5})',
        ),
        (
            '{"kind":"X"}',
            'X in version "v2" cannot be handled as a HorizontalPodAutoscaler: no kind "X" is registered for version '
            '"autoscaling/v2" in scheme "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            '{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1"}',
            "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)",
        ),
        ('{"spec":"x"}', FIELD.format("string", "HorizontalPodAutoscaler.spec", "v2.HorizontalPodAutoscalerSpec")),
        (
            '{"spec":{"maxReplicas":1.5}}',
            FIELD.format("number 1.5", "HorizontalPodAutoscalerSpec.spec.maxReplicas", "int32"),
        ),
        (
            '{"spec":{"metrics":["x"]}}',
            FIELD.format("string", "HorizontalPodAutoscalerSpec.spec.metrics", "v2.MetricSpec"),
        ),
        (
            '{"spec":{"metrics":[{"type":5}]}}',
            FIELD.format("number", "MetricSpec.spec.metrics.type", "v2.MetricSourceType"),
        ),
        ('{"metadata":{"labels":[]}}', FIELD.format("array", "ObjectMeta.metadata.labels", "map[string]string")),
        ('{"metadata":{"labels":{"a":5}}}', FIELD.format("number", "ObjectMeta.metadata.labels", "string")),
        (
            '{"status":{"lastScaleTime":"x"}}',
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
async def test_bodies_that_are_not_hpas(client, body, expected):
    status, answer = await client.ask("POST", HPAS, body)
    full = expected if expected.startswith((UNREAD, "X in", "the API")) else CANNOT + expected
    assert (status, answer["message"]) == (400, full)


@pytest.mark.parametrize(
    ("kind", "body", "status", "expected"),
    [
        (MERGE, "{", 400, "error decoding patch: unexpected end of JSON input"),
        (STRATEGIC, "{", 400, "unexpected end of JSON input"),
        (MERGE, "[1]", 400, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (MERGE, "null", 400, "Invalid JSON Patch"),
        (JSON_PATCH, "{}", 400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (JSON_PATCH, '[{"op":"remove","path":"/spec/nope"}]', 422, "the server rejected our request due to an error in our request"),
        (JSON_PATCH, '[{"op":"replace","path":"spec","value":1}]', 422, "the server rejected our request due to an error in our request"),
        (STRATEGIC, '{"spec":{"maxReplicas":"x"}}', 422, ' "" is invalid: patch: Invalid value: "map[spec:map[maxReplicas:x]]": unrecognized type: int32'),
        (STRATEGIC, '{"spec":5}', 422, ' "" is invalid: patch: Invalid value: "map[spec:5]": cannot restore struct from: int64'),
        (STRATEGIC, '{"spec":{"metrics":{}}}', 422, ' "" is invalid: patch: Invalid value: "map[spec:map[metrics:map[]]]": cannot restore slice from map'),
        (STRATEGIC, '{"metadata":{"labels":{"a":1}}}', 422, ' "" is invalid: patch: Invalid value: "map[metadata:map[labels:map[a:1]]]": cannot convert int64 to string'),
        ("text/plain", "{}", 415, "415: Unsupported Media Type"),
        (MERGE, '{"metadata":{"name":"other"}}', 400, "the name of the object (other) does not match the name on the URL (web)"),
        (MERGE, '{"metadata":{"resourceVersion":"abc"}}', 500, 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ],
)  # fmt: skip
async def test_invalid_patches(client, kind, body, status, expected):
    got, answer = await client.ask("PATCH", f"{HPAS}/web", body, Content_Type=kind)
    assert (got, answer["message"]) == (status, expected)


async def test_a_merge_with_an_invalid_result_shows_the_result(client):
    status, answer = await client.ask("PATCH", f"{HPAS}/web", '{"spec":{"maxReplicas":"x"}}', Content_Type=MERGE)
    end = FIELD.format("string", "HorizontalPodAutoscalerSpec.spec.maxReplicas", "int32")
    assert status == 422
    assert answer["message"].startswith(' "" is invalid: patch: Invalid value: "{\\"kind\\":')
    assert answer["message"].endswith(f'": {end}')
    assert answer["details"].keys() == {"causes"}


async def test_a_patch_warns_of_unknown_fields(client):
    url, body = client.cluster.url + f"{HPAS}/web", '{"spec":{"nope":1,"maxReplicas":4,"maxReplicas":5}}'
    async with client.session.patch(url, data=body, headers={"Content-Type": MERGE}) as response:
        expected = ['299 - "unknown field \\"spec.nope\\""', '299 - "duplicate field \\"spec.maxReplicas\\""']
        assert (response.status, response.headers.getall("Warning")) == (200, expected)
    async with client.session.patch(
        url, data=body, headers={"Content-Type": MERGE}, params={"fieldValidation": "Ignore"}
    ) as response:
        assert (response.status, "Warning" in response.headers) == (200, False)
    status, answer = await client.ask(
        "PATCH", f"{HPAS}/web?fieldValidation=Strict", '{"spec":{"nope":1}}', Content_Type=STRATEGIC
    )
    assert (status, answer["message"].endswith('strict decoding error: unknown field "spec.nope"')) == (422, True)


@pytest.mark.parametrize(
    ("query", "status", "expected"),
    [
        ("watch=1&sendInitialEvents=true", 422, "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
        ("sendInitialEvents=true", 422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422, 'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
        ("resourceVersionMatch=nope&resourceVersion=1", 422, 'resourceVersionMatch: Unsupported value: "nope": supported values: "Exact", "NotOlderThan", ""'),
    ],
)  # fmt: skip
async def test_contradictory_options(client, query, status, expected):
    got, answer = await client.ask("GET", f"{HPAS}?{query}")
    assert (got, answer["message"]) == (status, f'ListOptions.meta.k8s.io "" is invalid: {expected}')


@pytest.mark.parametrize(
    ("method", "path", "status", "expected"),
    [
        ("GET", "?watch=1&resourceVersion=abc", 500, 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'),
        ("GET", "/web?resourceVersion=abc", 500, 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'),
        ("GET", "?limit=1&continue=x", 400, "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"),
        ("GET", "?limit=1&continue=e30", 400, "invalid continue token: continue key is not valid: server does not recognize this encoded version "),
        ("GET", "?timeout=abc", 400, 'invalid timeout specified in the request URL - time: invalid duration "abc"'),
        ("GET", "?timeout=5", 400, 'invalid timeout specified in the request URL - time: missing unit in duration "5"'),
        ("DELETE", "/web?propagationPolicy=x", 422, 'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background", "Orphan", "nil"'),
        ("DELETE", "/web?dryRun=x", 422, 'DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"'),
    ],
)  # fmt: skip
async def test_invalid_queries(client, method, path, status, expected):
    got, answer = await client.ask(method, HPAS + path)
    assert (got, answer["message"]) == (status, expected)


async def test_an_apply_requires_a_manager_its_kind_and_known_fields(client):
    async def apply(body, query="?fieldManager=x"):
        status, answer = await client.ask("PATCH", f"{HPAS}/web{query}", body, Content_Type=APPLY)
        return status, answer["message"]

    required = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    assert await apply("{}", "") == (422, required)
    assert await apply("{}") == (400, "invalid object type: /, Kind=")
    assert await apply('{"apiVersion":"apps/v1","kind":"Deployment"}') == (
        400,
        "invalid object type: apps/v1, Kind=Deployment",
    )
    head = '"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler"'
    untyped = "failed to create typed patch object (/; autoscaling/v2, Kind=HorizontalPodAutoscaler)"
    assert await apply(f'{{{head},"spec":{{"nope":1}}}}') == (
        500,
        f"{untyped}: .spec.nope: field not declared in schema",
    )


async def test_a_failed_precondition_names_both_values(client):
    uid = client.cluster.get("horizontalpodautoscalers", "web")["metadata"]["uid"]
    status, answer = await client.ask("DELETE", f"{HPAS}/web", {"preconditions": {"uid": "abc"}})
    assert (status, answer["details"]["kind"]) == (409, "HorizontalPodAutoscaler")
    assert answer["message"] == (
        f'Operation cannot be fulfilled on HorizontalPodAutoscaler.autoscaling "web": the UID in the precondition (abc) '
        f"does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    )


async def test_a_request_ends_at_its_timeout(client):
    client.cluster.faults.add(path="horizontalpodautoscalers", delay=5)
    status, answer = await client.ask("GET", f"{HPAS}?timeout=50ms")
    assert (status, answer["reason"]) == (504, "Timeout")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": 9, "size": "a"}, "spec.replicas: Invalid value: 9: spec.replicas in body should be less than or equal to 3"),
        ({}, "spec.size: Required value"),
        ({"size": "c"}, 'spec.size: Unsupported value: "c": supported values: "a", "b"'),
        ({"size": "a", "list": [1]}, 'spec.list[0]: Invalid value: "integer": spec.list[0] in body must be of type string: "integer"'),
        (5, 'spec: Invalid value: "integer": spec in body must be of type object: "integer"'),
    ],
)  # fmt: skip
async def test_custom_objects_are_validated_by_their_schema(client, spec, expected):
    body = {"apiVersion": "oracle.example/v1", "kind": "Gizmo", "metadata": {"name": "z"}, "spec": spec}
    status, answer = await client.ask("POST", "/apis/oracle.example/v1/namespaces/default/gizmos", body)
    assert (status, answer["message"]) == (422, f'Gizmo.oracle.example "z" is invalid: {expected}')
