"""Nouns: frozen values and what they say about themselves.

The law of this room: everything that changes a replica count lives here or in `hpad.engine`, and nothing here
waits, reads a clock, writes or logs. A file enters only if two rooms need it.
"""
