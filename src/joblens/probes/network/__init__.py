"""Network bytes and endpoints of a job, by BPF and socket lists."""
