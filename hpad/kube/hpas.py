"""HPAs and Autoscalers on the wire: decodes them, and makes the body of a write of their status.

Fields that hpad does not know must survive a write. Therefore the bytes of each HPA are kept, about 1 kB each, without
managedFields (the server ignores them in a write of a subresource) and without the status fields that hpad writes.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from hpad.api import limits, validation
from hpad.api.autoscaler import PREFIX, Autoscaler, AutoscalerStatus, as_hpa
from hpad.api.bounded_cache import bounded_cache
from hpad.api.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
    dec_hook,
    defaulted,
    enc_hook,
)
from hpad.api.metadata import ObjectMeta
from hpad.api.wire import DECODED, interned
from hpad.kube import managed_fields, paths
from hpad.kube.watch import DecodedObject, Original


class _NarrowSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0


class _NarrowHpa(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: _NarrowSpec = _NarrowSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


class _RawSpec(msgspec.Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw(b"")


_HPA = msgspec.json.Decoder(HorizontalPodAutoscaler, dec_hook=dec_hook)
_AUTOSCALER = msgspec.json.Decoder(Autoscaler, dec_hook=dec_hook)
_NARROW = msgspec.json.Decoder(_NarrowHpa, dec_hook=dec_hook)
_SPEC = msgspec.json.Decoder(_RawSpec)
_METRICS: Final = msgspec.json.Decoder(tuple[MetricSpec, ...], dec_hook=dec_hook)


class Form(NamedTuple):
    """How the objects of one kind are read and written.

    `read` decodes one, and raises UNDECODABLE; `status` are the fields of its status that hpad writes; `head` begins
    an object.
    """

    resource: paths.Resource
    read: Callable[[bytes | msgspec.Raw], HorizontalPodAutoscaler]
    status: frozenset[str]
    head: bytes


def _autoscaler(raw: bytes | msgspec.Raw) -> HorizontalPodAutoscaler:
    return as_hpa(_AUTOSCALER.decode(raw))


def _fields(status: type[HorizontalPodAutoscalerStatus]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(status))


def _head(of: paths.Resource) -> bytes:
    return f'{{"apiVersion":"{of.group}/{of.version}","kind":"{of.kind}"'.encode()


HPA: Final = Form(paths.HPAS, _HPA.decode, _fields(HorizontalPodAutoscalerStatus), _head(paths.HPAS))
AUTOSCALER: Final = Form(paths.AUTOSCALERS, _autoscaler, _fields(AutoscalerStatus), _head(paths.AUTOSCALERS))


def hpa(raw: bytes | msgspec.Raw, form: Form = HPA) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes an autoscaling/v2 HPA or an Autoscaler; raises UNDECODABLE. One that is too large is `limits.refused`."""
    fault = limits.size_fault(len(_SPEC.decode(raw).spec)) if len(raw) > limits.SPEC_BYTES else None
    found = limits.within(form.read(raw)) if fault is None else limits.refused(_without_parts(raw, form), fault)
    if form is AUTOSCALER and not found.spec.refused:
        found = _completed(found)
    value = _with_shared_parts(found)
    return DecodedObject(value.key, value.metadata.resource_version, value)


