"""Verbs: the whole decision about one HPA, as pure stages.

    examine  (gather)  measure  propose  recommend  restrain  (scale)  settle

Two laws: everything that changes a replica count lives here or in `hpad.model`; nothing here waits, looks at a
clock, writes or logs. `now` is an argument, once per decision.
"""
