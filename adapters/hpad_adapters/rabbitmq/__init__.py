"""What waits in RabbitMQ queues, how fast it comes and goes, and how busy those are who take it."""

from hpad_adapters.rabbitmq.adapter import RabbitMQ
from hpad_adapters.rabbitmq.modes import Metric
from hpad_adapters.rabbitmq.settings import OAuth2, Settings

__all__ = ["Metric", "OAuth2", "RabbitMQ", "Settings"]
