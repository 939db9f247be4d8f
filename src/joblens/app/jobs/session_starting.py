"""Sessions for a pool, whose jobs print into their files."""

import os
from collections.abc import Callable

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.session.context import AgentContext
from joblens.agent.session.session import JobSession
from joblens.agent.session.session_pool import StartSession
from joblens.agent.terminal.output import OutputFiles
from joblens.app.jobs.preparation import PreparedJob
from joblens.app.wiring.drivers import logs_root
from joblens.model.settings import Settings


def session_starter(prepared: PreparedJob, context: AgentContext, settings: Settings) -> StartSession:
    def start(on_end: Callable[[JobSession], None]) -> JobSession:
        folder = os.path.join(logs_root(settings), prepared.job.uuid)
        output = OutputFiles(folder, settings.output.max_size)
        plan = LaunchPlan(
            argv=prepared.argv,
            env=prepared.env,
            cwd=prepared.cwd,
            stdio=("/dev/null", output.stdout.path, output.stderr.path),
        )
        context.add_secrets(prepared.secrets, prepared.job.uuid)
        return JobSession(prepared.job, plan, context, output=output, on_end=on_end)

    return start
