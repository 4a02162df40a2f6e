"""The section `notify`: where hpad sends messages about HPAs that need a person, and about which causes."""

import enum
import urllib.parse
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from hpad.api.loopback import is_in_clear
from hpad.api.metadata import label_faults
from hpad.api.problem import Invalid, Problem
from hpad.api.text import hint, shown
from hpad.settings import parsers, rows
from hpad.settings.parsers import each, takes
from hpad.settings.rows import Setting


class NotifyCause(enum.StrEnum):
    """What a message can be about. All but `RESCALE` last for a while, and end."""

    RESCALE = "rescale"
    AT_MAX = "at_max"
    FAILING = "failing"
    FALLBACK = "fallback"
    COMPETING = "competing"


SLACK: Final = "slack"
CLOUDEVENTS: Final = "cloudevents"
_CAUSES: Final = tuple(map(str, NotifyCause))
IN_CLEAR: Final = "a token is sent over https:// only, or to this machine"
_FORM: Final = "{form: slack, url_file: FILE} or {form: cloudevents, url: https://…}"


@takes(parsers.list_of({"enum": list(_CAUSES)}))
def _causes(value: Any) -> tuple[NotifyCause, ...]:
    names = parsers.names(value)
    for name in names:
        if name not in _CAUSES:
            raise ValueError(f"there is no cause {shown(name)}{hint(name, _CAUSES)}")
    return tuple(map(NotifyCause, names))


def url_fault(url: str) -> str:
    """Returns why a text is no address to send to, without the text, which may be a secret; "" if it is one."""
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not a URL, or its port is not a number"
    if not usable or any(character.isspace() or not character.isprintable() for character in url):
        return "is not of the form https://HOST/PATH"
    return "contains credentials: use token_file, or url_file" if "@" in parts.netloc else ""


@takes({"type": "string", "pattern": "^https?://"}, "URL")
def _url(value: Any) -> str:
    # No error repeats the value: an address may hold a secret.
    if fault := url_fault(value) if isinstance(value, str) else "is not text":
        raise ValueError(f"the value {fault}")
    return str(value)


@takes({"type": "string"}, "FILE")
def _file(value: Any) -> Path:
    if not isinstance(value, str) or not value or "://" in value:
        raise ValueError("the value is not the path of a file: write the secret into a file, and name that")
    return Path(value).expanduser()


class NotifyAfter(msgspec.Struct, frozen=True, kw_only=True):
    """How long a condition has to last before it is told, by cause."""

    at_max: Annotated[
        timedelta, Setting(parsers.duration, "at maxReplicas while the metrics ask for more (default 15m)")
    ] = timedelta(minutes=15)
    failing: Annotated[
        timedelta,
        Setting(parsers.duration, "a metric, the target or the write of its count fails, without a fallback (5m)"),
    ] = timedelta(minutes=5)
    fallback: Annotated[timedelta, Setting(parsers.duration, "a fallback is in force (1m)")] = timedelta(minutes=1)
    competing: Annotated[
        timedelta, Setting(parsers.duration, "another client writes the target's count or the HPA's status (1m)")
    ] = timedelta(minutes=1)


class NotifyDestination(msgspec.Struct, frozen=True, kw_only=True):
    """One address that messages are sent to, by its name. Exactly one of `url` and `url_file` is set."""

    name: str = ""
    form: Annotated[str, Setting(parsers.one_of(SLACK, CLOUDEVENTS), "slack (an incoming webhook) or cloudevents")]
    url: Annotated[str, Setting(_url, "the address, if it is no secret; not with slack")] = ""
    url_file: Annotated[Path | None, Setting(_file, "a file that holds the address; read for each request")] = None
    token_file: Annotated[
        Path | None,
        Setting(_file, "a file that holds a bearer token; read each time; sent over https, or to loopback"),
    ] = None
    ca: Annotated[Path | None, Setting(_file, "authorities (PEM) to trust in place of those of the machine")] = None
    causes: Annotated[
        tuple[NotifyCause, ...], Setting(_causes, f"what to send: some of {', '.join(_CAUSES)}; empty: all")
    ] = ()
    namespaces: Annotated[
        tuple[str, ...], Setting(parsers.patterns, "namespaces of HPAs, or patterns; empty: all")
    ] = ()

    def takes(self, cause: NotifyCause, namespace: str) -> bool:
        """Whether messages of this cause about HPAs of the namespace go here."""
        wanted = not self.causes or cause in self.causes
        return wanted and parsers.matches_any(self.namespaces, namespace)


_OF_DESTINATION: Final = rows.mapping(NotifyDestination)


def _destination(name: str, value: Any) -> NotifyDestination:
    for fault in label_faults(name):
        raise ValueError(f"{shown(name)} is not the name of a destination: {fault}")
    if not isinstance(value, dict):
        raise ValueError(f"a destination is a mapping such as {_FORM}")
    found = _OF_DESTINATION(value)
    if problems := [Problem(field, text) for field, text in _faults(found)]:
        raise Invalid(*problems)
    return msgspec.structs.replace(found, name=name)


def _faults(found: NotifyDestination) -> Iterator[tuple[str, str]]:
    """Yields the contradictions between the fields of a destination, each with its field."""
    if found.form == SLACK and found.url:
        yield "url", "url: the address of a Slack webhook is a secret: write it into a file, and name that in url_file"
    elif bool(found.url) == (found.url_file is not None):
        yield "", f"give one of url and url_file: {_FORM}"
    if found.token_file is not None and is_in_clear(found.url):
        yield "token_file", f"token_file: {IN_CLEAR}"


@takes({"type": "object", "additionalProperties": _OF_DESTINATION.form})
def _destinations(value: Any) -> tuple[NotifyDestination, ...]:
    if not isinstance(value, dict):
        raise ValueError(f"destinations are a mapping of a name to {_FORM}")
    return tuple(each((str(name), partial(_destination, str(name), entry)) for name, entry in value.items()))


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The section. Without `destinations` nothing is watched for and nothing is sent."""

    destinations: Annotated[
        tuple[NotifyDestination, ...], Setting(_destinations, "a name -> where to send, and what")
    ] = ()
    after: Annotated[
        NotifyAfter, Setting(rows.mapping(NotifyAfter), "how long a condition lasts before it is told")
    ] = NotifyAfter()
    page: Annotated[str, Setting(_url, "the address of hpad's page, for links in messages")] = ""
    cluster: Annotated[str, Setting(parsers.text, "the name of the cluster in messages")] = ""

    @property
    def causes(self) -> frozenset[NotifyCause]:
        """The causes that any destination takes."""
        return frozenset(cause for each in self.destinations for cause in each.causes or NotifyCause)


_OF_SECTION: Final = rows.mapping(NotifySettings)


@takes(_OF_SECTION.form)
def notify(value: Any) -> NotifySettings:
    """Parses the section. Raises ValueError with every problem."""
    if not isinstance(value, dict):
        raise ValueError(f"notify is a mapping such as {{destinations: {{NAME: {_FORM}}}}}")
    return _OF_SECTION(value)
