"""Name of joblens.app.jobs.supervisor in version 0.1.0, whose processes and Slurm scripts start it."""

from joblens.app.jobs.supervisor import main

if __name__ == "__main__":
    main()
