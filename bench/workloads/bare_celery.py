"""Plain Celery, as in its tutorial: a task that runs a command, without stored results."""

import os
import subprocess

from celery import Celery

app = Celery("bare", broker=os.environ["BARE_BROKER"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="bare.true")  # type: ignore[untyped-decorator]  # Celery has no types
def true() -> None:
    subprocess.run(["true"], check=True)
