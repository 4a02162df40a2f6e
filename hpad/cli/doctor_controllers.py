"""The check `controllers` of `hpad doctor`: does another controller act on hpad's HPAs, and which way leads on?

Read from metadata.managedFields, which have the time of each client's last change, and from what tells a hosted control
plane (`hosting_service`): its built-in controller cannot be turned off, so Autoscalers take the place of HPAs there.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hpad.cli.doctor_checks import ERROR, NOTE, OK, WARNING, Finding, listed
from hpad.cli.doctor_targets import Object, is_recent
from hpad.cli.output import counted
from hpad.kube import access, errors, managed_fields
from hpad.kube.client import Client
from hpad.settings import Settings
from hpad.settings.model import AUTOSCALERS

_SILENCE = timedelta(seconds=60)
"""Four periods, in which a controller that is on writes the status of an HPA whose metrics change."""
_OFF = "--controllers=*,-horizontal-pod-autoscaler-controller"
_AUTOSCALERS = "use Autoscalers in place of HPAs, with `kinds: autoscalers` (docs/hosted.md)"


async def check_controllers(client: Client, settings: Settings, found: Sequence[msgspec.Raw]) -> list[Finding]:
    """Returns a finding on each other controller that wrote the status of these HPAs within five minutes.

    It is an error if the controller has written after hpad, or instead of it; a note if hpad has taken over since, and
    in a dry run. Without any: a warning if the control plane is hosted, a note if the Lease of a
    kube-controller-manager is current, and a finding that there is none.
    """
    now, service = client.clock.now(), await hosting_service(client)
    if settings.kinds == AUTOSCALERS:
        theirs = f"the built-in controller of {service}" if service else "their controller"
        return [Finding("controllers", OK, f"hpad acts on Autoscalers alone, and leaves HPAs to {theirs}")]
    writes = [each for each in _status_writes(found) if is_recent(each.time, now)]
    if writes and settings.dry_run:
        return [_beside(manager, each, service) for manager, each in _by_manager(writes)]
    if writes:
        begin = await _leads_since(client, settings)
        still = [each for each in writes if _goes_on(each, begin)]
        earlier = [each for each in writes if each not in still]
        return [
            *(_other_controller(manager, each, service) for manager, each in _by_manager(still)),
            *(_former_controller(manager, each, service) for manager, each in _by_manager(earlier)),
        ]
    if service:
        level = NOTE if settings.dry_run else WARNING
        says = f"the control plane is hosted by {service}: its built-in controller acts on every HPA, as hpad would"
        return [Finding("controllers", level, says, _way(service))]
    if found:
        says = f"no other controller writes the status of {counted(len(found), 'HPA')}"
    else:
        says = "there are no HPAs yet, so no other controller writes their status"
    return [*await _built_in_controller(client, now), Finding("controllers", OK, says)]


class _StatusWrite(NamedTuple):
    """The last write of a status by another client, and by hpad (`ours`); times are RFC 3339, "" for none."""

    manager: str
    hpa: str
    time: str
    ours: str


def _status_writes(found: Iterable[msgspec.Raw]) -> list[_StatusWrite]:
    """Returns the other clients that wrote the statuses. hpad leaves a status alone that needs no change.

    So where it has written none, its last write of any other status counts.
    """
    known = list(_entries(found))
    ours = [managed_fields.status_written(filter(_is_ours, entries)) for _, entries in known]
    return [
        _StatusWrite(manager, name, time, own or max(ours))
        for (name, entries), own in zip(known, ours, strict=True)
        for manager, time in managed_fields.writers_of_status(entries).items()
    ]


def _entries(found: Iterable[msgspec.Raw]) -> Iterator[tuple[str, Sequence[managed_fields.ManagedFieldsEntry]]]:
    """Yields the name of each HPA, and its entries of managedFields."""
    for item in found:
        metadata = msgspec.json.decode(item, type=Object).metadata
        yield f"{metadata.namespace}/{metadata.name}", managed_fields.entries(metadata.managed_fields)


def _goes_on(write: _StatusWrite, begin: str) -> bool:
    """Returns whether another client writes beside hpad, which leads since `begin` ("": unknown).

    A controller that wrote while hpad led is still on, unless it has been silent since while hpad wrote.
    """
    if write.time <= begin:
        return False
    if not begin or write.time > write.ours:
        return write.time > write.ours
    return msgspec.convert(write.ours, datetime) - msgspec.convert(write.time, datetime) < _SILENCE


def _is_ours(entry: managed_fields.ManagedFieldsEntry) -> bool:
    return entry.manager == managed_fields.OURS


def _by_manager(writes: Iterable[_StatusWrite]) -> list[tuple[str, list[_StatusWrite]]]:
    found: dict[str, list[_StatusWrite]] = defaultdict(list)
    for each in writes:
        found[each.manager].append(each)
    return sorted(found.items())


async def _leads_since(client: Client, settings: Settings) -> str:
    """Returns since when an hpad with these settings is the leader; "" if that is not known."""
    if not settings.election.enabled:
        return ""
    try:
        spec = await _lease(client, settings.election.namespace, settings.election.name)
        held = spec["holderIdentity"] and is_recent(spec["renewTime"], client.clock.now())
        return f"{spec['acquireTime'][:19]}Z" if held else ""
    except (errors.ApiError, msgspec.MsgspecError, KeyError, TypeError):
        return ""


async def _lease(client: Client, namespace: str, name: str) -> Any:
    """Returns the spec of a Lease. Raises ApiError; for an answer that is none MsgspecError, KeyError or TypeError."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    return msgspec.json.decode(await client.request("GET", path))["spec"]


