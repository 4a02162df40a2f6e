"""External metrics from RabbitMQ queues: counts, rates, time to drain, consumers and their utilisation."""

from hpad.adapter_http import OAuth2
from hpad_adapters.rabbitmq.adapter import RabbitMQ
from hpad_adapters.rabbitmq.settings import Metric, Settings

__all__ = ["Metric", "OAuth2", "RabbitMQ", "Settings"]
