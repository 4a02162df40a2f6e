"""Object metadata: the fields of metav1.ObjectMeta that hpad reads, keys of objects, and the rules for names and
labels.

Sources: Kubernetes documentation, "Object Names and IDs" and "Labels and Selectors"; the messages are those of
apimachinery, pkg/util/validation/validation.go.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final

import msgspec

from hpad.api.problem import Problem, invalid, required
from hpad.api.text import shown

AUTOSCALER_KEY: Final = "autoscaler"
"""The `kind` in the key of an Autoscaler."""


class Key(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The identity of a namespaced object; prints as `namespace/name`, unpacks as namespace and `local` name.

    `kind` is "" for an HPA, and for all objects whose kind is known from elsewhere; an Autoscaler has AUTOSCALER_KEY,
    since it stands beside an HPA of the same name.
    """

    namespace: str
    name: str
    kind: str = ""

    def __iter__(self) -> Iterator[str]:
        return iter((self.namespace, self.local))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.local}"

    @property
    def local(self) -> str:
        """The name within the namespace, as kubectl takes it: `web`, or `autoscaler/web`."""
        return f"{self.kind}/{self.name}" if self.kind else self.name

    @classmethod
    def of(cls, namespace: str, local: str) -> "Key":
        """Returns the key of a namespace and a `local` name."""
        kind, _, name = local.rpartition("/")
        return cls(namespace, name, kind)

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Parses `namespace/name` or `namespace/autoscaler/name`. Raises ValueError for any other form."""
        namespace, _, local = text.partition("/")
        key = cls.of(namespace, local)
        if not (namespace and key.name and key.kind in ("", AUTOSCALER_KEY)) or text != str(key):
            raise ValueError(f"{shown(text)} is not of the form namespace/name")
        return key


class OwnerReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """metav1.OwnerReference without its garbage-collection fields."""

    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A subset of metav1.ObjectMeta. Never write it back: the other fields of the object would be lost."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    generate_name: str = ""


Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""An RFC 3339 time with a zone. A time without one is rejected, since it cannot be compared with others."""


_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253
_MOST_ANNOTATIONS: Final = 1 << 18
"""Bytes of all keys and values together (apimachinery, pkg/api/validation/objectmeta.go: ValidateAnnotationsSize)."""
_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_NAME})?"
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"

_ALPHANUMERIC: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_RULE: Final = (
    f"must {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_VALUE_RULE: Final = (
    f"a valid label must be an empty string or {_ALPHANUMERIC} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    f"start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_PREFIX_RULE: Final = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"

_EXTENDED_RULE: Final = "doesn't follow extended resource name standard"

_CONTAINER_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OTHER_RESOURCES: Final = (
    "requests.cpu", "requests.memory", "requests.ephemeral-storage",
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "storage", "requests.storage", "services.nodeports", "services.loadbalancers",
)  # fmt: skip


def key_faults(key: str) -> list[str]:
    """Returns what is wrong with a label key (`[prefix/]name`), one message per fault.

    Source: Kubernetes 1.36, apimachinery, pkg/api/validate/content/kube.go: IsLabelKey.
    """
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [f"a valid label key {_NAME_RULE} {_PREFIX_RULE}"]
    faults = []
    if slash:
        found = _faults(prefix, _SUBDOMAIN, _SUBDOMAIN_RULE, _MAX_SUBDOMAIN) if prefix else ["must be non-empty"]
        faults = [f"prefix part {fault}" for fault in found]
    if not name:
        faults.append("name part must be non-empty")
    return faults + [f"name part {fault}" for fault in _faults(name, _NAME, _NAME_RULE, _MAX_NAME)]


def value_faults(value: str) -> list[str]:
    """Returns what is wrong with a label value, one message per fault (kube.go: IsLabelValue)."""
    return _faults(value, _VALUE, _VALUE_RULE, _MAX_NAME)


def subdomain_faults(name: str) -> list[str]:
    """Returns why a name is not a DNS subdomain (RFC 1123), one message per fault."""
    return _faults(name, _SUBDOMAIN, _SUBDOMAIN_RULE, _MAX_SUBDOMAIN, "characters")


def label_faults(name: str) -> list[str]:
    """Returns why a name is not a DNS label (RFC 1123), one message per fault."""
    rule = "must not contain dots" if re.fullmatch(_SUBDOMAIN, name) else _LABEL_RULE
    return _faults(name, _LABEL, rule, _MAX_NAME, "characters")


def _faults(text: str, pattern: str, rule: str, most: int, unit: str = "bytes") -> list[str]:
    """Checks a text against a pattern and its length in bytes. Kubernetes calls the bytes of a name characters."""
    size = len(text.encode("utf-8", "surrogatepass"))
    found = [f"must be no more than {most} {unit}"] if size > most else []
    return found if re.fullmatch(pattern, text) else [*found, rule]


def resource_faults(name: str) -> list[str]:
    """Returns why a name is not a compute resource of a container; an empty name is checked elsewhere.

    Source: Kubernetes 1.36, pkg/apis/core/v1/validation/validation.go: ValidateContainerResourceName.
    """
    if not name:
        return []
    found = key_faults(name)
    if "/" in name:
        extended = not name.startswith("requests.") and not key_faults(f"requests.{name}")
        return found if extended or "kubernetes.io/" in name else [*found, _EXTENDED_RULE]
    standard = name in _CONTAINER_RESOURCES or name.startswith("hugepages-")
    if not found and not standard and name not in _OTHER_RESOURCES:
        found = ["must be a standard resource type or fully qualified"]
    return found if standard else [*found, "must be a standard resource for containers"]


def metadata_faults(meta: ObjectMeta) -> Iterator[Problem]:
    """Yields what is wrong with the metadata of a namespaced object whose name is a DNS subdomain."""
    if meta.generate_name:
        # The random end makes a trailing dash harmless.
        for fault in subdomain_faults(re.sub("-$", "a", meta.generate_name)):
            yield invalid("metadata.generateName", meta.generate_name, fault)
    if not meta.name and not meta.generate_name:
        yield required("metadata.name", "name or generateName is required")
    elif meta.name:
        yield from (invalid("metadata.name", meta.name, fault) for fault in subdomain_faults(meta.name))
    if not meta.namespace:
        yield required("metadata.namespace")
    else:
        yield from (invalid("metadata.namespace", meta.namespace, fault) for fault in label_faults(meta.namespace))
    if meta.generation < 0:
        yield invalid("metadata.generation", meta.generation, "must be greater than or equal to 0")
    for key, value in (meta.labels or {}).items():
        yield from (invalid("metadata.labels", key, fault) for fault in key_faults(key))
        yield from (invalid("metadata.labels", value, fault) for fault in value_faults(value))
    annotations = meta.annotations or {}
    for key in annotations:
        yield from (invalid("metadata.annotations", key, fault) for fault in key_faults(key.lower()))
    if sum(len(text.encode()) for entry in annotations.items() for text in entry) > _MOST_ANNOTATIONS:
        yield Problem(
            "metadata.annotations", f"metadata.annotations: Too long: may not be more than {_MOST_ANNOTATIONS} bytes"
        )
