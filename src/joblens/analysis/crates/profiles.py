"""RO-Crate profiles: a job as a Process Run Crate, a run as a Provenance Run Crate."""

from typing import Any

from joblens.analysis.crates.actions import (
    COMPLETED,
    FAILED,
    add_action,
    add_parameters,
    add_tool_of,
    command_line,
)
from joblens.analysis.crates.graph import (
    ROOT,
    CrateGraph,
    Ref,
    add_file,
    add_joblens,
    add_person,
    add_root,
    instant,
    percent_encoded,
)
from joblens.model.crate import CrateAbout, CrateFile, CrateJob, CrateRun, CrateStep
from joblens.model.redaction.secrets import redact_params, redact_text
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import RunStatus
from joblens.model.values.units import listed

_WORKFLOW_PROFILE = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_STATUSES = {RunStatus.COMPLETED: COMPLETED, RunStatus.FAILED: FAILED, RunStatus.STOPPED: FAILED}


def run_crate(about_run: CrateRun, about: CrateAbout) -> dict[str, Any]:
    return _RunCrate(about_run, about).document()


class _RunCrate:
    def __init__(self, found: CrateRun, about: CrateAbout) -> None:
        self._found = found
        self._about = about
        self._graph = CrateGraph()
        self._workflow = found.spec_file.id

    def document(self) -> dict[str, Any]:
        found, graph = self._found, self._graph
        tried = [step for step in found.steps if step.attempts]
        # A run that has not started has no steps.
        profiles = ("process", "workflow", *(("provenance",) if tried else ()), "workflow-crate")
        add_root(graph, self._about, name=run_title(found), description=_summary(found), profiles=profiles)
        self._add_workflow()
        run = self._add_run()
        steps = {step.index: self._add_step(step) for step in found.steps}
        controls, actions = [], []
        for step in tried:
            ran = [self._add_attempt(step, attempt) for attempt in step.attempts]
            actions += ran
            controls.append(self._add_control(step, steps[step.index], ran))
        engine = add_joblens(graph, self._about.version)
        graph.add(
            ROOT,
            "Dataset",
            author=add_person(graph, found.run.user),
            mainEntity={"@id": self._workflow},
            mentions=[run, *actions],
            additionalProperty=[
                graph.value("about", name, value) for name, value in redact_params(found.about).items()
            ],
        )
        if controls:
            self._add_organizing(engine, run, controls)
        return graph.document()

    def _add_workflow(self) -> None:
        found, graph = self._found, self._graph
        add_file(graph, found.spec_file)
        kind = ("File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo")
        graph.retype(self._workflow, kind)
        language = graph.add(
            "#joblens-workflow",
            "ComputerLanguage",
            name="joblens workflow",
            alternateName="joblens",
            version=self._about.version,
        )
        graph.add(
            self._workflow,
            kind,
            programmingLanguage=language,
            conformsTo={"@id": _WORKFLOW_PROFILE},
            version=found.label,
            creator=add_person(graph, found.run.user),
            input=[
                *(self._formal("input", name, _kind(file)) for name, file in found.inputs.items()),
                *(self._formal("parameter", name, _type(value)) for name, value in found.parameters.items()),
            ],
            output=[self._formal("output", name, _kind(file)) for name, file in found.outputs.items()],
        )

    def _formal(self, role: str, name: str, kind: str) -> Ref:
        return self._graph.add(
            f"#workflow-{role}-{percent_encoded(name)}", "FormalParameter", name=name, additionalType=kind
        )

    def _add_run(self) -> Ref:
        found, graph, run = self._found, self._graph, self._found.run
        given = [self._example("input", name, add_file(graph, file)) for name, file in found.inputs.items()]
        for name, value in redact_params(found.parameters).items():
            ref = graph.value("parameter", name, value, propertyID=f"workflow:{name}")
            given.append(self._example("parameter", name, ref))
        failed = [
            found.plan.jobs[step.index].name for step in found.steps if step.attempts and not step.is_done
        ]
        status = _STATUSES.get(run.status)
        return graph.add(
            f"#run-{run.uuid}",
            "CreateAction",
            name=f"Run {found.label} of {found.plan.name}",
            description=_summary(found),
            instrument={"@id": self._workflow},
            agent=add_person(graph, run.user),
            startTime=None if run.started_at_us is None else instant(run.started_at_us),
            endTime=None if run.ended_at_us is None else instant(run.ended_at_us),
            actionStatus=status,
            error=_failures(run.status, failed) if status == FAILED else None,
            object=given,
            result=[
                self._example("output", name, add_file(graph, file)) for name, file in found.outputs.items()
            ],
            identifier=run.uuid,
        )

    def _example(self, role: str, name: str, ref: Ref) -> Ref:
        if role != "parameter" and name in self._found.identifiers:
            self._graph.add(ref["@id"], "File", identifier=self._found.identifiers[name])
        formal = f"#workflow-{role}-{percent_encoded(name)}"
        self._graph.extend(ref["@id"], "exampleOfWork", [{"@id": formal}])
        self._graph.extend(formal, "workExample", [ref])
        return ref

    def _add_step(self, step: CrateStep) -> Ref:
        job = self._found.plan.jobs[step.index]
        tool = self._add_tool(job, step.index, is_used=bool(step.attempts))
        ref = self._graph.add(
            f"#step-{step.index}",
            "HowToStep",
            name=job.name,
            description=f"{step.state}: {step.why}" if step.why else step.state,
            position=str(step.index + 1),
            workExample=tool,
        )
        self._graph.extend(self._workflow, "step", [ref])
        return ref

    def _add_tool(self, job: PlannedJob, index: int, *, is_used: bool) -> Ref:
        """Adds a tool, once per sweep. The profile lists only tools that ran."""
        ident, written = _tool_id(job, index), self._found.tools.get(job.spec_job)
        name = job.name if written is None else written.name
        command = job.command if written is None else written.command
        formal = [self._formal_of_tool(ident, parameter) for parameter in job.parameter_names]
        ref = self._graph.add(
            ident, "SoftwareApplication", name=name, description=redact_text(command), input=formal
        )
        if is_used:
            self._graph.extend(self._workflow, "hasPart", [ref])
        return ref

    def _formal_of_tool(self, tool: str, name: str) -> Ref:
        return self._graph.add(
            f"{tool}-{percent_encoded(name)}", "FormalParameter", name=name, additionalType="PropertyValue"
        )

    def _add_attempt(self, step: CrateStep, attempt: CrateJob) -> Ref:
        job = self._found.plan.jobs[step.index]
        tool = _tool_id(job, step.index)
        given = []
        for name, value in redact_params(job.parameters).items():
            ref = self._graph.value("parameter", name, value, propertyID=f"{tool[1:]}:{name}")
            formal = f"{tool}-{percent_encoded(name)}"
            self._graph.extend(ref["@id"], "exampleOfWork", [{"@id": formal}])
            self._graph.extend(formal, "workExample", [ref])
            given.append(ref)
        return add_action(self._graph, attempt, {"@id": tool}, given)

    def _add_control(self, step: CrateStep, ref: Ref, attempts: list[Ref]) -> Ref:
        name = self._found.plan.jobs[step.index].name
        ended = step.attempts[-1].record.status.is_final
        return self._graph.add(
            f"#control-{step.index}",
            "ControlAction",
            name=f"{name}: {len(attempts)} attempts" if len(attempts) > 1 else name,
            instrument=ref,
            object=list(attempts),
            actionStatus=(COMPLETED if step.is_done else FAILED) if ended else None,
            error=(step.why or step.state) if ended and not step.is_done else None,
        )

    def _add_organizing(self, engine: Ref, run: Ref, controls: list[Ref]) -> None:
        found = self._found.run
        ref = self._graph.add(
            f"#organize-{found.uuid}",
            "OrganizeAction",
            name=f"joblens ran {self._found.label}",
            agent=add_person(self._graph, found.user),
            instrument=engine,
            object=controls,
            result=run,
            startTime=None if found.started_at_us is None else instant(found.started_at_us),
            endTime=None if found.ended_at_us is None else instant(found.ended_at_us),
        )
        self._graph.extend(ROOT, "mentions", [ref])


