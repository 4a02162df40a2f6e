"""The decision about one HPA, as pure stages.

    examine  (gather)  measure  propose  recommend  restrain  (scale)  settle

Everything that changes a replica count is here. Nothing here waits, reads a clock, writes or logs: `now` is an
argument. Each stage runs once per reconcile, and its result is passed on.
"""
