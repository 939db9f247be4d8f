"""Which jobs of a plan to run: `--only`, `--skip`, `--until`, by name, glob, `label:…` or `regex:…`."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

from msgspec import Struct

from joblens.model.runs.plan import Plan
from joblens.plan.commands.regex_search import search_of
from joblens.plan.workflows.graph import Graph
from joblens.plan.workflows.problems import did_you_mean

_LABEL = "label:"
_REGEX = "regex:"
_GLOB = frozenset("*?[")


class Selection(Struct, frozen=True):
    """Places of the jobs to run, ascending. `problems`: words that stand for no job."""

    places: tuple[int, ...]
    problems: tuple[str, ...] = ()


def select(
    plan: Plan, only: Sequence[str], skip: Sequence[str], until: Sequence[str], graph: Graph | None = None
) -> Selection:
    """Each of them narrows: `until` to some jobs and all they need, `only` to just the named ones, `skip`
    takes jobs out together with everything that needs them. Jobs that a job of the run has added are never
    left out: that job was not."""
    places = set(range(len(plan.jobs)))
    if not (only or skip or until):
        return Selection(tuple(range(len(plan.jobs))))
    graph = graph or Graph(plan)
    finder = _Finder(plan)
    if until:
        places &= graph.needed_by(finder.find("--until", until))
    if only:
        places &= set(finder.find("--only", only))
    if skip:
        places -= graph.behind(finder.find("--skip", skip))
    places |= {place for place, job in enumerate(plan.jobs) if job.spawned_by >= 0}
    if not places and not finder.problems:
        finder.problems.append("nothing is left to run: --only, --skip and --until leave out every job")
    return Selection(tuple(sorted(places)), tuple(finder.problems))


def find_jobs(plan: Plan, option: str, words: Sequence[str]) -> Selection:
    """Just those that the words stand for."""
    finder = _Finder(plan)
    places = finder.find(option, words)
    return Selection(tuple(sorted(set(places))), tuple(finder.problems))


class _Finder:
    def __init__(self, plan: Plan) -> None:
        self.problems: list[str] = []
        self._places = {job.name: place for place, job in enumerate(plan.jobs)}
        self._labels: dict[str, list[int]] = {}
        for place, job in enumerate(plan.jobs):
            if job.label:
                self._labels.setdefault(job.label, []).append(place)

    def find(self, option: str, words: Sequence[str]) -> list[int]:
        found: list[int] = []
        for word in words:
            found += self._places_of(option, word)
        return found

    def _places_of(self, option: str, word: str) -> list[int]:
        if word in self._places:
            return [self._places[word]]
        if word.startswith(_LABEL):
            label = word.removeprefix(_LABEL)
            names = _matching(label, self._labels)
            if not names:
                self.problems.append(
                    f"{option}: no job has the label '{label}'{did_you_mean(label, self._labels)}"
                )
            return [place for name in names for place in self._labels[name]]
        if word.startswith(_REGEX):
            return self._places_of_regex(option, word)
        names = _matching(word, self._places)
        if not names and _GLOB & set(word):
            self.problems.append(f"{option}: no job's name matches '{word}'")
        elif not names:
            self.problems.append(f"{option}: there is no job '{word}'{did_you_mean(word, self._places)}")
        return [self._places[name] for name in names]

    def _places_of_regex(self, option: str, word: str) -> list[int]:
        """Found anywhere in a name, as `depends_on_regexes` are."""
        try:
            search = search_of(word.removeprefix(_REGEX))
        except re.error as error:
            self.problems.append(f"{option}: '{word}' is no regex: {error}")
            return []
        places = [place for name, place in self._places.items() if search(name)]
        if not places:
            self.problems.append(f"{option}: no job's name matches '{word}'")
        return places


def _matching(word: str, known: Mapping[str, object]) -> list[str]:
    if word in known:
        return [word]
    if not _GLOB & set(word):
        return []
    matches = re.compile(translate(word)).match
    return [name for name in known if matches(name)]
