from joblens.model.runs.workflow_spec import (
    FailureHandler,
    FileSpec,
    RequirementsSpec,
    RetryRule,
    UserDataSpec,
)
from joblens.plan.workflows.plan_document import pack_plan, unpack_plan
from tests.unit.plan.builders import job, planned, workflow

WORKFLOW = workflow(
    job("first", output_files=("f",), env={"A": "1"}, requirements="small", failure_handler="again"),
    job("a_{i}", parameters={"i": [1, 2**70, 0.5, "x"]}, requirements="small", failure_handler="again"),
    job("b_{i}", "echo \ud800", parameters={"i": "1:3"}, depends_on_regexes=("^a_",), input_files=("f",)),
    files=(FileSpec(name="f", path="out/f"),),
    user_data=(UserDataSpec(name="d", data={"k": [1]}),),
    requirements=(RequirementsSpec(name="small", num_cpus=1),),
    failure_handlers=(FailureHandler(name="again", rules=(RetryRule(exit_codes=(1,)),)),),
)


def test_a_plan_is_the_same_after_packing() -> None:
    plan = planned(WORKFLOW)
    assert unpack_plan(pack_plan(plan)) == plan


def test_what_jobs_share_they_share_after_packing() -> None:
    jobs = unpack_plan(pack_plan(planned(WORKFLOW))).jobs
    of_a, of_b = jobs[1:5], jobs[5:]
    assert len({id(one.requirements) for one in (jobs[0], *of_a)}) == 1
    assert len({id(one.failure_handler) for one in (jobs[0], *of_a)}) == 1
    assert len({id(one.depends_on) for one in of_b}) == 1
    assert len({id(one.env) for one in of_b}) == 1
    assert len({id(one.parameter_names) for one in of_a}) == 1


def test_a_plan_without_files_can_be_packed() -> None:
    plan = planned(workflow(job("a")))
    assert unpack_plan(pack_plan(plan)) == plan
