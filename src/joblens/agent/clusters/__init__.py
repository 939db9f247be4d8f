"""Jobs of a run in allocations of a cluster: requests, allocations, tickets, retries.

The driver passes placement requests to a `ClusterBackend` on a thread that may wait. The cluster only decides
where and when: it starts a pilot worker, which claims tickets as any worker does, so statuses, findings and
numbers do not differ between engines, and a job that was placed twice runs once. Placements are appended to
the run, so the next driver follows them. Tickets of an allocation that is gone are taken back at once, or
when their lease expires. A cluster that ends an allocation signals jobs and worker at the same time, so such
a worker delays outcomes for a moment: jobs that ended because of it go back to the queue."""
