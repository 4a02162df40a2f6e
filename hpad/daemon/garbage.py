"""Collecting garbage: seldom, because nearly everything is freed at once when its last reference goes.

Python's collector looks for objects that only refer to each other. hpad makes next to none of them, but keeps many
objects for each HPA: with Python's own thresholds the search takes a seventh of the CPU time at 2,000 HPAs, and each
search among all objects stops the event loop for as long as 100 ms.
"""

import gc
from typing import Final

_YOUNG: Final = 20_000
"""New objects, less those that were freed, between two searches among the new ones.

While all goes well that is minutes. Errors with their tracebacks are the garbage that is left: each search finds it.
"""
_MIDDLE: Final = 5
"""Searches among new objects between two among those that have survived one, as errors that are kept for a while do."""
_ALL: Final = 10
"""The same between two searches among all objects but those of `keep_all`."""


def collect_seldom() -> None:
    """Sets the thresholds of the collector for a daemon."""
    gc.set_threshold(_YOUNG, _MIDDLE, _ALL)


def keep_all() -> None:
    """Collects once, and excludes the objects that exist now from all later searches. Blocks.

    They are still freed when their last reference goes. Called after start-up: modules and caches stay.
    """
    gc.collect()
    gc.freeze()
