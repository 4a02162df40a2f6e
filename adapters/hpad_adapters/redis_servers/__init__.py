"""What adapters that read from Redis share: settings, connections, and the three ways to run Redis.

Redis runs as one server, as a master that Redis Sentinel watches, or as a cluster. `servers` returns the one that the
settings name; its `ask` sends commands of keys and returns their replies.
"""

# "import X as X" makes a name part of this package (PEP 484), from which adapters import it.
from hpad_adapters.redis_servers.connection import Request as Request
from hpad_adapters.redis_servers.replies import Reply as Reply
from hpad_adapters.redis_servers.replies import ReplyError as ReplyError
from hpad_adapters.redis_servers.servers import Servers as Servers
from hpad_adapters.redis_servers.servers import servers as servers
from hpad_adapters.redis_servers.settings import Cluster as Cluster
from hpad_adapters.redis_servers.settings import RedisServers as RedisServers
from hpad_adapters.redis_servers.settings import Sentinel as Sentinel