def _completed(found: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns an Autoscaler with its defaults, validated: no API server has done either."""
    whole = defaulted(found)
    # Whether minReplicas may be 0 is decided in each turn, by the feature gate.
    fault = next(iter(validation.validate(whole, scale_to_zero=True)), None)
    if fault is None:
        return whole
    return msgspec.structs.replace(whole, spec=msgspec.structs.replace(whole.spec, invalid=fault.text))


def _without_parts(raw: bytes | msgspec.Raw, form: Form) -> HorizontalPodAutoscaler:
    """Decodes an HPA without metrics and behavior, which may be too large to be decoded."""
    narrow = _NARROW.decode(raw)
    spec = HorizontalPodAutoscalerSpec(
        scale_target_ref=narrow.spec.scale_target_ref,
        min_replicas=narrow.spec.min_replicas,
        max_replicas=narrow.spec.max_replicas,
    )
    return HorizontalPodAutoscaler(
        kind=form.resource.kind,
        api_version=f"{form.resource.group}/{form.resource.version}",
        metadata=narrow.metadata,
        spec=spec,
        status=narrow.status,
    )


def _own_annotations(found: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns the annotations that hpad reads. There may be 256 KiB of others, in 100,000 pieces."""
    if not found:
        return None
    return {name: text for name, text in found.items() if name.startswith(PREFIX)} or None


def _with_shared_parts(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with the same objects as other HPAs for what many HPAs have in common: about 1.5 kB."""
    head, ref = hpa.metadata, hpa.spec.scale_target_ref
    name = head.name if ref.name == head.name else ref.name
    spec = msgspec.structs.replace(
        hpa.spec,
        scale_target_ref=CrossVersionObjectReference(interned(ref.kind), name, interned(ref.api_version)),
        metrics=_shared_metrics(encode(hpa.spec.metrics)),
    )
    head = msgspec.structs.replace(
        head,
        namespace=interned(head.namespace),
        annotations=_own_annotations(head.annotations),
        owner_references=(),
    )
    return msgspec.structs.replace(
        hpa,
        metadata=head,
        kind=interned(hpa.kind),
        api_version=interned(hpa.api_version),
        spec=spec,
        status=with_shared_texts(hpa.status),
    )


def with_shared_texts(status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus:
    """Returns the status with the same objects as other HPAs for the texts of its conditions."""
    return msgspec.structs.replace(status, conditions=tuple(map(_shared_condition, status.conditions)))


@bounded_cache(lambda text: 2 * len(text))
def _shared_message(text: str) -> str:
    """Returns the same object for equal messages of conditions; those with errors may be long."""
    return text


@bounded_cache(lambda encoded: DECODED * len(encoded))
def _shared_metrics(encoded: bytes) -> tuple[MetricSpec, ...]:
    """Returns the metrics of a spec; HPAs with the same metrics in text share the tuple."""
    return _METRICS.decode(encoded)


def _shared_condition(condition: HorizontalPodAutoscalerCondition) -> HorizontalPodAutoscalerCondition:
    return HorizontalPodAutoscalerCondition(
        interned(condition.type),
        interned(condition.status),
        condition.last_transition_time,
        interned(condition.reason),
        _shared_message(condition.message),
    )


_KEPT_APART: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_NOTHING: Final = b"{}"  # shared by almost all HPAs, as is the next
_NO_WRITERS: Final[Mapping[str, str]] = MappingProxyType({})
encode: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode
"""Returns the JSON of a status as bytes."""


def decode(raw: bytes | msgspec.Raw, form: Form = HPA) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes an autoscaling/v2 HPA or an Autoscaler with its `original`; raises UNDECODABLE."""
    return msgspec.structs.replace(hpa(raw, form), original=original(raw, form))


def original(raw: bytes | msgspec.Raw, form: Form = HPA) -> Original:
    """Returns the data for a write of the status of an autoscaling/v2 HPA or an Autoscaler; raises UNDECODABLE."""
    whole = _parts(raw)
    metadata, status = _parts(whole["metadata"]), _parts(whole.get("status", b"null"))
    entries = managed_fields.entries(metadata.pop("managedFields", b""))
    metadata.pop("resourceVersion", None)
    return Original(
        encode(metadata),
        bytes(whole.get("spec", _NOTHING)),
        _joined({name: value for name, value in status.items() if name not in form.status}),
        _joined({name: value for name, value in whole.items() if name not in _KEPT_APART}),
        managed_fields.writers_of_status(entries) or _NO_WRITERS,
    )


def body(original: Original, version: str, status: bytes, form: Form = HPA) -> bytes:
    """Returns the object to PUT: the original of that resourceVersion with that status, which is encoded already."""
    metadata = _merged(original.metadata, b'{"resourceVersion":%b}' % encode(version))
    written = _merged(original.status, status)
    own = b'%b,"metadata":%b,"spec":%b,"status":%b}' % (form.head, metadata, original.spec, written)
    return _merged(own, original.rest)


def written(
    answer: bytes,
    stored: HorizontalPodAutoscaler,
    original: Original,
    status: HorizontalPodAutoscalerStatus,
    sent: bytes,
    form: Form = HPA,
) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes the answer to a write of that status of `stored`; raises UNDECODABLE.

    Where nothing but resourceVersion, status and managedFields differ from the original, as always unless a webhook
    changes the object, nothing else is decoded. A status that was taken as it is keeps its objects: most of its texts
    are those of other HPAs, too. The server mostly answers with the very bytes that were `sent`.
    """
    found = _ANSWER.decode(answer)
    metadata = _parts(found.metadata)
    metadata.pop("managedFields", None)
    version: str = _TEXT.decode(metadata.pop("resourceVersion", b'""'))
    if bytes(found.spec) != original.spec or encode(metadata) != original.metadata:
        return decode(answer, form)
    if bytes(found.status) != sent:
        taken = _STATUS.decode(found.status)
        status = status if taken == status else taken
    renewed = msgspec.structs.replace(stored.metadata, resource_version=version)
    value = msgspec.structs.replace(stored, metadata=renewed, status=status)
    return DecodedObject(value.key, version, value, original)


class _Answer(msgspec.Struct, frozen=True, gc=False):
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(_NOTHING)
    status: msgspec.Raw = msgspec.Raw(_NOTHING)


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_STATUS: Final = msgspec.json.Decoder(HorizontalPodAutoscalerStatus, dec_hook=dec_hook)
_TEXT: Final = msgspec.json.Decoder(str)
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)  # json.decode makes one anew for each call


def _parts(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Returns the fields of a JSON object, undecoded; none for null."""
    return _PARTS.decode(raw) or {}


def _joined(parts: Mapping[str, msgspec.Raw]) -> bytes:
    return encode(parts) if parts else _NOTHING


def _merged(one: bytes, other: bytes) -> bytes:
    """Returns a JSON object with the fields of both."""
    if one == _NOTHING or other == _NOTHING:
        return other if one == _NOTHING else one
    return b"%b,%b" % (one[:-1], other[1:])
