"""Memory systems of others in the harness of this one: each in a process of its own, its models those of the job."""
