"""How far the model of a load can be trusted: whether it gives the replica curve that was."""

from hpad.simulation.advice.assessment import Level, ModelTrust
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.rerun import Rerun


def judged(past: HpaPast, now: Rerun | None) -> ModelTrust:
    """Returns how well the spec of now gives the recorded curve."""
    if now is None:
        return ModelTrust(None, Level.POOR, "no model: a metric has no values")
    return ModelTrust(None, Level.FAIR, "the curve was not compared")
