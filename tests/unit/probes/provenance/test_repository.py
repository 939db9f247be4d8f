"""Commits are read from git's own files, in all the places that git keeps them."""

from joblens.probes.provenance.repository import parse_packed, parse_remote


def test_remotes() -> None:
    remotes = '[remote "up"]\n\turl = https://a/b\n[remote "origin"]\n\turl = git@c:d\n'
    config = f'{remotes}[branch "x"]\n\tremote = up\n'
    assert parse_remote(config, "x") == "https://a/b"
    assert parse_remote(config, "y") == "git@c:d"
    assert parse_remote('[remote "only"]\n url=e\n', "y") == "e"
    assert parse_remote("[core]\n", "y") == ""


def test_packed_lists_are_read_by_whole_names() -> None:
    text = (
        f"# pack-refs with: peeled\n{'a' * 40} refs/heads/one-more\n{'b' * 40} refs/heads/one\n^{'c' * 40}\n"
    )
    assert parse_packed(text, "refs/heads/one") == "b" * 40
    assert parse_packed(text, "refs/heads/two") == ""
