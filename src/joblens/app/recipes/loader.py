"""Loader of recipe files: looks up and checks their operators; the list of operators."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.app.jobs.requests import current_dir
from joblens.model.errors import InputError, RecipeError, UnknownOperator
from joblens.model.recipes.recipe import DEFAULT_NP, Executor, OperatorCall, OperatorInfo, Recipe, RecipePlan
from joblens.spec.formats.documents import Document, format_of, read_document
from joblens.spec.formats.positions import Mark, Path
from joblens.spec.recipes.file import read_recipe

if TYPE_CHECKING:
    from joblens.data.base.operator import Operator, OperatorContext


def list_operators(custom_paths: Sequence[str] = ()) -> list[OperatorInfo]:
    """Returns all of them by name, including those of these files and folders."""
    from joblens.data.registry.info import describe
    from joblens.data.registry.lookup import names

    _load(custom_paths)
    return [describe(name) for name in names()]


def describe_operator(name: str, custom_paths: Sequence[str] = ()) -> OperatorInfo:
    """Raises UnknownOperator with the nearest name."""
    from joblens.data.registry.info import describe
    from joblens.data.registry.lookup import where_they_are

    _load(custom_paths)
    try:
        return describe(name)
    except UnknownOperator as error:
        raise UnknownOperator(str(error), hint=where_they_are("add --path for your own")) from None


def _load(custom_paths: Sequence[str]) -> None:
    from joblens.data.registry.lookup import load_custom

    try:
        load_custom(custom_paths)
    except RecipeError as error:
        raise RecipeError(f"--path: {error}", hint=error.hint) from error


_FORMATS = ("yaml", "json", "json5", "toml")


class LoadedRecipe(Struct, frozen=True):
    recipe: Recipe
    text: str
    path: str
    document: Document
    is_np_given: bool  # by the file or on the command line
    options: frozenset[str] = frozenset()  # keys whose values were given beside the file
    is_file: bool = True  # False: it was given as a mapping, or exists only in a job's folder
    path_note: str = ""  # the paths and weights that dataset_path was split into


class CheckedRecipe(Struct, frozen=True):
    """A recipe whose operators work, as far as that is known without rows."""

    loaded: LoadedRecipe
    kinds: tuple[str, ...]  # of the operators: mapper, filter, deduplicator, selector
    columns: tuple[str, ...]  # fields that they read
    needed: tuple[str, ...]  # other fields that every row must have
    warnings: tuple[str, ...]

    @property
    def recipe(self) -> Recipe:
        return self.loaded.recipe


def load_recipe(path: str, overrides: Mapping[str, Any]) -> LoadedRecipe:
    """`overrides`: values that replace keys of the file. RecipeError lists every problem."""
    text = _read(path)
    form = format_of(path, text)
    return loaded_from_text(text, form if form in _FORMATS else "yaml", path, overrides)


def loaded_from_text(
    text: str, form: str, path: str, overrides: Mapping[str, Any], *, is_file: bool = True
) -> LoadedRecipe:
    reading = read_recipe(text, form, path, cwd=current_dir(), given=overrides)
    if reading.recipe is None:
        _refuse_workflows(path, reading.document)
        marked = [(one.mark, one.message) for one in reading.problems] + _unknown_operators(reading.document)
        raise RecipeError.of(path, _located(path, marked))
    value = reading.document.value
    is_np_given = overrides.get("np") is not None or value.get("np") is not None
    options = frozenset(name for name, each in overrides.items() if each is not None)
    return LoadedRecipe(
        reading.recipe, text, path, reading.document, is_np_given, options, is_file, reading.path_note
    )


def loaded_from_plan(plan: RecipePlan, overrides: Mapping[str, Any]) -> LoadedRecipe:
    """Returns the recipe of an existing job, as it was created, whatever has become of its file."""
    form = format_of(plan.recipe_path, plan.recipe_text)
    document = read_document(plan.recipe_text, form if form in _FORMATS else "yaml")
    recipe = replace(plan.recipe, resume=plan.job_id)
    if overrides.get("np") is not None:
        recipe = replace(recipe, np=overrides["np"])
    if overrides.get("executor_type") is not None:
        executor = Executor(overrides["executor_type"])
        recipe = replace(recipe, executor=executor, executor_type=overrides["executor_type"])
    if overrides.get("max_rejects") is not None:
        recipe = replace(recipe, max_rejects=overrides["max_rejects"])
    if overrides.get("is_strict"):
        recipe = replace(recipe, is_strict=True)
    written = document.value if isinstance(document.value, dict) else {}
    # np has a default: a value that differs from the file was given as an option
    is_np_given = written.get("np") is not None or recipe.np != DEFAULT_NP
    options = frozenset(name for name, each in overrides.items() if each is not None)
    return LoadedRecipe(
        recipe, plan.recipe_text, plan.recipe_path, document, is_np_given, options, is_file=False
    )


def problem_at(loaded: LoadedRecipe, key: str, text: str) -> str:
    """Adds where the value was written: an option, a line of the file, or nowhere."""
    if key in loaded.options:
        return f"--{key.replace('_', '-')}: {text}"
    written = loaded.document.value
    if not isinstance(written, dict) or key not in written:
        return text
    return _placed(loaded, [((key,), f"{key}: {text}")])[0]


def check_recipe(loaded: LoadedRecipe) -> CheckedRecipe:
    """Finds and creates every operator. Raises RecipeError with all errors, MissingExtra."""
    from joblens.data.registry import lookup as registry

    recipe = loaded.recipe
    if recipe.executor is Executor.RAY:
        _need_ray()
    try:
        registry.load_custom(recipe.custom_operator_paths)
    except RecipeError as error:
        text = problem_at(loaded, "custom_operator_paths", str(error))
        raise RecipeError(text, hint=error.hint) from error
    surroundings = surroundings_of(recipe)
    problems: list[tuple[Path, str]] = []
    operators: list[Operator] = []
    for call in recipe.process:
        found, operator = _resolve(call, surroundings)
        problems += [(("process", call.index, *path), text) for path, text in found]
        if operator is not None:
            operators.append(operator)
    if problems:
        known = registry.names()
        is_unknown = any(call.name not in known for call in recipe.process)
        hint = registry.where_they_are() if is_unknown else ""
        raise RecipeError.of(loaded.path, _placed(loaded, problems), hint)
    columns = dict.fromkeys(column for operator in operators for column in operator.columns())
    process = registry.with_indexes(recipe.process)
    return CheckedRecipe(
        replace(loaded, recipe=replace(recipe, process=process)),
        tuple(registry.kind_of(registry.find(call.name)) for call in process),
        tuple(columns),
        tuple(key for key in _written_text_keys(loaded) if key not in columns),
        ((loaded.path_note,) if loaded.path_note else ()) + tuple(_warnings(recipe)),
    )


def surroundings_of(recipe: Recipe) -> "OperatorContext":
    from joblens.data.base.operator import OperatorContext

    return OperatorContext(
        text_key=recipe.text_keys[0],
        image_key=recipe.image_key,
        audio_key=recipe.audio_key,
        video_key=recipe.video_key,
    )


def _resolve(
    call: OperatorCall, surroundings: "OperatorContext"
) -> tuple[list[tuple[Path, str]], "Operator | None"]:
    """Returns errors by position inside its entry, or the operator."""
    from joblens.data.registry import lookup as registry

    try:
        problems = registry.problems_of(call)
    except UnknownOperator as error:
        return [((), str(error))], None
    if problems:
        return [
            ((call.name, one.parameter) if one.parameter is not None else (), one.message) for one in problems
        ], None
    try:
        operator = registry.make(call, surroundings)
        operator.check()
    except InputError as error:
        text = f"{error} ({error.hint})" if error.hint else str(error)
        return [((), text if call.name in text else f"{call.name}: {text}")], None
    except Exception as error:  # noqa: BLE001 - a user's operator may raise anything
        return [((), f"{call.name}: {type(error).__name__}: {error}")], None
    return [], operator


def _placed(loaded: LoadedRecipe, problems: Sequence[tuple[Path, str]]) -> list[str]:
    return _located(loaded.path, [(loaded.document.mark(path), text) for path, text in problems])


def _located(path: str, problems: Sequence[tuple[Mark, str]]) -> list[str]:
    """Returns the problems with their positions, in the order of the file."""
    marked = sorted(problems, key=lambda one: (one[0].line, one[0].column))
    return [f"{path}:{mark.line}:{mark.column}: {text}" for mark, text in marked]


def _unknown_operators(document: Document) -> list[tuple[Mark, str]]:
    """Returns the unknown operators of a recipe that has other mistakes too. One with operators of its own
    is not examined: they are loaded later."""
    from joblens.data.registry import lookup as registry

    value = document.value
    if not isinstance(value, dict) or "custom_operator_paths" in value:
        return []
    process = value.get("process")
    found = []
    for index, entry in enumerate(process if isinstance(process, list) else ()):
        name = next(iter(entry)) if isinstance(entry, dict) and len(entry) == 1 else entry
        if isinstance(name, str) and name not in registry.names():
            try:
                registry.find(name)
            except UnknownOperator as error:
                found.append((document.mark(("process", index)), str(error)))
    return found


def _warnings(recipe: Recipe) -> list[str]:
    from joblens.data.registry import lookup as registry

    warnings = []
    if recipe.ignored:
        warnings.append(f"these keys have no effect: {', '.join(recipe.ignored)}")
    for call in recipe.process:
        ignored = registry.ignored_parameters(call)
        if ignored:
            warnings.append(f"{call.name}: these parameters have no effect: {', '.join(ignored)}")
    unused = [name for name in ("size", "num_of_partitions") if getattr(recipe.partition, name)]
    if recipe.auto_configure and unused:
        warnings.append(f"partition.{unused[0]} is not used: auto_configure chooses the partitions")
    if len(recipe.text_keys) > 1:
        warnings.append(
            f"operators process '{recipe.text_keys[0]}', the first of text_keys, "
            "unless text_key is set; rows must have all fields of text_keys"
        )
    return warnings


def _refuse_workflows(path: str, document: Document) -> None:
    value = document.value
    if isinstance(value, dict) and "jobs" in value and "process" not in value:
        raise RecipeError(
            f"{path} is a workflow file, not a recipe", hint=f"joblens run {path} runs its jobs"
        )


def _written_text_keys(loaded: LoadedRecipe) -> tuple[str, ...]:
    """The default one is not needed if no operator works on it."""
    written = loaded.document.value
    is_written = isinstance(written, dict) and written.get("text_keys") is not None
    return loaded.recipe.text_keys if is_written else ()


def _need_ray() -> None:
    import importlib.util

    from joblens.model.errors import MissingExtra, how_to_install

    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("the Ray executor needs ray, which is not installed", hint=how_to_install("ray"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise RecipeError(f"there is no file '{path}'") from None
    except OSError as error:
        raise RecipeError(f"'{path}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not text: {error.reason} at byte {error.start}") from error
