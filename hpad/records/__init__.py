"""Recordings: the scenario format, its writer, its reader and the replay of decisions."""
