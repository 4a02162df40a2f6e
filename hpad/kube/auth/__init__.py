"""How hpad authenticates to an API server: kubeconfig, service account, exec plugins, OIDC."""
