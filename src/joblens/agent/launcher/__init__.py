"""Launcher: a small process between joblens and the job, and its proxy in the owner.

A launcher is a Python process of 8 MB that imports almost nothing. It forks a child, which joins the job's
control groups and waits for permission to become the job. The launcher is the subreaper of everything the job
starts: it waits for each process with `wait4`, reads the I/O that its own `/proc/self/io` inherits, and
reports to the owner when the last process has ended. It is a separate process because `ru_maxrss` of a child
starts at its parent's size, because a subreaper inside a user's Python program would disturb it, and because
it survives a killed owner: then it waits for the job, writes exit status, `wait4` totals and the groups'
counter files into a file, and exits. In a systemd scope the groups vanish with its last process, so recovery
reads this file.

`joblens run -- COMMAND` forks its launcher before it imports anything (`forked`), at half the cost of a new
interpreter. All other launchers are started as programs.

A launcher signals only processes that it has not waited for; owners signal groups through pidfds, and
recovery compares start times: no process is signalled by a reused number.

Modules here are imported as plain files from this folder (`launcher.start_argv`): they import nothing from
joblens, except `launch` and `forked`, which owners import. No name here may shadow a module of the standard
library."""
