"""Queries that an Autoscaler brings along (`spec.queries`), and their limits."""

from collections.abc import Sequence
from typing import Final

import msgspec

from hpad.api.hpa import OwnQuery
from hpad.api.sample import QueryDefinition
from hpad.api.text import begin, shown

MOST: Final = 20
"""Queries of one Autoscaler."""
LONGEST: Final = 8192
"""Characters of the parameters of a query as JSON."""
_LONGEST_NAME: Final = 253


def definition(name: str, queries: Sequence[OwnQuery]) -> tuple[QueryDefinition | None, str | None]:
    """Returns the query of this name that the object brings along, or the error in it; neither if it brings none."""
    found = [(number, query) for number, query in enumerate(queries, 1) if query.name == name]
    if not found:
        return None, None
    number, query = found[0]
    text = _text(query)
    fault = None
    if len(found) > 1:
        fault = f"there are {len(found)} queries of this name; each needs a name of its own"
    elif number > MOST:
        fault = f"is query {number} of the Autoscaler, which may have {MOST}"
    elif not query.source:
        fault = "source: is missing: the name of a metric source in the configuration of hpad"
    elif text is None:
        fault = "parameters: cannot be written as JSON"
    elif len(text) > LONGEST:
        fault = f"parameters: have {len(text):,} characters as JSON; hpad takes at most {LONGEST:,}"
    if fault is not None or text is None:
        return None, f"spec.queries[{begin(name, _LONGEST_NAME)}]: {fault}"
    return QueryDefinition(query.source, text), None


def _text(query: OwnQuery) -> str | None:
    """Returns the parameters as JSON with sorted keys; None if they hold something else or are nested too deeply."""
    try:
        return msgspec.json.encode(query.parameters, order="deterministic").decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


def written(definition: QueryDefinition) -> str:
    """Returns the parameters as their author may have written them, for people."""
    try:
        return shown(msgspec.json.decode(definition.text))
    except (msgspec.DecodeError, RecursionError):
        return definition.text
