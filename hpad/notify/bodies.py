"""Writes the bodies of requests: the text of a Slack webhook, and CloudEvents 1.0 in structured mode."""

import urllib.parse
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hpad.notify.causes import NoticePhase, wanted
from hpad.notify.texts import Notice, NoticeText, worded
from hpad.settings.notify import CLOUDEVENTS, NotifyCause

_MOST_AT_ONCE: Final = 20
"""Messages in one text for Slack: fewer than 20,000 characters, of 40,000 that it takes."""


class Sender(NamedTuple):
    """What messages say of this hpad: the name of its cluster and the address of its page, "" where it is not known."""

    cluster: str = ""
    page: str = ""


class Body(NamedTuple):
    """The content of a request with its type. The same body is sent again after a failure."""

    content: bytes
    content_type: str


def most_at_once(form: str) -> int:
    """Returns how many messages one request may have."""
    return 1 if form == CLOUDEVENTS else _MOST_AT_ONCE


def body(form: str, notices: Sequence[Notice], sender: Sender) -> Body:
    """Returns the body of a request with these messages, at least one and at most `most_at_once`."""
    if form == CLOUDEVENTS:
        content = msgspec.json.encode(_event(notices[0], sender))
        return Body(content, "application/cloudevents+json; charset=utf-8")
    text = "\n\n".join(_slack(notice, sender) for notice in notices)
    return Body(msgspec.json.encode({"text": text}), "application/json")


def _escaped(text: str) -> str:
    """Escapes what Slack reads as markup: `<!channel>` in a text from outside would notify all its members."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack(notice: Notice, sender: Sender) -> str:
    words = worded(notice, sender.page)
    head = f"[{sender.cluster}] {words.what}" if sender.cluster else words.what
    lines = [f"{_sign(notice)} {_escaped(head)}", *map(_escaped, filter(None, (words.why, words.advice)))]
    return "\n".join([*lines, f"<{_escaped(words.link)}|Open the page>"] if words.link else lines)


def _sign(notice: Notice) -> str:
    if notice.change.phase == NoticePhase.ENDED:
        return ":white_check_mark:"
    is_normal = notice.change.cause == NotifyCause.RESCALE
    return ":arrows_counterclockwise:" if is_normal else ":warning:"


def _event(notice: Notice, sender: Sender) -> dict[str, Any]:
    """Returns the CloudEvent. Its id stays the same in further attempts, so that a receiver can leave out a repeat."""
    change, words = notice.change, worded(notice, sender.page)
    about = "test" if notice.decision is None else str(change.cause)
    return {
        "specversion": "1.0",
        "id": uuid.uuid4().hex,
        "source": _source(sender),
        "type": f"io.hpad.{about}.{change.phase}",
        "time": notice.at.isoformat().replace("+00:00", "Z"),
        "subject": str(notice.key),
        "datacontenttype": "application/json",
        "data": _data(notice, sender, words),
    }


def _source(sender: Sender) -> str:
    """Returns what tells the events of several clusters apart."""
    name = urllib.parse.quote(sender.cluster, safe="")
    return f"urn:hpad:{name}" if name else sender.page or "urn:hpad:hpad"


def _data(notice: Notice, sender: Sender, words: NoticeText) -> dict[str, Any]:
    """Returns the figures and texts of a message; what does not apply is left out."""
    key, change, decision = notice.key, notice.change, notice.decision
    found: dict[str, Any] = {
        "cluster": sender.cluster,
        "namespace": key.namespace,
        "name": key.name,
        "kind": "Autoscaler" if key.kind else "HorizontalPodAutoscaler",
        "target": notice.target,
        "cause": change.cause,
        "phase": change.phase,
        "since": change.since.isoformat().replace("+00:00", "Z"),
        "what": words.what,
        "why": words.why,
        "advice": words.advice,
        "link": words.link,
    }
    if decision is not None:
        counts = {"current": decision.current, "desired": decision.desired, "wanted": wanted(decision)}
        found |= {**counts, "maximum": notice.maximum, "repeats": change.repeats}
    return {name: value for name, value in found.items() if value != ""}
