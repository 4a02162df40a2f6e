"""The preset dictionary of `hpad.decisions.compact`: typical traces and entries, which the file of this name has."""

from pathlib import Path
from typing import Final

import msgspec

DICTIONARY: Final = b"".join(
    map(msgspec.msgpack.encode, msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes()))
)
"""It belongs to the format of the stored entries: a change needs another `tables.FORMAT`."""