def _way(service: str) -> str:
    """Returns how hpad and the built-in controller get HPAs of their own. `service`: hosts the control plane, or ""."""
    if service:
        return f"{service} has no way to turn it off: {_AUTOSCALERS}"
    return f"run kube-controller-manager with {_OFF}; where its flags are out of reach, {_AUTOSCALERS}"


def _other_controller(manager: str, writes: Sequence[_StatusWrite], service: str) -> Finding:
    last, names = max(each.time for each in writes), listed([each.hpa for each in writes])
    beside = " beside hpad, last at {0}: " if any(each.ours for each in writes) else ", last at {0}: with hpad, "
    says = f"{manager} writes the status of {names}{beside.format(last)}two controllers own the same HPAs"
    do = f"{_way(service)}; to look at what hpad would do beside it, use --dry-run"
    return Finding("controllers", ERROR, says, do)


def _former_controller(manager: str, writes: Sequence[_StatusWrite], service: str) -> Finding:
    last = max(each.time for each in writes)
    names = listed([each.hpa for each in writes])
    says = f"{manager} wrote the status of {names}, last at {last}, and hpad has taken over since"
    do = f"if a later run names a later time, {manager} is still on: {_way(service)}"
    return Finding("controllers", NOTE, says, do)


def _beside(manager: str, writes: Sequence[_StatusWrite], service: str) -> Finding:
    says = f"{manager} writes the status of {listed([each.hpa for each in writes])}: a dry run works beside it"
    return Finding("controllers", NOTE, says, f"before hpad runs without --dry-run: {_way(service)}")


async def _built_in_controller(client: Client, now: datetime) -> list[Finding]:
    """Returns a note if a kube-controller-manager is active.

    Its Lease does not show whether its HPA controller is off.
    """
    try:
        renewed = (await _lease(client, "kube-system", "kube-controller-manager"))["renewTime"]
    except (errors.ApiError, msgspec.MsgspecError, KeyError, TypeError):
        return []
    if not is_recent(renewed, now):
        return []
    says = "a kube-controller-manager is active; whether its HPA controller is off shows only once there are HPAs"
    return [Finding("controllers", NOTE, says, _way(""))]


# Which service hosts a control plane, whose flags no user can set, from what its API server says.
#
# The version tells it (`v1.33.1-eks-595af52`; `-eks-1-33-12` is EKS Distro, whose flags users set), or the host of the
# API server. To a pod, whose API server is kubernetes.default.svc, the issuer of ServiceAccount tokens tells it: every
# ServiceAccount may read that (ClusterRole system:service-account-issuer-discovery).

