"""Multi-node jobs.

Tasks that a cluster's daemon starts are not children of joblens. A prolog announces each before it becomes
its program; it joins the job's groups or is followed as a process tree. An agent on every other node does the
same and reports on its standard output. The parts are added up in one record; memory is that of the largest
node, because users request memory per node. A task that Slurm holds in a group is never moved out of it."""
