"""One attempt of a job from start to outcome, and the context that all owners of jobs share."""
