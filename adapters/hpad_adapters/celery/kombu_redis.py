"""kombu's transport for Redis, as the asking of workers needs it. Needs the extras `celery` and `redis`."""

from typing import Any

from kombu.transport import redis
from kombu.utils.json import dumps


class Channel(redis.Channel):  # type: ignore[misc]
    """Counts the workers that a message of the remote control reaches."""

    listeners = 0

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **_: Any) -> None:
        # Source: kombu/transport/redis.py, Channel._put_fanout, which drops the reply to PUBLISH.
        with self.conn_or_acquire() as client:
            self.listeners = int(client.publish(self._get_publish_topic(exchange, routing_key), dumps(message)))


class Transport(redis.Transport):  # type: ignore[misc]
    """Waits in steps of a tenth of a second, so that a connection closes at once."""

    Channel = Channel
    brpop_timeout = 0.1
