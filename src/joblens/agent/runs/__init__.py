"""Run driver: feeds events to the schedule and executes its commands, on one loop.

Jobs without limits go to slots, others to sessions, and with another engine to tickets in the store. An end
is reported before its record is complete, so that dependents start at once; their start is written after it,
so a kill between the two keeps the order. One process drives a run (`RunLock`). A killed driver leaves its
jobs running; the next one records ended jobs, adopts running ones and resumes. Jobs that a running job adds
reach the driver as events, and its plan grows. The view of a run has its own thread."""
