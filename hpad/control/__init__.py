"""The heartbeat: when which HPA is due, what one reconcile does, and who else claims its pods."""
