"""What hpad itself may do, asked of the API server (SelfSubjectAccessReview, authorization.k8s.io/v1)."""

from typing import NamedTuple

import msgspec

from hpad.kube.client import Client

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """One verb on one resource; `namespace` "" for all of them, `name` "" for any object."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        full = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        full = f"{full}.{self.group}" if self.group else full
        named = f" {self.name}" if self.name else ""
        return (
            f"{self.verb} {full}{named} {f'in namespace {self.namespace}' if self.namespace else 'in all namespaces'}"
        )


class _Status(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def allowed(client: Client, right: Right) -> bool:
    """Whether hpad has the right; raises ApiError where the server does not say."""
    attributes = {field: value for field, value in right._asdict().items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", _PATH, body=msgspec.json.encode(body))
    status = msgspec.json.decode(answer, type=_Review).status
    return status.allowed and not status.denied
