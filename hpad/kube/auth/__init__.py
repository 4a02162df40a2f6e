"""Authentication to an API server: kubeconfig, service account, exec plugins."""
