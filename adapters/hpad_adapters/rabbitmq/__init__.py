"""The depth of RabbitMQ queues, read from the management API."""

from hpad_adapters.rabbitmq.adapter import RabbitMQ
from hpad_adapters.rabbitmq.settings import Settings

__all__ = ["RabbitMQ", "Settings"]
