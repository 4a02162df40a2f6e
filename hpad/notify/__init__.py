"""Tells people what happens to HPAs: messages over HTTP, in the form of Slack or as CloudEvents.

causes.py finds what has begun and ended, without waiting or formatting; notices.py keeps the state of each HPA and
hands messages to the destinations; sender.py is the task of one destination; texts.py writes the messages.
"""
