"""What adapters that read from Redis share: settings, requests, and the three ways to run Redis.

Redis runs as one server, as a master that Redis Sentinel watches, or as a cluster. `servers` returns the one that the
settings name; its `ask` sends commands of keys and returns their replies. redis-py, the client, comes with the extra
`redis`.
"""

# "import X as X" makes a name part of this package (PEP 484), from which adapters import it.
from hpad_adapters.redis_servers.servers import AnyRedis as AnyRedis
from hpad_adapters.redis_servers.servers import RedisRequest as RedisRequest
from hpad_adapters.redis_servers.servers import Reply as Reply
from hpad_adapters.redis_servers.servers import ReplyError as ReplyError
from hpad_adapters.redis_servers.servers import ServerError as ServerError
from hpad_adapters.redis_servers.servers import lacks as lacks
from hpad_adapters.redis_servers.servers import servers as servers
from hpad_adapters.redis_servers.settings import ClusterNodes as ClusterNodes
from hpad_adapters.redis_servers.settings import RedisServers as RedisServers
from hpad_adapters.redis_servers.settings import Sentinel as Sentinel
