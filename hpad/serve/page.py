"""What hpad does at present."""

import msgspec


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """What this process does: `doing` is a sentence, `facts` are a few words each."""

    doing: str
    facts: tuple[str, ...] = ()
    dry_run: bool = False
