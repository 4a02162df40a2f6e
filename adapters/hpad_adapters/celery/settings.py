"""The settings of a Celery source: its broker, and the queues of the application."""

import fnmatch
import re
from typing import Annotated, Literal

import msgspec

from hpad.adapter import positive_duration
from hpad.adapter_http import Secret, duration_error, refuse, secret_error, url_error, url_list
from hpad_adapters.credentials import LoginSettings, unused_tls_error
from hpad_adapters.rabbitmq import Settings as RabbitMQSettings
from hpad_adapters.redis_servers.settings import RedisServers

OnMissing = Literal["error", "zero"]
_GLOB = re.compile(r"[*?\[]")
_AMQP = "amqp://rabbitmq:5672"
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
    priority_steps: the steps of priority, each of which is a list of the queue; by default all that Celery can have.
    sep, global_keyprefix, unacked_key: as in broker_transport_options of the application.
    exchanges: the names of exchanges in task_queues and task_default_exchange. Celery notes each declared queue under
    its exchange; the name of the queue itself and default_queue are known without it.
    on_missing_queue: a queue that holds no waiting tasks, and that no binding of these exchanges names, is an error, so
    that replicas are held or a fallback applies, or zero.
    """

    priority_steps: list[Annotated[int, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=lambda: [*range(10)])
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
        # Source: kombu/transport/redis.py, Channel._q_for_pri. Step 0 has the plain name. Priorities end at 9
        # (virtual/base.py, Channel._get_message_priority); steps that the application has not are empty lists.
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


class WorkersSettings(LoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the workers of a Celery application are asked what they hold, over their broker.

    url: over RabbitMQ the address of AMQP, such as "amqp://rabbitmq:5672", or amqps:// for TLS, without credentials; of
        a list, the first node that answers is used. Over Redis it is the broker itself: leave it out.
    vhost: that of the workers, if not the one of `rabbitmq`.
    username: a user with permissions on the remote control, if not the one of `rabbitmq`: configure "^hpad-", write
        "^celery\\.pidbox$", read "^(.*\\.)?celery\\.pidbox$".
    password: of the user; password_file: a file that holds it, read for each asking; password_env: an environment
        variable that holds it.
    ca, cert, key: PEM files for TLS, read for each asking; insecure: trust any certificate.
    exchange: as control_exchange of the application.
    fanout_prefix: as in broker_transport_options of the application, over Redis.
    timeout: of one asking, such as "500ms". Answers are complete earlier, unless a worker is silent. A scale-down waits
        for it for at most 15 % of the period of the HPA.
    """

    url: str | list[str] = ""
    vhost: str = ""
    exchange: str = "celery"
    fanout_prefix: bool | str = True
    timeout: str = "500ms"

    def __post_init__(self) -> None:
        vhost = "write the vhost as vhost"
        found = (url_error(node, ("amqp", "amqps"), _AMQP, instead_of_path=vhost) for node in self.nodes)
        errors = [f"url: {error}" for error in found if error]
        errors += [secret_error(self, "password"), self.tls_options.error]
        secure = any(node.startswith("amqps:") for node in self.nodes)
        errors.append(unused_tls_error(self, tls=secure, needed="amqps://") if self.nodes else "")
        errors += ["" if self.exchange else 'exchange: is empty: Celery\'s own is "celery"']
        refuse(*errors, duration_error("timeout", self.timeout))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The URLs without a trailing slash."""
        return url_list(self.url)

    @property
    def seconds(self) -> float:
        """The time for one asking."""
        return positive_duration("timeout", self.timeout).total_seconds()


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
    workers: asks the workers what they hold; absent: they are not asked. Needs the extra `celery`. Workers of a solo
        pool do not answer while they work.
    """

    rabbitmq: RabbitMQBroker | None = None
    redis: RedisBroker | None = None
    queues: list[str] = msgspec.field(default_factory=lambda: ["celery"])
    only_queues: bool = False
    routes: dict[str, str] = msgspec.field(default_factory=dict)
    default_queue: str = "celery"
    prefetch_multiplier: Annotated[int, msgspec.Meta(ge=1)] = 4
    workers: WorkersSettings | None = None

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
        if self.workers is not None and (error := self._workers_error(self.workers)):
            raise ValueError(f"workers: {error}")

    def _workers_error(self, workers: WorkersSettings) -> str:
        if self.redis is not None:
            if self.redis.cluster is not None:
                return "Celery's remote control does not work on a Redis Cluster; leave workers out"
            own = ("url", "vhost", *LoginSettings.__struct_fields__)
            field = next((name for name in own if getattr(workers, name)), "")
            return f"{field}: over Redis that of `redis` is used; leave it out" if field else ""
        if not workers.nodes:
            return f'url: is missing: the address of AMQP, such as "{_AMQP}"'
        if workers.secret and not workers.username:
            return "username: is missing, but a password is given"
        if workers.username and not workers.secret:
            return f'password: is missing for user "{workers.username}"; write password_file or password_env'
        if self.rabbitmq is not None and not (workers.username or self.rabbitmq.username):
            return "username: is missing: the workers are asked with a name and a password"
        return ""

    @property
    def workers_login(self) -> tuple[str, Secret]:
        """The user over RabbitMQ that asks the workers."""
        assert self.workers is not None
        assert self.rabbitmq is not None
        own: WorkersSettings | RabbitMQSettings = self.workers if self.workers.username else self.rabbitmq
        return own.username, own.secret

    @property
    def known(self) -> frozenset[str]:
        """All queues that the settings name, without patterns."""
        named = (*self.queues, *self.routes.values(), self.default_queue if self.routes else "")
        return frozenset(name for name in named if name and not is_glob(name))

    def route(self, task: str) -> str | None:
        """Returns the queue that `routes` names for a task, None if they name none."""
        if task in self.routes:
            return self.routes[task]
        return next((queue for pattern, queue in self.routes.items() if fnmatch.fnmatchcase(task, pattern)), None)

    def queue_of(self, task: str) -> str:
        """Returns the queue that a task is routed to."""
        return self.route(task) or self.default_queue
