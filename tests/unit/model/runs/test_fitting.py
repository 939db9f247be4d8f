from joblens.model.runs.plan import Lack, more_than_there_is


def test_one_of_a_kind_is_reported_as_one() -> None:
    text = str(more_than_there_is([Lack("a", "gpus", 1, 0), Lack("b", "nodes", 2, 1)]))
    assert "a: needs 1 GPU, 0 available" in text
    assert "b: needs 2 nodes, 1 available" in text


def test_an_option_is_named_only_for_what_can_be_offered() -> None:
    assert more_than_there_is([Lack("a", "cpus", 8, 2), Lack("a", "nodes", 2, 1)]).hint.endswith("--cpus")
    assert "--" not in more_than_there_is([Lack("b", "nodes", 2, 1)]).hint
