"""From the decision and what became of it to status, conditions, events and history."""

from hpad.engine.settle.memory import remembered
from hpad.engine.settle.settle import Outcome, Settlement, settle

__all__ = ["Outcome", "Settlement", "remembered", "settle"]
