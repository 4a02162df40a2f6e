"""The source `static`, and the smallest example of an adapter."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    opened,
    reason,
    shown,
)
from hpad_adapters import plain_yaml
from hpad_adapters.plain_yaml import RefusedDocumentError

_LARGEST = 1 << 20
_MOST = 50_000
"""Names, numbers, and what else the file holds."""


class Static:
    """Numbers in a file, set by hand or by a script.

    The file is YAML without anchors and tags, or JSON, of at most 1 MiB, and is read for every batch. It maps names of
    metrics to numbers or quantities: `{queue_depth: 80, load: 1500m}`. Selectors do not matter. A name that the file
    does not hold is an error, not zero.
    """

    serves = frozenset({EXTERNAL})

    class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """file: the path of the file with the numbers."""

        file: str

    def __init__(self, settings: Settings, context: Context) -> None:
        self._file = Path(settings.file)
        self._clock = context.clock

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns the present numbers; an absent name, or a value that is not a number, is an error."""
        try:
            numbers = await asyncio.to_thread(self._read)
        except OSError as error:
            raise AdapterError(f"{self._file} cannot be read: {error.strerror or reason(error)}") from None
        except RefusedDocumentError as error:
            raise AdapterError(f"{self._file} cannot be read: it has {error}") from None
        except plain_yaml.INVALID:
            raise AdapterError(f"{self._file} cannot be read: not valid YAML") from None

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

    def _read(self) -> Any:
        with opened(self._file) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise OSError(errno.EFBIG, f"larger than {_LARGEST >> 20} MiB")
        return plain_yaml.load(content, _MOST)

    async def aclose(self) -> None:
        """Does nothing: the adapter has no connections."""
