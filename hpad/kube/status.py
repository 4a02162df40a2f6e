"""Writing the status of an HPA, and nothing but the status.

By a JSON merge patch rather than a PUT of the whole object. Measured against the embedded server, an HPA of 1.7 kB
costs 600 µs of CPU on both sides together with a patch of 0.8 kB, and 730 µs with a PUT; a PUT would also need the
bytes of every HPA kept in memory, since what was decoded narrowly must never be written. The patch names fields of the
status that every server with autoscaling/v2 has (1.23 and later), so that there is nothing it could refuse.
"""

from typing import Any

import msgspec

from hpad.kube import codec, errors, paths
from hpad.kube.client import Client
from hpad.model import hpa as hpas
from hpad.model.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus

_MERGE_PATCH = "application/merge-patch+json"
_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(HorizontalPodAutoscalerStatus))


def patch(hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `status` the status of the object.

    A field that the new status leaves out is reset by null; lists are replaced whole. The resourceVersion makes the
    server refuse it (409) where somebody else wrote in between; the uid, where the name has become another object's.
    """
    written = hpas.to_builtins(status)
    head = {"resourceVersion": hpa.metadata.resource_version, "uid": hpa.metadata.uid}
    return {
        "metadata": {name: value for name, value in head.items() if value},
        "status": {name: written.get(name) for name in _FIELDS},
    }


async def write(
    client: Client, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus
) -> HorizontalPodAutoscaler:
    """Write the status once; the object as it is afterwards. Raises ApiError; a conflict is the caller's."""
    path = paths.HPAS.object(hpa.metadata.key, "status")
    body = msgspec.json.encode(patch(hpa, status))
    answer = await client.request("PATCH", path, body=body, content_type=_MERGE_PATCH)
    try:
        return codec.hpa(answer).value
    except codec.UndecodableError as error:
        raise errors.ApiError(0, "BadAnswer", f"the answer is no HorizontalPodAutoscaler: {error}") from error
