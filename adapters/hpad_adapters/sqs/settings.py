"""The settings of an SQS source, and of the metrics that the operator defines on it."""

import re
from typing import Literal

import msgspec

from hpad.adapter import shown
from hpad.adapter_http import Secret, refuse, secret, secret_error, url_error

Count = Literal["visible", "in_flight", "delayed"]

ATTRIBUTES: dict[Count, str] = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}
_ROLE = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/.+")


def _queue_error(queue: str) -> str:
    """Returns why the text is neither the name nor the URL of a queue; "" if it is one."""
    if queue.startswith("arn:"):
        return f"{shown(queue)} is an ARN; write the URL of the queue, or its name, and the account as account"
    return url_error(queue, ("http", "https"), "https://sqs.…/123456789012/jobs") if "/" in queue else ""


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The sum of some counts of a queue.

    queue: the queue's URL, or its name; empty: the selector names it.
    counts: visible (messages that wait), in_flight (received and not deleted yet), delayed (sent with a delay that has
        not passed).
    """

    queue: str = ""
    counts: list[Count] = msgspec.field(default_factory=lambda: ["visible", "in_flight"])

    def __post_init__(self) -> None:
        if not self.counts or len(set(self.counts)) != len(self.counts):
            raise ValueError(f"counts: needs each of {', '.join(ATTRIBUTES)} at most once, and one at least")
        if error := _queue_error(self.queue):
            raise ValueError(f"queue: {error}")


class SqsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Queues of one AWS account in one region.

    region: such as eu-central-1; empty: that of the environment (AWS_REGION) or of the profile.
    metrics: name -> metric that the operator defines, beside sqs_messages (visible and in flight),
        sqs_messages_visible, sqs_messages_in_flight and sqs_messages_delayed, whose selector names the queue.
    queues: the name in a metric's selector -> URL or name of the queue; only_queues: selectors may name these only.
    account: the 12 digits of the account that owns queues named without a URL, if it is not that of the credentials.
    profile: of the AWS configuration files. Without profile and access_key_id the credentials are those of the
        environment, of a web identity (IRSA), of EKS Pod Identity, ECS or EC2, in the order of the AWS SDKs.
    access_key_id: instead of all these; secret_access_key: its secret; secret_access_key_file: a file that holds it,
        read again with each sign-in; secret_access_key_env: an environment variable that holds it.
    role_arn: a role to assume with these credentials; external_id: for it, where its trust policy demands one.
    endpoint_url, sts_endpoint_url: addresses of SQS and of STS, such as that of a VPC endpoint; empty: those of AWS.
    """

    region: str = ""
    metrics: dict[str, Metric] = {}
    queues: dict[str, str] = {}
    only_queues: bool = False
    account: str = ""
    profile: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    secret_access_key_file: str = ""
    secret_access_key_env: str = ""
    role_arn: str = ""
    external_id: str = ""
    endpoint_url: str = ""
    sts_endpoint_url: str = ""

    def __post_init__(self) -> None:
        errors = [secret_error(self, "secret_access_key")]
        errors += [_endpoint_error(name, getattr(self, name)) for name in ("endpoint_url", "sts_endpoint_url")]
        if self.access_key_id and not self.secret:
            names = "secret_access_key, secret_access_key_file and secret_access_key_env"
            errors.append(f"access_key_id: needs one of {names}")
        if self.secret and not self.access_key_id:
            errors.append("secret_access_key: needs the access_key_id")
        if self.access_key_id and self.profile:
            errors.append("profile: write either profile or access_key_id")
        if self.only_queues and not self.queues and not any(each.queue for each in self.metrics.values()):
            errors.append("only_queues: allows no queue; write queues, or leave it out")
        errors += [f"queues: {name}: {error}" for name, each in self.queues.items() if (error := _queue_error(each))]
        if self.account and not re.fullmatch(r"[0-9]{12}", self.account):
            errors.append(f"account: {shown(self.account)} is not the number of an account, of 12 digits")
        if self.role_arn and not _ROLE.fullmatch(self.role_arn):
            errors.append(f'role_arn: {shown(self.role_arn)} is not of the form "arn:aws:iam::123456789012:role/name"')
        for name in ("external_id", "sts_endpoint_url"):
            if getattr(self, name) and not self.role_arn:
                errors.append(f"{name}: has an effect with role_arn only")
        refuse(*errors)

    def __repr__(self) -> str:
        return f"SqsSettings(region={self.region!r}, metrics={self.metrics!r}, …)"

    @property
    def secret(self) -> Secret:
        """The secret of access_key_id."""
        return secret(self.secret_access_key, self.secret_access_key_file, self.secret_access_key_env)


def _endpoint_error(name: str, url: str) -> str:
    error = url_error(url, ("http", "https"), "https://host") if url else ""
    return f"{name}: {error}" if error else ""
