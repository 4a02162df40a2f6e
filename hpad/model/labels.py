"""What may stand as the key and the value of a label, and what the API server says about the rest.

Rules and messages are those of the Kubernetes API: "Labels and Selectors", syntax and character set.
"""

import re
from typing import Final

MAX_BYTES: Final = 63
MAX_PREFIX_BYTES: Final = 253

_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_NAME})?"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"

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
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    f"start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_PREFIX_RULE: Final = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_NAME_PATTERN: Final = re.compile(_NAME)
_VALUE_PATTERN: Final = re.compile(_VALUE)
_SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)


def key_faults(key: str) -> list[str]:
    """What is wrong with a label key (a qualified name: `[prefix/]name`), a message each; empty if nothing is."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [f"a valid label key {_NAME_RULE} {_PREFIX_RULE}"]
    faults = [f"prefix part {fault}" for fault in _prefix_faults(prefix)] if slash else []
    if not name:
        faults.append("name part must be non-empty")
    elif _bytes(name) > MAX_BYTES:
        faults.append(f"name part must be no more than {MAX_BYTES} bytes")
    if not _NAME_PATTERN.fullmatch(name):
        faults.append(f"name part {_NAME_RULE}")
    return faults


def value_faults(value: str) -> list[str]:
    """What is wrong with a label value, a message each; empty if nothing is."""
    faults = []
    if _bytes(value) > MAX_BYTES:
        faults.append(f"must be no more than {MAX_BYTES} bytes")
    if not _VALUE_PATTERN.fullmatch(value):
        faults.append(_VALUE_RULE)
    return faults


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["must be non-empty"]
    faults = []
    if _bytes(prefix) > MAX_PREFIX_BYTES:
        faults.append(f"must be no more than {MAX_PREFIX_BYTES} bytes")
    if not _SUBDOMAIN_PATTERN.fullmatch(prefix):
        faults.append(_SUBDOMAIN_RULE)
    return faults


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
