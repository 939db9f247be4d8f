"""Recovery of jobs whose owner was killed: adoption, finalization, cleanup; the supervisor.

Recovery reads the control groups if they still exist, otherwise the file that the launcher wrote, with the
same parser. If neither exists, totals are lower bounds from `wait4` and the samples, and a finding says so.
The supervisor takes its work from the store and is woken by a signal; it can be killed at any moment. When
joblens is replaced by another version, background processes execute themselves again under the same pid."""
