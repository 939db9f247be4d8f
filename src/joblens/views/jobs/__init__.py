"""Text about jobs: history, details, metrics, summaries."""
