"""What `hpad doctor` looks at: a file a subject, each with a coroutine that yields findings."""
