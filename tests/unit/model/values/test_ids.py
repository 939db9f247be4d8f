import uuid

from joblens.model.values.ids import SHORT_LENGTH, new_uuid, short, uuid_from


def test_a_new_id_is_a_random_uuid() -> None:
    parsed = uuid.UUID(new_uuid())
    assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


def test_new_ids_differ_in_their_short_form() -> None:
    assert len({short(new_uuid()) for _ in range(200)}) == 200


def test_a_short_id_is_the_beginning_of_the_id() -> None:
    ident = new_uuid()
    assert ident.startswith(short(ident))
    assert len(short(ident)) == SHORT_LENGTH


def test_the_same_parts_give_the_same_id() -> None:
    assert uuid_from("history", "task", "1") == uuid_from("history", "task", "1")
    assert uuid.UUID(uuid_from("history", "task", "1")).variant == uuid.RFC_4122


def test_parts_are_kept_apart() -> None:
    assert uuid_from("ab", "c") != uuid_from("a", "bc")


def test_any_text_can_be_a_part() -> None:
    assert len(uuid_from("\udcff", "é")) == 36
