"""Jobs for workers: submit, notify, watch; tools, TaskPipeline, the worker process."""
