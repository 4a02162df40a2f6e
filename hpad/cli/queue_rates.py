"""The flag --queue of `hpad backtest`: a metric that is the backlog of a queue, and the columns of its rates."""

import argparse
from collections.abc import Sequence

from hpad.api.text import shown
from hpad.cli import workload
from hpad.cli.output import WrongUse, counted
from hpad.simulation.backlog import Backlog, Rates

_TEXT = (
    "the metric is the backlog of a queue; the columns are its messages published and acknowledged per second. A third"
    " part is the messages per second of a replica (default: that of busy ones in the past)"
)


def add_argument(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--queue", metavar="METRIC=PUBLISHED,ACKED", action="append", default=[], help=_TEXT)


def parse(texts: Sequence[str]) -> dict[str, Rates]:
    """Returns the rates of each metric that is a backlog. Raises Failure."""
    found: dict[str, Rates] = {}
    for text in texts:
        metric, rates = _parse(text)
        if metric in found:
            raise WrongUse(f"--queue {shown(text)}: there is one for {metric} already")
        found[metric] = rates
    return found


def _parse(text: str) -> tuple[str, Rates]:
    metric, _, rest = text.rpartition("=")
    parts = [each.strip() for each in rest.split(",")]
    if not metric.strip() or len(parts) not in (2, 3) or not all(parts):
        raise WrongUse(f"--queue {shown(text)}: METRIC=PUBLISHED,ACKED is needed, as in orders=published,acked")
    if len(parts) == 2:
        return metric.strip(), Rates(parts[0], parts[1])
    try:
        rate = workload.number(parts[2])
    except argparse.ArgumentTypeError as error:
        raise WrongUse(f"--queue {shown(text)}: the messages per second of a replica: {error}") from None
    return metric.strip(), Rates(parts[0], parts[1], rate)


def assumption(backlog: Backlog) -> str:
    """Returns what the model of a queue assumes."""
    source = f", the median of {counted(backlog.busy, 'sample')} with all replicas busy" if backlog.busy else ""
    begins = "the history has no lengths of it, so it begins empty; " if backlog.begins_empty else ""
    return (
        f"modelled from what was published and {backlog.per_replica:.4g} messages per second of each ready replica"
        f"{source}; {begins}publishers are taken not to wait for the queue"
    )
