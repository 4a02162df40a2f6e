"""Converts KEDA's trigger `aws-sqs-queue`.

Source: KEDA 2.21, "AWS SQS Queue"; aws_sqs_queue_scaler.go: messages in flight count unless scaleOnInFlight is false.
"""

import re
from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

_DEFAULT_LENGTH: Final = "5"
_EXAMPLE: Final = f"https://{PLACEHOLDER}"
_KEY: Final = "awsSecretAccessKey"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")


def sqs(trigger: Trigger) -> None:
    """Adds the messages of a queue; raises Invalid."""
    value, activation = trigger.target("queueLength", _DEFAULT_LENGTH), trigger.number("activationQueueLength")
    query: dict[str, Any] = {"queue": _queue(trigger), "counts": _counts(trigger)}
    region = trigger.required_text("awsRegion", PLACEHOLDER)
    settings: dict[str, Any] = {"region": region} | _login(trigger, region)
    if endpoint := trigger.text("awsEndpoint"):
        settings["endpoint_url"] = endpoint
    reason = "hpad takes its own credentials, or those of the TriggerAuthentication"
    trigger.note_unneeded({"identityOwner": reason})
    host = split_url(endpoint).hostname if endpoint else None
    source = trigger.source("sqs", query, host or region, settings)
    trigger.external(source, value, activation)


def _queue(trigger: Trigger) -> str:
    queue = trigger.required_text("queueURL", _EXAMPLE)
    if "://" not in queue and not _NAME.fullmatch(queue):
        raise trigger.invalid("queueURL", queue, "must be the URL of a queue, or its name")
    return queue


def _counts(trigger: Trigger) -> list[str]:
    in_flight = trigger.metadata.truth("scaleOnInFlight") or not trigger.metadata.text("scaleOnInFlight")
    delayed = trigger.metadata.truth("scaleOnDelayed")
    return ["visible", *(["in_flight"] if in_flight else []), *(["delayed"] if delayed else [])]


def _login(trigger: Trigger, region: str) -> dict[str, Any]:
    """Returns a key with its secret, or the role to assume; nothing for the credentials that hpad itself has."""
    if trigger.reference("awsSessionToken") is not None:
        field = trigger.field_of("awsSessionToken")
        trigger.conversion.note_loss(field, "a session token ends within hours: use a role, or a key without one")
    role = trigger.text("awsRoleArn") or trigger.unread("awsRoleArn", f"arn:aws:iam::{PLACEHOLDER}:role/hpad")
    found: dict[str, Any] = {"role_arn": role} if role else {}
    secret = trigger.secret(_KEY, "secret_access_key_file", region, "secret access key")
    key = trigger.text("awsAccessKeyID") or trigger.unread("awsAccessKeyID")
    if not (secret or key):
        return found
    found["access_key_id"] = key or trigger.placeholder("awsAccessKeyID")
    secret = secret or {"env": trigger.variable_of(trigger.field_of(_KEY), region, "secret access key")}
    return found | {f"secret_access_key_{kind}": place for kind, place in secret.items()}
