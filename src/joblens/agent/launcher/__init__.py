"""The small process between joblens and the job, and the owner's end of it."""
