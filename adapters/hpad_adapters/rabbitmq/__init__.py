"""External metrics from RabbitMQ: counts, rates, times and goals, consumers of queues, and lags of streams."""

from hpad_adapters.rabbitmq.adapter import RabbitMQ as RabbitMQ
from hpad_adapters.rabbitmq.metric import Metric as Metric
from hpad_adapters.rabbitmq.metric import Mode as Mode
from hpad_adapters.rabbitmq.settings import Settings as Settings
