"""Entries of a trigger's metadata that no converter reads: most of them have no effect in KEDA either.

KEDA 2.21 ignores entries that its scaler does not know. Source: pkg/scalers/scalersconfig/typed_config.go, and the
parameters of each scaler in schema/generated/scalers-schema.json.
"""

import difflib
from typing import Final

from hpad.manifests.keda.trigger import FROM_ENV, Trigger

_BESIDE: Final = ("type", "name", "metricType", "useCachedMetrics", "authenticationRef")
"""Fields of a trigger that stand beside its metadata."""
_WITHOUT_COUNTERPART: Final = ("awsRegion", "identityOwner")
_BY_AUTHENTICATION: Final = (
    *("username", "password", "ca", "Cert", "cert", "key", "keyPassword", "tls", "token", "bearerToken"),
    *("clientID", "clientSecret", "scopes", "oauthTokenEndpointUri", "oauthExtensions"),
    *("customAuthHeader", "customAuthValue", "awsAccessKeyID", "awsSecretAccessKey", "workloadIdentityResource"),
    *("keytab", "realm", "kerberosConfig", "kerberosServiceName", "kerberosDisableFAST"),
)
"""Parameters that KEDA reads from a TriggerAuthentication only, where no converter reads them from the metadata."""
_KAFKA: Final = ("kafka", "apache-kafka")
_OF_AN_ADDRESS: Final = ("address", "addresses", "host", "hosts", "port", "ports")
_CONDITIONS: Final = {
    "unsafeSsl": "with TLS",
    "saslTokenProvider": "with sasl oauthbearer",
    **dict.fromkeys(("keyParamName", "method", "apiKey"), "with authMode apiKey"),
    **dict.fromkeys(("sentinelMaster", "sentinelUsername", "sentinelPassword"), "in a trigger of Redis Sentinel"),
    **dict.fromkeys(_OF_AN_ADDRESS, "without another form of the address"),
}
"""When entries have an effect that a converter reads only then."""
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
        elif name.removesuffix(FROM_ENV) in _BY_AUTHENTICATION:
            trigger.note_change(name, "is left out: it has no effect, since KEDA reads it from authenticationRef only")
        elif name == "metricName":
            trigger.note_change(name, "is left out: KEDA ignores it")
        elif condition := _condition(trigger, name):
            trigger.note_change(name, f"is left out: it has an effect {condition} only")
        elif name in _WITHOUT_COUNTERPART:
            trigger.note_loss(name, "is not carried over: there is no counterpart")
        elif instead := _OLDER.get(name):
            trigger.note_loss(name, f"is of an earlier version of KEDA, and 2.21 ignores it: write {instead}")
        else:
            trigger.note_loss(name, f"is not carried over: KEDA 2.21 ignores it, too{_hint(trigger, name)}")


def _condition(trigger: Trigger, name: str) -> str:
    """Returns when an entry that has none here would have an effect; "" if that is not known."""
    if name == "awsRegion" and trigger.type in _KAFKA:
        return "with AWS MSK IAM"
    known = name in _CONDITIONS and (name not in _OF_AN_ADDRESS or trigger.type.startswith("redis"))
    return _CONDITIONS[name] if known else ""


def _hint(trigger: Trigger, name: str) -> str:
    known = {each.lower(): each for each in trigger.metadata.known if not each.endswith(FROM_ENV)}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    return f'; did you mean "{known[close[0]]}"?' if close else ""
