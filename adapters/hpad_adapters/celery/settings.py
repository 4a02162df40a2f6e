"""The settings of a Celery source: its broker, and the queues of the application."""

import fnmatch
import re
from typing import Annotated, Literal

import msgspec

from hpad_adapters.rabbitmq import Settings as RabbitMQSettings
from hpad_adapters.redis_servers import RedisServers

OnMissing = Literal["error", "zero"]
_GLOB = re.compile(r"[*?\[]")
_HASH_TAG = re.compile(r"\{[^}]+\}")


def is_glob(name: str) -> bool:
    """Returns whether the name is a pattern."""
    return _GLOB.search(name) is not None


class RedisBroker(RedisServers, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Redis as a broker: one server (url), the master that sentinels watch (sentinel), or a cluster.

    url: "redis://host:6379/0", or rediss:// for TLS; the path is the number of the database.
    sentinel: asks Redis Sentinel for the address of the master; cluster: a Redis Cluster.
    username: a user of the server's ACL; password: the password; password_file: a file that holds it, read for each
    batch; password_env: an environment variable that holds it.
    ca, cert, key: PEM files, loaded again when they change; insecure: trust any certificate.
    trusted_hosts: nodes of a cluster, or masters that sentinels name, that get the password without TLS although they
    are not in `nodes`: names, "*.redis.svc", addresses, and networks such as 10.0.0.0/8.
    priority_steps, sep, global_keyprefix, unacked_key: as in broker_transport_options of the application. Each queue
    has a list for each step of priority.
    exchanges: the names of exchanges in task_queues and task_default_exchange. Celery notes each declared queue under
    its exchange; the name of the queue itself and default_queue are known without it.
    on_missing_queue: a queue that holds no waiting tasks, and that no binding of these exchanges names, is an error, so
    that replicas are held or a fallback applies, or zero.
    """

    priority_steps: list[Annotated[int, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=lambda: [0, 3, 6, 9])
    sep: str = "\x06\x16"
    global_keyprefix: str = ""
    unacked_key: str = "unacked"
    exchanges: list[str] = msgspec.field(default_factory=list)
    on_missing_queue: OnMissing = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cluster is not None and not _HASH_TAG.search(self.global_keyprefix):
            raise ValueError(
                "cluster: Celery uses keys of one hash slot only, which its broker_transport_options must say: write"
                ' their global_keyprefix with braces, such as "{celery}:", here too'
            )

    def lists(self, queue: str) -> tuple[str, ...]:
        """Returns the keys of a queue, one for each step of priority."""
        # Source: kombu/transport/redis.py, Channel._q_for_pri. Step 0 has the plain name.
        names = (f"{queue}{self.sep}{step}" if step else queue for step in self.priority_steps)
        return tuple(self.global_keyprefix + name for name in names)

    def bindings(self, exchange: str) -> str:
        """Returns the key of the set of bindings of an exchange."""
        return f"{self.global_keyprefix}_kombu.binding.{exchange}"

    @property
    def unacked(self) -> str:
        """The key of the hash of fetched tasks."""
        return self.global_keyprefix + self.unacked_key


class RabbitMQBroker(RabbitMQSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    __doc__ = RabbitMQSettings.__doc__


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The broker of a Celery application, and its queues.

    rabbitmq: the settings of the adapter rabbitmq for the broker, such as url, username and password_file; redis: those
    of the adapter redis. Give one of the two.
    queues: the queues of the application, which metrics without a selector add up. On RabbitMQ also patterns such as
        "mail-*", which leave out the queues of workers and of events (pidbox, celeryev), those of results, those of
        clients of MQTT and STOMP, and those of tasks that are not due (celery_delayed_0 to celery_delayed_27).
    only_queues: selectors may name these queues, and those of routes, only.
    routes: the name of a task, or a shell-style pattern -> its queue, as in task_routes; the exact name comes first,
        then the first pattern that matches.
    default_queue: of other tasks, as task_default_queue.
    prefetch_multiplier: as worker_prefetch_multiplier, for celery_workers_to_clear.
    """

    rabbitmq: RabbitMQBroker | None = None
    redis: RedisBroker | None = None
    queues: list[str] = msgspec.field(default_factory=lambda: ["celery"])
    only_queues: bool = False
    routes: dict[str, str] = msgspec.field(default_factory=dict)
    default_queue: str = "celery"
    prefetch_multiplier: Annotated[int, msgspec.Meta(ge=1)] = 4

    def __post_init__(self) -> None:
        if (self.rabbitmq is None) == (self.redis is None):
            raise ValueError("rabbitmq: give the broker as one of rabbitmq and redis")
        if not self.queues or not all(self.queues):
            raise ValueError('queues: name at least one queue, such as "celery"')
        if self.redis is not None and (globs := [name for name in self.queues if is_glob(name)]):
            raise ValueError(f'queues: "{globs[0]}": Redis cannot list queues; name each of them')
        if wrong := [name for name in self.routes.values() if is_glob(name) or not name]:
            raise ValueError(f'routes: "{wrong[0]}" is not the name of a queue')
        if self.rabbitmq is not None and (self.rabbitmq.metrics or self.rabbitmq.patterns):
            field = "metrics" if self.rabbitmq.metrics else "patterns"
            raise ValueError(f"rabbitmq: {field} belongs to a source of the adapter rabbitmq")

    @property
    def known(self) -> frozenset[str]:
        """All queues that the settings name, without patterns."""
        named = (*self.queues, *self.routes.values(), self.default_queue if self.routes else "")
        return frozenset(name for name in named if name and not is_glob(name))

    def queue_of(self, task: str) -> str:
        """Returns the queue that a task is routed to."""
        if task in self.routes:
            return self.routes[task]
        found = (queue for pattern, queue in self.routes.items() if fnmatch.fnmatchcase(task, pattern))
        return next(found, self.default_queue)
