"""What is remembered for the decisions to come."""

from datetime import datetime

import msgspec

from hpad.engine.decide import Decision
from hpad.engine.examine import View
from hpad.engine.qualify import heard
from hpad.model.history import History, Recommendation, Rescale


def remembered(view: View, decision: Decision, *, rescaled: bool) -> History:
    """The history with this decision in it, and with the rescale if one was written."""
    history, now = view.history, view.now
    if decision.restrained is not None:
        recommendations = decision.restrained.recommendations
    else:
        recommendations = history.recommendations or (Recommendation(now, decision.current),)
    ups, downs, behavior = history.scale_ups, history.scale_downs, view.intent.behavior
    if rescaled and behavior is not None:  # without spec.behavior nobody asks for them
        if decision.desired > decision.current:
            ups = _remember(ups, Rescale(now, decision.desired - decision.current), now - behavior.up.longest)
        else:
            downs = _remember(downs, Rescale(now, decision.current - decision.desired), now - behavior.down.longest)
    known = history.heard if view.terms else ()  # without terms nobody follows how metrics fare
    if view.terms and decision.proposals:
        known = heard(view, decision.proposals)
    return History(recommendations, ups, downs, known)


def _remember(past: tuple[Rescale, ...], latest: Rescale, cutoff: datetime) -> tuple[Rescale, ...]:
    """Mark what no policy counts any more; the latest takes the place of the last marked one, or goes to the end."""
    marked = [
        msgspec.structs.replace(held, outdated=True) if held.timestamp < cutoff and not held.outdated else held
        for held in past
    ]
    for index in range(len(marked) - 1, -1, -1):
        if marked[index].outdated:
            marked[index] = latest
            return tuple(marked)
    return (*marked, latest)
