"""The decision about one HPA, as pure stages.

    examine  (gather)  measure  propose  recommend  restrain  settle  (scale)

HPAs with annotations of hpad have stages of their own: spare, share and busy (`turn.py` has the whole order).
Everything that changes a replica count is here. Nothing here waits, reads a clock, writes or logs: `now` is an
argument. The result of a stage is passed on, not computed again.
"""
