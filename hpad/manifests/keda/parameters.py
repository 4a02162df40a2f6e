"""Entries of a trigger's metadata that no converter reads: most of them have no effect in KEDA either.

KEDA 2.21 ignores entries that its scaler does not know. Source: pkg/scalers/scalersconfig/typed_config.go, and the
parameters of each scaler in schema/generated/scalers-schema.json.
"""

import difflib
from typing import Final

from hpad.manifests.keda.trigger import Trigger

_BESIDE: Final = ("type", "name", "metricType", "useCachedMetrics", "authenticationRef")
"""Fields of a trigger that stand beside its metadata."""
_WITHOUT_COUNTERPART: Final = ("awsRegion", "identityOwner", "workloadIdentityResource")
_BY_AUTHENTICATION: Final = ("username", "password", "ca", "cert", "key", "keyPassword", "tls", "token", "bearerToken")
"""Parameters that KEDA reads from a TriggerAuthentication only, for most triggers."""
_OLDER: Final = {
    "apiHost": "host, with the URL of the management API",
    "publishRate": "mode: MessageRate, and the rate as value",
    "includeUnacked": "excludeUnacknowledged for what was includeUnacked: false",
}
"""Entries of earlier versions of KEDA, and what to write instead."""


def note_unread(trigger: Trigger) -> None:
    """Notes each entry of the metadata that was not read."""
    for name in trigger.metadata.unread_names():
        if name in _BESIDE:
            trigger.note_change(name, "is left out: it has no effect, since KEDA reads it beside metadata only")
        elif name in _BY_AUTHENTICATION:
            trigger.note_change(name, "is left out: it has no effect, since KEDA reads it from authenticationRef only")
        elif name == "metricName":
            trigger.note_change(name, "is left out: KEDA ignores it")
        elif name in _WITHOUT_COUNTERPART:
            trigger.note_loss(name, "is not carried over: there is no counterpart")
        elif instead := _OLDER.get(name):
            trigger.note_loss(name, f"is of an earlier version of KEDA, and 2.21 ignores it: write {instead}")
        else:
            trigger.note_loss(name, f"is not carried over: KEDA 2.21 ignores it, too{_hint(trigger, name)}")


def _hint(trigger: Trigger, name: str) -> str:
    known = {each.lower(): each for each in trigger.metadata.known}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    return f'; did you mean "{known[close[0]]}"?' if close else ""
