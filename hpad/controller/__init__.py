"""The controller: when each HPA is due, and what one reconcile does."""
