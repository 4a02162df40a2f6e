"""Limits the CPU time of an input by its size."""

import time
from collections.abc import Callable

_FIXED_SECONDS = 0.3
_SECONDS_A_BYTE = 40e-6
_TRIES = 3


def limited(check: Callable[[bytes], None], data: bytes, patience: float = 1.0) -> None:
    """Runs a check; raises AssertionError if each of several tries exceeds a linear budget of CPU time.

    `patience` multiplies the budget.
    """
    taken = [_seconds(check, data)]
    allowed = patience * (_FIXED_SECONDS + _SECONDS_A_BYTE * len(data))
    while taken[-1] > allowed and len(taken) < _TRIES:
        taken.append(_seconds(check, data))
    assert min(taken) <= allowed, f"{min(taken):.2f}s for {len(data)} bytes, where {allowed:.2f}s are allowed"


def _seconds(check: Callable[[bytes], None], data: bytes) -> float:
    began = time.process_time()
    check(data)
    return time.process_time() - began
