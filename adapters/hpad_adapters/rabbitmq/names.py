"""What all queries of the adapter share: real names within the limits of the settings, and the form of errors."""

from collections.abc import Mapping

from hpad.adapter import AdapterError, Operator, Query
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.settings import Settings

EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)


def real_name(query: Query, key: str, name: str, settings: Settings) -> str:
    """Returns the real name of a queue or vhost in the selector; raises AdapterError if the settings exclude it."""
    named: Mapping[str, str] = settings.queues if key == "queue" else settings.vhosts
    restricted = settings.only_queues if key == "queue" else settings.only_vhosts
    if restricted and name not in named:
        raise wrong(query, f'the {key} "{name}" is not one that hpad\'s configuration offers')
    # A selector of one namespace must not reach all vhosts, unless the operator wrote such a metric.
    if key == "vhost" and named.get(name, name) == ANY_VHOST:
        raise wrong(query, "only hpad's configuration can name all vhosts")
    return named.get(name, name)


def wrong(query: Query, message: str) -> AdapterError:
    """Returns the error of a query that asks for something impossible."""
    where = "" if query.definition is not None else f'selector of External metric "{query.name}": '
    return AdapterError(f"{where}{message}", "spec")
