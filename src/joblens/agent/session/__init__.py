"""Sessions: one attempt of a job from start to outcome, their host and shared context.

A session makes the job's control groups, sets limits and starts a launcher. It reads the counters of the
groups (the base), writes job and attempt to the store, and only then lets the child become the job, so that
any later joblens process can find the job. Launchers on standby wait inside fresh groups: a job with limits
then starts without the tens of milliseconds that Python and its groups take."""
