"""When the last replica may go: `hpad.io/zero-after` and `hpad.io/initial-delay`.

Both go beyond the Kubernetes API, and matter only where the metrics may take the target to zero.

- `zero-after`: one replica stays until the metrics have asked for nothing for that long, counted from the last turn
  that found work. Then the target goes to zero as far as the scale-down policies allow, whatever the scale-down window
  says. Unread time does not count: a metric that fails, with a fallback or without, is not "no work".
- `initial-delay`: one replica stays for that long after the HPA was created. An HPA without a creationTimestamp, from a
  file, counts from the first turn that its state knows.

Source: KEDA, "ScaledObject specification": cooldownPeriod, initialCooldownPeriod.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.engine import controls
from hpad.engine.history import Idleness
from hpad.engine.view import View
from hpad.engine.words import span

_NOTHING: Final = timedelta(0)


class Zero(NamedTuple):
    """What the two controls say in one turn.

    `idleness` is that after the turn (UNSET: the HPA has neither control). `due`: the time without work has passed, so
    that earlier recommendations no longer count. `why` and `message` say why one replica stays, "" where the last one
    may go; `message` is the same in each turn.
    """

    idleness: Idleness | msgspec.UnsetType
    due: bool = False
    why: str = ""
    message: str = ""


FREE: Final = Zero(msgspec.UNSET)
"""Without one of the controls."""
_UNKNOWN: Final = Idleness()


def unread(view: View) -> Idleness:
    """Returns the idleness after a turn that did not read all metrics."""
    return _after(view, None)


def _after(view: View, asked: int | None) -> Idleness:
    """Returns the idleness after a turn whose metrics ask for `asked` replicas (None: not all could be read)."""
    known, now = view.history.idleness or _UNKNOWN, view.now
    since = _created(view) or known.since or now
    if asked is None:
        return Idleness(since, known.lasted)
    if asked or known.seen is None:
        return Idleness(since, _NOTHING if asked else known.lasted, now)
    return Idleness(since, known.lasted + max(_NOTHING, now - known.seen), now)


def judged(view: View, asked: int, *, failed: bool) -> Zero:
    """Returns whether the last replica may go. `failed`: a metric did, even if a fallback stands in for it."""
    found = _after(view, None if failed and not asked else asked)
    if asked or view.min_replicas or not view.replicas:
        return Zero(found)
    own, kind, after = view.controls, view.hpa.kind, view.controls.zero_after
    begins = _begins(found, own.initial_delay)
    if begins is not None and view.now < begins:
        name = controls.written(controls.INITIAL_DELAY, kind)
        text = f"the last replica stays until {begins:%Y-%m-%dT%H:%M:%SZ} ({name})"
        return Zero(found, why=text, message=text)
    if after is None:
        return Zero(found)
    if found.seen is not None and found.lasted >= after:
        return Zero(found, due=True)
    needed, name = span(after.total_seconds()), controls.written(controls.ZERO_AFTER, kind)
    lasted = f"no work for {span(int(found.lasted.total_seconds()))} of {needed} ({name})"
    return Zero(
        found,
        why=f"the last replica stays: {lasted}{', and a metric fails' if failed else ''}",
        message=f"the last replica stays until there has been no work for {needed} ({name})",
    )


def ends(view: View) -> Iterator[datetime]:
    """Yields the times from which the last replica may go, if the metrics ask for nothing from now on."""
    found, own = view.history.idleness, view.controls
    if not found:
        return
    if own.zero_after is not None and found.seen is not None:
        yield found.seen + max(_NOTHING, own.zero_after - found.lasted)
    begins = _begins(found, own.initial_delay)
    if begins is not None:
        yield begins


def _created(view: View) -> datetime | None:
    """Returns when the HPA was created; now where its clock is ahead. A file may have a time without a zone."""
    created = view.hpa.metadata.creation_timestamp
    return None if created is None or created.tzinfo is None else min(created, view.now)


def _begins(found: Idleness, delay: timedelta | None) -> datetime | None:
    return None if delay is None or found.since is None else found.since + delay
