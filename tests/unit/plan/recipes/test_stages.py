"""Operators in stages, checkpoints by strategy, the graph."""

from joblens.model.recipes.recipe import CheckpointSettings, CheckpointStrategy, OperatorCall, Stage
from joblens.plan.recipes.stages import checkpoint_after, dag_document, stages_of

KINDS = ("mapper", "filter", "deduplicator", "filter", "selector", "mapper")
PROCESS = tuple(OperatorCall(index=index, name=f"{kind}_{index}") for index, kind in enumerate(KINDS))


def kept(strategy: CheckpointStrategy, **more: object) -> tuple[int, ...]:
    settings = CheckpointSettings(strategy=strategy, **more)  # type: ignore[arg-type]
    return checkpoint_after(PROCESS, stages_of(KINDS), settings)


def test_global_operators_close_stages() -> None:
    assert stages_of(KINDS) == (
        Stage(index=0, first=0, end=2, closing=2),
        Stage(index=1, first=3, end=4, closing=4),
        Stage(index=2, first=5, end=6),
    )


def test_a_recipe_without_global_operators_is_one_stage() -> None:
    assert stages_of(("mapper", "filter")) == (Stage(index=0, first=0, end=2),)


def test_global_operators_at_both_ends_and_in_a_row_have_empty_stages_between() -> None:
    assert stages_of(("deduplicator", "deduplicator")) == (
        Stage(index=0, first=0, end=0, closing=0),
        Stage(index=1, first=1, end=1, closing=1),
        Stage(index=2, first=2, end=2),
    )


def test_each_strategy_says_where_rows_are_kept() -> None:
    assert kept(CheckpointStrategy.EVERY_OP) == (0, 1, 2, 3, 4, 5)
    assert kept(CheckpointStrategy.EVERY_N_OPS, n_ops=2) == (1, 3, 5)
    assert kept(CheckpointStrategy.EVERY_PARTITION) == (1, 3, 5)
    assert kept(CheckpointStrategy.MANUAL, op_names=("filter_3",)) == (3,)
    assert kept(CheckpointStrategy.DISABLED) == ()


def test_an_operator_waits_for_the_one_before_it_on_its_partition() -> None:
    nodes = dag_document(PROCESS, KINDS, [0, 1], 5.0)["nodes"]
    assert nodes["op_002_filter_1_partition_1"]["dependencies"] == ["op_001_mapper_0_partition_1"]
    assert nodes["op_001_mapper_0_partition_0"]["dependencies"] == []


def test_a_global_operator_waits_for_all_partitions_and_all_wait_for_it() -> None:
    nodes = dag_document(PROCESS, KINDS, [0, 1], 5.0)["nodes"]
    meeting = nodes["sg_002_deduplicator_2"]
    assert meeting["dependencies"] == ["op_002_filter_1_partition_0", "op_002_filter_1_partition_1"]
    assert (meeting["node_type"], meeting["partition_id"]) == ("scatter_gather", None)
    assert nodes["op_004_filter_3_partition_0"]["dependencies"] == ["sg_002_deduplicator_2"]


def test_the_graph_says_how_many_nodes_it_has_and_when_it_was_made() -> None:
    document = dag_document(PROCESS, KINDS, [0, 1], 5.0)
    assert document["metadata"] == {"created_at": 5.0, "total_nodes": 4 * 2 + 2}
    assert len(document["nodes"]) == 10
