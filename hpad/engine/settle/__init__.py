"""From the decision and what became of it to status, conditions, events and history."""

from hpad.engine.settle.memory import remembered
from hpad.engine.settle.settle import Outcome, Settlement, sentence, settle

__all__ = ["Outcome", "Settlement", "remembered", "sentence", "settle"]
