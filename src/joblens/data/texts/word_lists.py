"""Word lists by language: built-in ones, and those of a folder."""

import os
from functools import cache

import msgspec

from joblens.model.errors import RecipeError
from joblens.spec.formats.positions import nearest_word

_OWN = os.path.join(os.path.dirname(__file__), "lists")
ALL = "all"  # all languages together


def words_of(operator: str, list_name: str, language: str, folder: str | None) -> frozenset[str]:
    """Returns the words. Raises RecipeError if there is no such folder, list or language."""
    lists = _lists(operator, list_name, folder)
    if language == ALL and ALL not in lists:
        return frozenset(word for words in lists.values() for word in words)
    if language not in lists:
        near = nearest_word(language, lists)
        hint = f"; did you mean '{near}'?" if near else ""
        raise RecipeError(
            f"{operator}: no word list for the language '{language}'{hint}",
            hint=f"available: {', '.join(sorted(lists))}, {ALL}; {list_name}_dir: a directory with your own",
        )
    return frozenset(lists[language])


def _lists(operator: str, list_name: str, folder: str | None) -> dict[str, list[str]]:
    if folder is None:
        return _read(os.path.join(_OWN, f"{list_name}.json"))
    try:
        entries = sorted(os.listdir(os.path.expanduser(folder)))
    except OSError as error:
        raise RecipeError(f"{operator}: the directory {folder} cannot be read: {error.strerror}") from error
    files = [name for name in entries if name.endswith(".json") and list_name in name]
    if not files:
        raise RecipeError(
            f"{operator}: no word list in {folder}",
            hint=f'a list is a file *{list_name}*.json, such as {{"en": ["word", "another"]}}',
        )
    found: dict[str, list[str]] = {}
    for name in files:
        path = os.path.join(os.path.expanduser(folder), name)
        try:
            lists = _read(path)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RecipeError(
                f'{operator}: {path} is not a word list {{"en": ["word", …], …}}: {error}'
            ) from error
        for language, words in lists.items():
            found.setdefault(language, []).extend(words)
    return found


@cache
def _read(path: str) -> dict[str, list[str]]:
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=dict[str, list[str]])
