"""Name of joblens.app.queue.embedded_worker in version 0.1.0, whose processes and Slurm scripts start it."""

from joblens.app.queue.embedded_worker import main

if __name__ == "__main__":
    main()
