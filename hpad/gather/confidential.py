"""Which fields of a source's settings hold secrets, by their names: the one list for all that is shown of settings.

Texts of errors lose the values of such fields (`gather.redact`), complaints about them show no value (`gather.flaws`),
and `hpad config show` hides them (`cli.disclosed`).
"""

import re
from typing import Final

CHOSEN_NAMES: Final = frozenset({"metrics"})
"""Fields whose entries have names of the user's choice, which tell nothing: a metric may be called password_resets."""
_SECRET: Final = re.compile(
    r"pass|pwd|^pw$|secret|token|credential|authorization|^auth$|(basic|http|proxy).?auth|cookie|api.?key|access.?key"
    r"|.key$|private|header|signature|dsn|connection.?string|^params$",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"(file|env|url|uri)$", re.IGNORECASE)


def named_so(name: str) -> bool:
    """Whether the name tells of a secret, here or elsewhere."""
    return _SECRET.search(name) is not None


def elsewhere(name: str) -> bool:
    """Whether the field says where something lies: a file, a variable, an address."""
    return _ELSEWHERE.search(name) is not None


def holds_secret(name: str) -> bool:
    """Whether the value of the field is a secret itself."""
    return named_so(name) and not elsewhere(name)