_ISSUER: Final = "/.well-known/openid-configuration"
_VERSIONS: Final = (
    ("EKS", re.compile(r"-eks-[0-9a-f]{7,}$")),
    ("GKE", re.compile(r"-gke\.")),
    ("ACK", re.compile(r"-aliyun\.")),
    ("TKE", re.compile(r"-tke\.")),
    ("IBM Cloud Kubernetes Service", re.compile(r"\+IKS$")),
)
_HOSTS: Final = (
    ("AKS", (".azmk8s.io", ".azmk8s.us", ".oic.prod-aks.azure.com")),
    ("EKS", (".eks.amazonaws.com", ".eks.amazonaws.com.cn")),
    ("GKE", ("container.googleapis.com", ".gke.goog")),
    ("DigitalOcean Kubernetes", (".k8s.ondigitalocean.com",)),
)


class _Issuer(msgspec.Struct):
    issuer: str = ""


async def hosting_service(client: Client) -> str:
    """Returns the name of the service that hosts this server; "" if none is known. Never raises."""
    try:
        version = (await access.probe_version(client)).version
    except errors.ApiError:
        return ""
    by_version = next((name for name, form in _VERSIONS if form.search(version)), "")
    return by_version or _of_host(client.config.server) or _of_host(await _issuer(client))


def _of_host(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return next((name for name, ends in _HOSTS if host.endswith(ends)), "")


async def _issuer(client: Client) -> str:
    try:
        return msgspec.json.decode(await client.request("GET", _ISSUER), type=_Issuer).issuer
    except (errors.ApiError, *errors.UNREADABLE):
        return ""


# Another hpad has the same name in metadata.managedFields. Where none with these settings works, each write is its own.


async def check_other_hpad(client: Client, settings: Settings, found: Sequence[msgspec.Raw]) -> list[Finding]:
    """Returns a finding if an hpad of another election has written the status of these HPAs within five minutes.

    A warning by the Lease, which the writer would have renewed. Without leader election a note if nothing listens at
    the port of these settings: the hpad of this machine is off, and may have been stopped since.
    """
    writes = [each for each in _own_writes(found) if is_recent(each[0], client.clock.now())]
    if not writes:
        return []
    last, names = max(time for time, _ in writes), listed([name for _, name in writes])
    says = f"an hpad has written the status of {names}, last at {last}, and "
    if settings.election.enabled:
        if not await _lease_is_older(client, settings, last):
            return []
        says += f"not as the holder of the Lease {settings.election.namespace}/{settings.election.name}"
        level = WARNING
    else:
        if settings.listen is None or await _answers(*settings.listen):
            return []
        says += f"none listens on {settings.listen[0]}:{settings.listen[1]}"
        level = NOTE
    return [Finding("hpads", NOTE if settings.dry_run else level, says, _APART)]


_APART: Final = (
    "if a later run names a later time, it is still on: stop it, or give both one Lease (leader_elect), or HPAs of "
    "their own (namespaces, hpa_selector)"
)


def _own_writes(found: Iterable[msgspec.Raw]) -> Iterator[tuple[str, str]]:
    """Yields the times at which an hpad wrote statuses, and the names of the HPAs."""
    for name, entries in _entries(found):
        if time := managed_fields.status_written(filter(_is_ours, entries)):
            yield time, name


async def _lease_is_older(client: Client, settings: Settings, time: str) -> bool:
    """Whether the Lease was renewed well before this time the last time, or does not exist; False if not readable."""
    try:
        spec = await _lease(client, settings.election.namespace, settings.election.name)
        renewed = msgspec.convert(spec["renewTime"], datetime)
        return msgspec.convert(time, datetime) - renewed > _SILENCE
    except errors.ApiError as error:
        return error.not_found
    except (msgspec.MsgspecError, KeyError, TypeError):
        return False


async def _answers(host: str, port: int) -> bool:
    """Whether a process of this machine listens on a port."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