def run_title(found: CrateRun) -> str:
    return f"Run {found.label} of the workflow {found.plan.name}"


def _summary(found: CrateRun) -> str:
    done = sum(step.is_done for step in found.steps)
    counted = f"{done} of {len(found.steps)} jobs completed; {found.run.status.value}"
    return f"{found.plan.description.strip()} ({counted})" if found.plan.description.strip() else counted


def _failures(status: RunStatus, failed: list[str]) -> str:
    named = listed(failed, 10)
    return f"{status.value}: {named}" if named else status.value


def _kind(file: CrateFile) -> str:
    return "Dataset" if file.is_folder else "File"


def _type(value: object) -> str:
    if isinstance(value, bool):
        return "Boolean"
    kinds = {int: "Integer", float: "Float", str: "Text"}
    return kinds.get(type(value), "PropertyValue")


def _tool_id(job: PlannedJob, index: int) -> str:
    """Returns the id of a job's tool. Jobs added during the run share no entry of the file."""
    return f"#tool-{job.spec_job}" if job.spawned_by < 0 else f"#tool-added-{index}"


def job_crate(job: CrateJob, about: CrateAbout) -> dict[str, Any]:
    asked = job.record.job
    graph = CrateGraph()
    add_root(graph, about, name=job_title(job), description=command_line(asked), profiles=("process",))
    tool = add_tool_of(graph, asked)
    action = add_action(graph, job, tool, add_parameters(graph, asked))
    joblens = add_joblens(graph, about.version)
    graph.add(ROOT, "Dataset", author=add_person(graph, asked.user), mentions=[action, joblens])
    return graph.document()


def job_title(job: CrateJob) -> str:
    record = job.record
    label = str(record.number) if record.number is not None else record.job.uuid[:8]
    return f"Job {label}: {record.job.name or record.job.external_id or command_line(record.job)}"
