"""What an object may be called: the API server's rules for names, labels, annotations and resources.

"Object Names and IDs" and "Labels and Selectors" of the Kubernetes documentation; messages are the API server's own.
"""

import re
from collections.abc import Iterator
from typing import Final

from hpad.model import labels
from hpad.model.fields import FieldError, invalid, required
from hpad.model.meta import ObjectMeta

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_PATTERN: Final = re.compile(_LABEL)
_SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)
_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_CONTAINER_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OTHER_RESOURCES: Final = (
    "requests.cpu", "requests.memory", "requests.ephemeral-storage",
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "storage", "requests.storage", "services.nodeports", "services.loadbalancers",
)  # fmt: skip


def metadata_faults(meta: ObjectMeta) -> Iterator[FieldError]:
    """What is wrong with the metadata of a namespaced object whose name is a DNS subdomain."""
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
        yield from (invalid("metadata.labels", key, fault) for fault in labels.key_faults(key))
        yield from (invalid("metadata.labels", value, fault) for fault in labels.value_faults(value))
    for key in meta.annotations or {}:
        yield from (invalid("metadata.annotations", key, fault) for fault in labels.key_faults(key.lower()))


def subdomain_faults(name: str) -> list[str]:
    """Why a name is no DNS subdomain (RFC 1123)."""
    found = [f"must be no more than {_MAX_SUBDOMAIN} characters"] if len(name.encode()) > _MAX_SUBDOMAIN else []
    return found if _SUBDOMAIN_PATTERN.fullmatch(name) else [*found, _SUBDOMAIN_RULE]


def label_faults(name: str) -> list[str]:
    """Why a name is no DNS label (RFC 1123)."""
    found = [f"must be no more than {_MAX_LABEL} characters"] if len(name.encode()) > _MAX_LABEL else []
    return found if _LABEL_PATTERN.fullmatch(name) else [*found, _LABEL_RULE]


def resource_faults(name: str) -> list[str]:
    """Why a name is no compute resource of a container; an empty one is somebody else's complaint."""
    if not name:
        return []
    found = labels.key_faults(name)
    if "/" in name:
        return found
    standard = name in _CONTAINER_RESOURCES or name.startswith("hugepages-")
    if not found and not standard and name not in _OTHER_RESOURCES:
        found = ["must be a standard resource type or fully qualified"]
    return found if standard else [*found, "must be a standard resource for containers"]
