"""Writes messages: in plain words what happens to which HPA, since when, and what to do; and the bodies of requests."""

import urllib.parse
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.metadata import Key
from hpad.api.text import begin, harmless
from hpad.engine import settle, words
from hpad.engine.decision import Decision
from hpad.engine.holds import cause as failure
from hpad.engine.view import Competitor
from hpad.notify.causes import NoticeChange, NoticePhase, wanted
from hpad.settings.notify import CLOUDEVENTS, NotifyCause

_LONGEST: Final = 600
"""Characters of a reason, which may quote a source or the API server."""


class Notice(msgspec.Struct, frozen=True, gc=False):
    """One message: the HPA, what is to be told of it, and the decision that it is told of (None: this is a test).

    `at` is the time of the reconcile, `target` is kind/name, `maximum` is the largest count at that time: maxReplicas,
    or (`is_scheduled`) less by the schedule of the HPA.
    """

    key: Key
    at: datetime
    change: NoticeChange
    target: str = ""
    maximum: int = 0
    is_scheduled: bool = False
    decision: Decision | None = None
    outcome: settle.Outcome | None = None
    competitors: tuple[Competitor, ...] = ()


class NoticeText(msgspec.Struct, frozen=True):
    """A message as text: what, why, what to do, and the address of the HPA on the page; "" where there is none."""

    what: str
    why: str = ""
    advice: str = ""
    link: str = ""


_OVER: Final = {
    NotifyCause.AT_MAX: "is no longer at its maximum",
    NotifyCause.FAILING: "works again",
    NotifyCause.FALLBACK: "needs its fallback no more",
    NotifyCause.COMPETING: "is the only writer again",
}
_ADVICE: Final = {
    NotifyCause.AT_MAX: "Raise maxReplicas if the cluster, and what the pods depend on, can take more.",
    NotifyCause.FAILING: "Mend what failed; until then the count does not follow the load.",
    NotifyCause.FALLBACK: "Mend the source of the metric; until then the fallback decides, and not the load.",
    NotifyCause.COMPETING: "Let one alone scale it: delete the other HPA, or leave `replicas` out of what you deploy.",
}
_SCHEDULED: Final = "Its schedule sets this maximum: raise it there, if the cluster and what the pods depend on allow."


def worded(notice: Notice, page: str) -> NoticeText:
    """Returns the texts of a message. `page` is the address of hpad's page, "" for no link."""
    change = notice.change
    if notice.decision is None:
        return NoticeText("This is a test: messages of hpad arrive here.", link=page)
    link = f"{page.rstrip('/')}/#/{_path(notice.key)}" if page else ""
    if change.phase == NoticePhase.ENDED:
        lasted = words.span(round(change.lasted))
        return NoticeText(f"{notice.key} {_OVER[change.cause]}, after {lasted}", link=link)
    what, why = _begun(notice, notice.decision)
    return NoticeText(f"{notice.key} {what}{_repeats(change)}", _short(why), _advice(notice), link)


def _begun(notice: Notice, decision: Decision) -> tuple[str, str]:
    """Returns what has begun, and why."""
    change = notice.change
    since = f"since {words.clock(change.since, notice.at)}"
    if change.cause == NotifyCause.RESCALE:
        what = f"was scaled from {decision.current} to {words.replicas(decision.desired)} ({notice.target})"
        return what, settle.sentence(decision, notice.outcome)
    if change.cause == NotifyCause.AT_MAX:
        why = f"the metrics ask for {wanted(decision)}" if wanted(decision) > notice.maximum else ""
        return f"has been at its maximum of {words.replicas(notice.maximum)} {since}", why
    if change.cause == NotifyCause.FALLBACK:
        found = [f"{each.metric.label}: {each.fallback} ({each.cause})" for each in decision.proposals if each.fallback]
        return f"has been scaled by a fallback {since}", "; ".join(found)
    if change.cause == NotifyCause.COMPETING:
        return f"has not been the only writer {since}", "; ".join(map(str, notice.competitors))
    return f"has been failing {since}", failure(decision, notice.outcome)


def _repeats(change: NoticeChange) -> str:
    if not change.repeats:
        return ""
    times = "once" if change.repeats == 1 else f"{change.repeats} times"
    return f"; {times} more since the last message"


def _advice(notice: Notice) -> str:
    """Returns what to do. A command that shows more is named where there is a failure."""
    cause, key = notice.change.cause, notice.key
    if cause == NotifyCause.RESCALE:
        return ""
    if cause == NotifyCause.AT_MAX and notice.is_scheduled:
        return _SCHEDULED
    shows = f" `hpad explain -n {key.namespace} {key.local}` says more."
    return _ADVICE[cause] + (shows if cause in (NotifyCause.FAILING, NotifyCause.FALLBACK) else "")


def _path(key: Key) -> str:
    parts = "/".join(urllib.parse.quote(part, safe="") for part in ("hpas", key.namespace, key.name))
    return f"{parts}?kind=Autoscaler" if key.kind else parts


def _short(text: str) -> str:
    return begin(harmless(text), _LONGEST)


# The bodies of requests: the text of a Slack webhook, and CloudEvents 1.0 in structured mode.

_MOST_AT_ONCE: Final = 20
"""Messages in one text for Slack: fewer than 40,000 characters, behind which it cuts."""


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
    said = worded(notice, sender.page)
    head = f"[{sender.cluster}] {said.what}" if sender.cluster else said.what
    why = begin(_escaped(said.why), _LONGEST)  # Slack counts the escapes
    lines = [f"{_sign(notice)} {_escaped(head)}", *filter(None, (why, _escaped(said.advice)))]
    return "\n".join([*lines, f"<{_escaped(said.link)}|Open the page>"] if said.link else lines)


def _sign(notice: Notice) -> str:
    if notice.change.phase == NoticePhase.ENDED:
        return ":white_check_mark:"
    is_normal = notice.change.cause == NotifyCause.RESCALE
    return ":arrows_counterclockwise:" if is_normal else ":warning:"


def _event(notice: Notice, sender: Sender) -> dict[str, Any]:
    """Returns the CloudEvent. Its id stays the same in further attempts, so that a receiver can leave out a repeat."""
    change, said = notice.change, worded(notice, sender.page)
    about = "test" if notice.decision is None else str(change.cause)
    return {
        "specversion": "1.0",
        "id": uuid.uuid4().hex,
        "source": _source(sender),
        "type": f"io.hpad.{about}.{change.phase}",
        "time": notice.at.isoformat().replace("+00:00", "Z"),
        "subject": str(notice.key),
        "datacontenttype": "application/json",
        "data": _data(notice, sender, said),
    }


def _source(sender: Sender) -> str:
    """Returns what tells the events of several clusters apart."""
    name = urllib.parse.quote(sender.cluster, safe="")
    return f"urn:hpad:{name}" if name else sender.page or "urn:hpad:hpad"


def _data(notice: Notice, sender: Sender, said: NoticeText) -> dict[str, Any]:
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
        "what": said.what,
        "why": said.why,
        "advice": said.advice,
        "link": said.link,
    }
    if decision is not None:
        counts = {"current": decision.current, "desired": decision.desired, "wanted": wanted(decision)}
        found |= {**counts, "maximum": notice.maximum, "repeats": change.repeats}
    return {name: value for name, value in found.items() if value != ""}
