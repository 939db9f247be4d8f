"""A workflow file written out with every job by itself."""

from collections.abc import Mapping
from typing import Any

from joblens.app.workflows.loading import LoadedSpec
from joblens.plan.workflows.expanded_form import expanded_form
from joblens.plan.workflows.expansion import expand_env, expand_files
from joblens.plan.workflows.problems import Problems
from joblens.plan.workflows.sweeps import variables_of


def expanded_workflow(loaded: LoadedSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The same keys as in the file; reading it again gives the same jobs."""
    files = expand_files(loaded.spec, tables=loaded.tables, parameters=parameters)
    env = expand_env(loaded.spec, tables=loaded.tables, parameters=parameters)
    variables = variables_of(loaded.spec, parameters, Problems())
    return expanded_form(loaded.document.value, loaded.plan, files, env, variables)
