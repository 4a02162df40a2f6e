"""The target of an HPA, seen through its scale subresource."""

from typing import Any

import msgspec


class ScaleSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    replicas: int = 0


class ScaleStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    replicas: int = msgspec.field(default_factory=int)
    selector: str = ""


class Scale(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """autoscaling/v1 Scale, modelled in full, so that it may be PUT back. `metadata` is kept as it came."""

    kind: str = msgspec.field(default_factory=lambda: "Scale")  # a factory: always written
    api_version: str = msgspec.field(default_factory=lambda: "autoscaling/v1")
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)

    def with_replicas(self, replicas: int) -> "Scale":
        return msgspec.structs.replace(self, spec=ScaleSpec(replicas))
