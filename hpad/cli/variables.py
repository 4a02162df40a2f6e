"""Variables of the environment that look like hpad's but are not: most often a typing error."""

import difflib
from collections.abc import Mapping
from typing import Final

from hpad import settings

_OTHERS: Final = ("config", "rabbitmq_url", "rabbitmq_username", "rabbitmq_password_file")
_ALIKE: Final = 0.85
"""How near a name must be; those that a Service called hpad puts into pods (HPAD_PORT_80_TCP and the like) are not."""


def misspelt(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names that are probably meant for hpad, each with the one that it would have to be."""
    known = {f"HPAD_{name.upper()}" for name in (*_OTHERS, *settings.PARSERS, *settings.RENAMED)}
    strange = sorted(name for name in environ if name.startswith("HPAD_") and name not in known)
    near = ((name, difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)) for name in strange)
    return [(name, match[0]) for name, match in near if match]
