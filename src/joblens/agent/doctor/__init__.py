"""Doctor: capabilities of this machine, tried as for a job.

`doctor` starts a launcher and gets groups for it as sessions and slots do, so it cannot differ from `run`.
Advice depends on how joblens was started; tests in a virtual machine execute the advice."""
