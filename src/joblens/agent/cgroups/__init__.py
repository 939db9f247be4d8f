"""Control groups of jobs: their parents, creation, limits, joining and removal; systemd scopes.

On hybrid and v1 machines job groups go below the group of joblens. Pure cgroup v2 gives controllers only to
groups below one without processes. There the first of these that works is used:

1. the group that `limits.cgroup_parent` names, or the unit that runs with `--own-group`;
2. the job or slot that this process belongs to: its processes move into the leaf `joblens-self`, so that the
outer job counts and limits the inner one;
3. the own group or the nearest ancestor that delegates memory, is writable, and leaves no limit behind;
inside a Slurm step, not above the step;
4. the own group, divided in the same way and restored at the end, if systemd delegated it and it holds no
other process;
5. one systemd scope for all jobs of this process, over D-Bus, if the own group belongs to a unit without
limits that no other program manages; a limit on tasks is copied;
6. none: the process tree. The record has the reason; `--accounting cgroup` fails with it.

joblens never writes `cgroup.subtree_control` of any other group: `pids` in a group with processes makes it
threaded, and no job can run in it. A job never gets more than its caller had. Groups without the memory
controller are not used: the process tree knows more about memory and lets joblens watch the limit.

Names of groups carry their maker (pid, start ticks, pid namespace, spool directory). The next process of the
same store removes empty groups whose maker is dead and that no unfinished job needs."""
