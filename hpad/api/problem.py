"""What is wrong at a place of the configuration, in one form for settings, sources and adapters."""

from typing import NamedTuple

Place = tuple[str | int, ...]
"""Keys and list positions from the top to a value."""


class Problem(NamedTuple):
    """A problem at a place of the configuration. `key` names an unknown field at that place, if that is the problem.

    `str()` is the message for settings (`sources: a: timeout: 3 has no unit`), `dotted` that for the fields of adapters
    (`metrics.orders.mode: …`).
    """

    path: Place
    text: str
    key: str | None = None

    def __str__(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else step for step in self.path)
        return ": ".join((*steps, self.text))

    @property
    def dotted(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return ": ".join(part for part in ("".join(steps).removeprefix("."), self.text) if part)

    @property
    def place(self) -> Place:
        """The path of the problem in the file."""
        return self.path if self.key is None else (*self.path, self.key)

    def inside(self, step: str | int) -> "Problem":
        """Returns the problem with its path from one level above."""
        return self._replace(path=(step, *self.path))
