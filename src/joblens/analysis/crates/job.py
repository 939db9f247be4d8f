"""One job as a Process Run Crate."""

from typing import Any

from joblens.analysis.crates.actions import add_action, add_parameters, add_tool_of, command_line
from joblens.analysis.crates.files import ROOT, add_joblens, add_person, add_root
from joblens.analysis.crates.graph import CrateGraph
from joblens.model.crate import CrateAbout, CrateJob


def job_crate(job: CrateJob, about: CrateAbout) -> dict[str, Any]:
    asked = job.record.job
    graph = CrateGraph()
    add_root(graph, about, name=title_of(job), description=command_line(asked), profiles=("process",))
    tool = add_tool_of(graph, asked)
    action = add_action(graph, job, tool, add_parameters(graph, asked))
    joblens = add_joblens(graph, about.version)
    graph.add(ROOT, "Dataset", author=add_person(graph, asked.user), mentions=[action, joblens])
    return graph.document()


def title_of(job: CrateJob) -> str:
    record = job.record
    label = str(record.number) if record.number is not None else record.job.uuid[:8]
    return f"Job {label}: {record.job.name or record.job.external_id or command_line(record.job)}"
