"""How fast and how soon: windows, policies, minimum and maximum."""

from hpad.engine.restrain.restrain import Restrained, restrain

__all__ = ["Restrained", "restrain"]
