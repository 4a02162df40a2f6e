"""The source `static`, and the smallest example of an adapter."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    Quantity,
    QuantityError,
    Query,
    Sample,
    meant,
    one_by_one,
    read_yaml,
    shown,
)


class Static:
    """Numbers in a file, set by hand or by a script.

    The file is YAML or JSON, and is read for every batch. It maps names of metrics to numbers or quantities:
    `{queue_depth: 80, load: 1500m}`. Selectors do not matter. A name that the file does not hold is an error, not zero.
    """

    serves = frozenset({EXTERNAL})

    class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """file: the path of the file with the numbers."""

        file: str

        def __post_init__(self) -> None:
            if not self.file:
                raise ValueError("file: is empty; write the path of the file with the numbers")

    def __init__(self, settings: Settings, context: Context) -> None:
        self._file = Path(settings.file)
        self._clock = context.clock

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns the present numbers; an absent name, or a value that is not a number, is an error."""
        try:
            numbers = await asyncio.to_thread(read_yaml, self._file)
        except ValueError as error:
            raise AdapterError(f"{self._file}: {error}") from None

        async def number(query: Query) -> Sample:
            if not isinstance(numbers, dict) or query.name not in numbers:
                known = [str(name) for name in numbers] if isinstance(numbers, dict) else []
                there = f"; it holds {', '.join(known) or 'no numbers'}"
                raise AdapterError(f'{self._file} holds no "{query.name}"{meant(query.name, known)}{there}', "spec")
            try:
                return ExternalSample((Quantity.parse(numbers[query.name]).milli(),), self._clock.now())
            except QuantityError:
                raise AdapterError(
                    f'{self._file}: "{query.name}" is {shown(numbers[query.name])}, not a number'
                ) from None

        return await one_by_one(queries, number)

    async def aclose(self) -> None:
        """Does nothing: the adapter has no connections."""
