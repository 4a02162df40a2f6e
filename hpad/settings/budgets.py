"""The section `budgets`: amounts of replicas or CPU cores that HPAs share (`hpad.io/budget`)."""

import fnmatch
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from hpad.api.metadata import label_faults
from hpad.api.quantity import QuantityError, parse_milli
from hpad.api.text import shown
from hpad.engine.budget import CORES, REPLICA, REPLICAS
from hpad.settings import parsers, rows
from hpad.settings.parsers import each, takes
from hpad.settings.rows import Setting

_MOST_CORES: Final = 10**9
_FORM: Final = "{replicas: 200} or {cores: 50}"


@takes({"type": ["number", "string"]}, "CORES")
def _cores(value: Any) -> int:
    """Returns millicores from a number or a Kubernetes quantity such as 1500m."""
    try:
        milli = parse_milli(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0
    except QuantityError:
        milli = 0
    if not 0 < milli <= _MOST_CORES * 1000:
        raise ValueError(f"{shown(value)} is not a number of CPU cores above 0, such as 50, 1.5 or 1500m")
    return milli


class SharedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget by its name: one of `replicas` and `cores` (in millicores), and which HPAs may share it."""

    name: str = ""
    replicas: Annotated[int | None, Setting(parsers.count, "replicas of all its HPAs together")] = None
    cores: Annotated[
        int | None,
        Setting(_cores, "CPU cores that the pods of all its HPAs request together, such as 50, 1.5 or 1500m"),
    ] = None
    namespaces: Annotated[
        tuple[str, ...],
        Setting(parsers.patterns, "the namespaces, or patterns, whose HPAs may share it; empty: all"),
    ] = ()

    @property
    def unit(self) -> str:
        """What it counts: replicas or cores."""
        return CORES if self.replicas is None else REPLICAS

    @property
    def amount(self) -> int:
        """The amount in milli-units."""
        return (self.cores or 0) if self.replicas is None else self.replicas * REPLICA

    def is_for(self, namespace: str) -> bool:
        """Whether HPAs of the namespace may share it."""
        return not self.namespaces or any(fnmatch.fnmatchcase(namespace, each) for each in self.namespaces)


_OF_BUDGET: Final = rows.mapping(SharedBudget)


def _budget(name: str, value: Any) -> SharedBudget:
    for fault in label_faults(name):
        raise ValueError(f"{shown(name)} is not the name of a budget: {fault}")
    found = _OF_BUDGET(value)
    if (found.replicas is None) == (found.cores is None):
        raise ValueError(f"a budget has either replicas or cores: {_FORM}")
    return msgspec.structs.replace(found, name=name)


@takes({"type": "object", "additionalProperties": _OF_BUDGET.form})
def budgets(value: Any) -> tuple[SharedBudget, ...]:
    """Parses the section. Raises ValueError with every problem."""
    if not isinstance(value, dict):
        raise ValueError(f"budgets are a mapping of a name to {_FORM}")
    return tuple(each((str(name), partial(_budget, str(name), entry)) for name, entry in value.items()))
