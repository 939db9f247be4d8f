"""Network bytes and endpoints of a job, by BPF and socket lists.

A BPF program at the cgroup counts packets: exact, without a network namespace, and it outlives its owner, so
an adopted job loses nothing. It is a list of instructions assembled here and loaded with the plain bpf call;
no compiler is needed. At cgroups that joblens did not create it is attached only while joblens runs.
"""
