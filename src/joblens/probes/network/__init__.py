"""Network bytes and endpoints of a job, by BPF and socket lists.

A program at the control group counts packets: exact, without a network namespace, and it outlives its
owner, so an adopted job has lost nothing. It is a list of instructions assembled here and loaded with the
plain bpf call; no compiler is needed. At groups that joblens did not make it is attached only while joblens
lives."""
