"""External metrics from queries of a PostgreSQL database. Needs the extra `postgresql`."""

from hpad_adapters.postgresql.adapter import PostgreSQL as PostgreSQL
