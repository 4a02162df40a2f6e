"""Tasks of Celery over RabbitMQ or Redis: those that wait, and those that workers have fetched."""

from hpad_adapters.celery.adapter import Celery as Celery
from hpad_adapters.celery.settings import Settings as Settings
