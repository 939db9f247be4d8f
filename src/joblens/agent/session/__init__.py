"""Sessions: one attempt of a job from start to outcome (`JobSession`), their host, and their shared context.

A session makes the job's control groups, sets limits and starts a launcher. It reads the counters of the
groups (the base), writes job and attempt to the store, and only then lets the child become the job: from
then on the next joblens finds the job, whatever happens. Launchers on standby wait inside fresh groups, so
that jobs with limits start without the tens of milliseconds that a Python and its groups take."""
