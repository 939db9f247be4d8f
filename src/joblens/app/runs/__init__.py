"""Runs of workflows: create, find, inspect, reset, cancel, repeat; jobs that jobs add.

The number of an attempt's record is its Job ID: one number for `show`, `logs` and every table.

The state of a run is never stored: the plan is rebuilt from the stored text, added jobs and raised
requests, and a schedule is replayed from records and events. A batch of added jobs is one event, whose
UUID follows from the run and the number of batches before it, so that the store accepts one of two at the
same moment.
"""
