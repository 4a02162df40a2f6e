"""How fast an interpreter runs here and now: compare CPU times of two runs only where their paces are alike.

Virtual machines share cores and caches with others, and the same run has taken a quarter more an hour later. A Python
that was built without `--enable-optimizations`, as pyenv builds it by default, needs a tenth to a quarter more than
that of Debian or of the official images.
"""

import subprocess
from typing import Final

_ROUNDS: Final = 5
_WORK: Final = f"""
import time

class Point:
    __slots__ = ("x", "y")
    def __init__(self, x, y):
        self.x, self.y = x, y

def work():
    found = {{}}
    for number in range(100_000):
        point = Point(number, str(number))
        found[point.y] = point
    return sum(found[str(number)].x for number in range(100_000))

def timed():
    began = time.process_time()
    work()
    return time.process_time() - began

print(min(timed() for _ in range({_ROUNDS})))
"""


def measured(python: str) -> float:
    """Returns the CPU-seconds that a fixed piece of work takes in that interpreter: the least of a few rounds."""
    done = subprocess.run((python, "-I", "-c", _WORK), capture_output=True, text=True, check=True)
    return float(done.stdout)
