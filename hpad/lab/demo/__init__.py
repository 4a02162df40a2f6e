"""`hpad demo`: real processes, scaled by hpad, in two minutes.

The workloads run as `python -m hpad.lab.demo.workloads.NAME`, so this file imports nothing.
"""
