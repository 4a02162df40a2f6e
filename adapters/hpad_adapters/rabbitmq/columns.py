"""The columns of the management API that are read, and what a broker keeps at all.

Only what is read is requested, because the samples of a rate are long. Source: HTTP API reference of the
rabbitmq_management plugin.
"""

from collections.abc import Mapping

import msgspec

from hpad.adapter_http import decoded
from hpad_adapters.rabbitmq.broker import Broker
from hpad_adapters.rabbitmq.settings import Settings

COUNTED = "name,vhost,type,state,leader,messages,messages_ready,messages_unacknowledged"
OVERVIEW = {"columns": "rates_mode,disable_stats"}
_RATES = ("publish", "deliver_get", "ack")
_SAMPLES = (
    "message_stats.publish_details.samples",
    "message_stats.ack_details.samples",
    "messages_unacknowledged_details.samples",
)
_SPACING_SECONDS = 5


class Overview(msgspec.Struct):
    """`rates_mode` is "none" where the broker keeps no rates; `disable_stats` where it keeps no statistics at all."""

    rates_mode: str
    disable_stats: bool | None = None

    @property
    def keeps_rates(self) -> bool:
        """Whether the broker keeps rates."""
        return self.rates_mode != "none" and not self.disable_stats

    @property
    def keeps_statistics(self) -> bool:
        """Whether the broker says that it keeps statistics."""
        return self.disable_stats is False


_OVERVIEW = msgspec.json.Decoder(Overview)


def overview(body: bytes, broker: Broker) -> Overview:
    """Returns the overview; raises AdapterError."""
    return decoded(_OVERVIEW, body, str(broker), "an overview")


def statistics_columns(settings: Settings) -> Mapping[str, str]:
    """Returns the parameters for rates, consumers, growth and age."""
    part = "samples" if settings.smoothing else "avg_rate"
    rates = [f"message_stats.{event}_details.{part}" for event in _RATES]
    age = ("head_message_timestamp", "arguments.x-max-priority")
    return _over(settings, ("consumers", "consumer_capacity", *age, "messages_details.avg_rate", *rates))


def sample_columns(settings: Settings) -> Mapping[str, str]:
    """Returns the parameters for the samples from which the time of a message is measured."""
    return _over(settings, ("consumers", "arguments.x-single-active-consumer", *_SAMPLES))


def _over(settings: Settings, columns: tuple[str, ...]) -> Mapping[str, str]:
    age = str(int(settings.rate_span.total_seconds()))
    return {
        "columns": ",".join((COUNTED, *columns)),
        **{f"{kind}_age": age for kind in ("msg_rates", "lengths")},
        **{f"{kind}_incr": str(_SPACING_SECONDS) for kind in ("msg_rates", "lengths")},
    }
