"""Name of joblens.app.clusters.pilot_worker in version 0.1.0, whose processes and Slurm scripts start it."""

from joblens.app.clusters.pilot_worker import main

if __name__ == "__main__":
    main()
