"""The state of each HPA between turns, and across restarts: in memory, SQLite or ConfigMaps."""
