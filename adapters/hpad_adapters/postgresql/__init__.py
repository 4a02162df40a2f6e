"""External metrics from queries of a PostgreSQL database. Needs the extra `postgresql`."""

from hpad_adapters.postgresql.adapter import PostgreSQL as PostgreSQL
from hpad_adapters.postgresql.settings import Metric as Metric
from hpad_adapters.postgresql.settings import PostgreSQLSettings as PostgreSQLSettings
