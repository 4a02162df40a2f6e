"""How many workers clear a backlog within a goal in seconds, for any broker: its adapter measures, this counts."""
