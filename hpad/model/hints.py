"""What was probably meant by a name that is not known."""

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` for the known name that comes nearest, empty where none comes near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""
