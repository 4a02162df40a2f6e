"""What a check found."""

from typing import Final

import msgspec

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"
LEVELS: Final = (OK, NOTE, WARNING, ERROR)
"""note: fine, but good to know; warning: something will not work as it could; error: hpad cannot do its work."""


def counted(hpas: int) -> str:
    """So many HPAs, in words."""
    return f"{hpas or 'no'} HPA{'' if hpas == 1 else 's'}"


class Finding(msgspec.Struct, frozen=True):
    """`says` what is, `do` what would help (empty if nothing needs to be done)."""

    check: str
    level: str
    says: str
    do: str = ""
