"""The API server: can it be reached, is it new enough, does it have the same time?"""

from datetime import timedelta

from hpad.cli.checkup.finding import ERROR, OK, WARNING, Finding
from hpad.kube import access, errors, paths
from hpad.kube.client import Client
from hpad.settings import Settings

_OLDEST = (1, 23)
"""The first with autoscaling/v2."""
_NO_TLS = "WRONG_VERSION_NUMBER"
"""What OpenSSL says of an answer that is no part of a handshake."""
_SKEW, _TOO_MUCH = timedelta(seconds=2), timedelta(seconds=30)
"""Windows, Leases and the age of metrics compare our clock with times that others wrote down."""


async def check(client: Client) -> list[Finding]:
    """One finding of level error if nothing else needs to be tried."""
    server = client.config.server
    try:
        found = await access.greet(client)
        now = client.clock.now()
        await client.request("GET", paths.HPAS.root)
    except errors.ApiError as error:
        return [Finding("server", ERROR, error.message, _advice(client, error))]
    findings = [Finding("server", OK, f"{server} is Kubernetes {found.version}, as {client.config.source} says")]
    version = access.numbers(found.version)
    if version is not None and version < _OLDEST:
        says = f"Kubernetes {found.version} is older than hpad knows"
        findings.append(Finding("server", WARNING, says, "upgrade the cluster to 1.23 or later"))
    if found.date is not None:
        findings.append(_clock(now - found.date))
    return findings


async def settled(client: Client, told: Settings) -> Settings:
    """The settings as they are with this server, whose version some defaults follow."""
    try:
        return told.on_server(access.numbers((await access.greet(client)).version))
    except errors.ApiError:
        return told


def _clock(skew: timedelta) -> Finding:
    """`skew`: how far our clock is ahead of the server's."""
    says = (
        f"our clock is {abs(skew).total_seconds():.0f}s {'ahead of' if skew > timedelta(0) else 'behind'} the server's"
    )
    if abs(skew) <= _SKEW:
        return Finding("clock", OK, "our clock and the server's agree")
    level = ERROR if abs(skew) > _TOO_MUCH else WARNING
    return Finding("clock", level, says, "synchronize both by NTP: windows and metrics are judged by these clocks")


def _advice(client: Client, error: errors.ApiError) -> str:
    if error.status == 401:
        return f"the credentials are not accepted: look at {client.config.source or 'the kubeconfig'}"
    if error.status == 404:
        return "autoscaling/v2 is missing there: hpad needs Kubernetes 1.23 or later"
    if error.reason == "Certificate" and _NO_TLS in error.message:
        return "something answers there, but not by TLS: is its address one with http:// or another port?"
    if error.reason == "Certificate":
        return "the certificate-authority of the kubeconfig does not fit the server"
    if error.status == 0:
        return f"look at the address {client.config.server}, the network between, and whether the server runs"
    return "ask the administrator of the cluster"
