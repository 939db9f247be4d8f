"""Worker context of one job: its plan, folder and operators."""

import msgspec

from joblens.data.base.job_folder import JobFolder
from joblens.data.base.manifests import digest_of
from joblens.data.base.operator import Operator, OperatorContext
from joblens.data.registry import lookup as registry
from joblens.model.recipes.recipe import OperatorCall, Partition, RecipePlan
from joblens.plan.recipes.stages import node_id

_BUILT_IN = "joblens.data.operators."


class WorkerContext:
    """Creates the operators once, before workers are forked."""

    def __init__(self, plan: RecipePlan) -> None:
        self.plan = plan
        self.folder = JobFolder.of_plan(plan)
        self.checkpoint_after = frozenset(plan.checkpoint_after)
        recipe = plan.recipe
        if recipe.custom_operator_paths:
            registry.load_custom(recipe.custom_operator_paths)
        operator_context = OperatorContext(
            text_key=recipe.text_keys[0],
            image_key=recipe.image_key,
            audio_key=recipe.audio_key,
            video_key=recipe.video_key,
        )
        self._operators: list[Operator] = [registry.make(call, operator_context) for call in recipe.process]
        self._inputs = {file.path: file.digest for file in plan.inputs}

    def operator(self, index: int) -> Operator:
        return self._operators[index]

    def is_built_in(self, index: int) -> bool:
        return type(self._operators[index]).__module__.startswith(_BUILT_IN)

    @property
    def is_all_built_in(self) -> bool:
        return all(map(self.is_built_in, range(len(self._operators))))

    def kind(self, index: int) -> str:
        return registry.kind_of(self._operators[index])

    def node_id(self, call: OperatorCall, partition_id: int) -> str:
        """Returns the node name in the saved plan."""
        return node_id(call, self.kind(call.index), partition_id)

    def origin_of(self, partition: Partition) -> str:
        """Returns a digest of a partition's origin and its operators, without reading it."""
        digests = [self._inputs.get(part.origin or part.path, "") for part in partition.slices]
        needed = (self.plan.needed,) if self.plan.needed else ()
        made_of = (partition.slices, digests, self.plan.columns, *needed, self.plan.recipe.process)
        return digest_of(msgspec.json.encode(made_of, order="deterministic"))
