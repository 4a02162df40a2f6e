"""Advice on the HPAs of a cluster from their past: what is wrong, and which settings would have served better."""
