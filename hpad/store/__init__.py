"""What is remembered per HPA, and what is recorded."""
