"""What a sample says about a goal: how much is used, by how many pods, and the ratio of the two."""

from hpad.engine.measure.measure import Unmeasurable, Usage, measure

__all__ = ["Unmeasurable", "Usage", "measure"]
