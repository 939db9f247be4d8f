"""Text about runs, workflows and queued tasks."""
