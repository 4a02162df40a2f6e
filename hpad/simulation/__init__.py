"""What an HPA would do with a workload that is only a model: loads, workloads, and the engine run against them."""
