"""Converts KEDA's trigger `postgresql`.

Source: KEDA 2.21, "PostgreSQL"; PostgreSQL, "libpq: Connection Strings".
"""

import shlex
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

_PORT: Final = "5432"
_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")
_CONNECTION: Final = "connection"


class _Place(msgspec.Struct, frozen=True):
    """A database, and the user who is in its connection string."""

    host: str
    port: str = _PORT
    database: str = ""
    sslmode: str = ""
    user: str = ""


def postgresql(trigger: Trigger) -> None:
    """Adds the number of a query; raises Invalid."""
    value, activation = trigger.target("targetQueryValue"), trigger.number("activationTargetQueryValue")
    query = {"query": trigger.needed("query")}
    place = _place(trigger)
    host = place.host.split(",")[0]
    settings: dict[str, Any] = {"host": place.host if host == place.host else place.host.split(",")}
    if place.port != _PORT:
        settings["port"] = trigger.whole_number("port", place.port)
    settings |= {"database": place.database, "sslmode": _sslmode(trigger, place.sslmode)}
    settings |= trigger.credentials(host, place.user, _CONNECTION, user="userName")
    if not settings.keys() & {"password_file", "password_env"} and trigger.reference(_CONNECTION) is not None:
        settings |= trigger.login_of_url(_CONNECTION, host)
    if "username" not in settings:
        settings["username"] = trigger.placeholder("userName")
    trigger.external(trigger.source("postgresql", query, host, settings), value, activation)


def _place(trigger: Trigger) -> _Place:
    """Returns the database of the connection string, or of the parameters; example values where they are kept."""
    if text := trigger.text(_CONNECTION):
        found = _of_url(trigger, text) if "://" in text else _of_words(trigger, text)
    elif trigger.unread(_CONNECTION, f"postgresql://{PLACEHOLDER}"):
        found = _Place(PLACEHOLDER)
    else:
        return _Place(
            trigger.required_text("host", PLACEHOLDER),
            trigger.text("port") or trigger.unread("port", _PORT) or _PORT,
            trigger.text("dbName") or trigger.unread("dbName") or trigger.placeholder("dbName"),
            trigger.text("sslmode") or trigger.unread("sslmode", "prefer"),
        )
    return found if found.database else msgspec.structs.replace(found, database=trigger.placeholder("dbName"))


def _of_url(trigger: Trigger, text: str) -> _Place:
    parts = split_url(text)
    if not parts.hostname:
        raise trigger.invalid(_CONNECTION, "…", "must be a URL of one PostgreSQL server, or words such as host=…")
    params = dict(urllib.parse.parse_qsl(parts.query))
    _note_others(trigger, params.keys() - {"sslmode"})
    return _Place(
        parts.hostname,
        str(parts.port or _PORT),
        urllib.parse.unquote(parts.path.strip("/")),
        params.get("sslmode", ""),
        urllib.parse.unquote(parts.username or ""),
    )


def _of_words(trigger: Trigger, text: str) -> _Place:
    try:
        words = dict(word.split("=", 1) for word in shlex.split(text))
    except ValueError:
        raise trigger.invalid(_CONNECTION, "…", "must be words such as host=… user=…, or a URL") from None
    names = ("host", "port", "dbname", "sslmode", "user")
    host, port, database, sslmode, user = (words.get(name, "") for name in names)
    _note_others(trigger, words.keys() - {*names, "password"})
    if not host:
        text = f"has no host: write it into the source, in place of {PLACEHOLDER}"
        trigger.conversion.note_loss(trigger.field_of(_CONNECTION), text)
    return _Place(host or PLACEHOLDER, port or _PORT, database, sslmode, user)


def _note_others(trigger: Trigger, names: Iterable[str]) -> None:
    """Notes parameters of a connection string that have no counterpart."""
    for name in sorted(names):
        trigger.conversion.note_loss(trigger.field_of(_CONNECTION), f"{name} is not carried over")


def _sslmode(trigger: Trigger, mode: str) -> str:
    """Returns the mode. libpq's default is prefer, and `allow` is the same with TLS as the second choice."""
    if mode in ("", "allow"):
        return "prefer"
    if mode not in _MODES:
        raise trigger.invalid("sslmode", mode, f"must be one of {', '.join(_MODES)}")
    return mode
