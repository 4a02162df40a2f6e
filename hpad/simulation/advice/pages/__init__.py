"""The page of the advice: the fleet, and each HPA with its charts."""
