"""Jobs for workers: submit, notify, watch; tools, TaskPipeline, the worker process.

Job and ticket (real command, queue, and the rule for a lost worker) are written in one transaction. Then
workers are notified by a message that contains only the job's id. An unavailable broker causes a warning:
workers find the ticket in the store some seconds later. Without a broker a worker is started on demand.
"""
