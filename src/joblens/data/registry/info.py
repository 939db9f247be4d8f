"""Operator descriptions for people and programs, with the meaning of each parameter."""

import inspect
from typing import Any

from msgspec import UNSET, Meta

from joblens.data.base.operator import Filter, Operator
from joblens.data.operators import MODULES
from joblens.data.registry import user_operators
from joblens.data.registry.lookup import (
    KEYS,
    RANGE_SETTINGS,
    Parameter,
    find,
    kind_of,
    parameters_of,
    shared_parameters,
    type_name,
)
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import OperatorInfo, ParameterInfo

_MEANINGS = {
    "backend": "accepted for compatibility; has no effect",
    "dedup_set_num": "accepted for compatibility; has no effect",
    "flagged_words_dir": "directory with lists of your own: *flagged_words*.json, words by language",
    "hamming_distance": "maximum number of different bits between two hashes",
    "ignore_non_character": "compare only letters: without spaces, digits and punctuation",
    "ignore_pattern": "regular expression of text to ignore in the comparison",
    "ignore_special_character": "ignore special characters in the comparison",
    "index_key": "field for the row number",
    "jaccard_threshold": "share of common shingles from which two texts count as similar",
    "lang": "language, such as en",
    "lowercase": "ignore case",
    "max_len": "maximum length",
    "max_num": "maximum number",
    "max_ppl": "maximum perplexity",
    "max_ratio": "maximum share",
    "min_len": "minimum length",
    "min_num": "minimum number",
    "min_ppl": "minimum perplexity",
    "min_ratio": "minimum share",
    "min_repeat_sentence_length": "shorter sentences, in characters, may repeat",
    "min_score": "minimum confidence, from 0 to 1",
    "model_path": "file of the language model; {lang} in it is replaced",
    "normalization": "Unicode normal form: NFC, NFKC, NFD or NFKD",
    "num_bands": "bands of the signature; default: computed from the threshold",
    "num_blocks": "blocks of the hash, for finding similar ones",
    "num_permutations": "hashes per signature; more are slower and more exact",
    "num_rows_per_band": "hashes per band; default: computed from the threshold",
    "pattern": "regular expression to replace, instead of the built-in one",
    "pattern.replace_content_mapper": "regular expression to replace, or a list of them",
    "redis_address": "accepted for compatibility; has no effect",
    "rep_len": "length of the sequences whose repetition is counted",
    "repl": "replacement",
    "repl.replace_content_mapper": "replacement; a list: one per pattern",
    "seed": "random seed; the same seed and data select the same rows",
    "select_num": "number of rows",
    "select_ratio": "share of the rows, from 0 to 1",
    "stopwords_dir": "directory with lists of your own: *stopwords*.json, words by language",
    "tokenization": "split words with a tokenizer model; joblens includes none, so it must be false",
    "tokenization.document_minhash_deduplicator": "unit of shingles: space, punctuation, character",
    "tokenization.document_simhash_deduplicator": "unit of shingles: space, punctuation, character",
    "tokenizer_model": "file of a sentencepiece model, for tokenization by it",
    "tokenizer_path": "file of a sentencepiece model that splits words; default: split at spaces",
    "use_words_aug": "also count joined neighbouring words, for scripts without spaces",
    "window_size": "tokens per shingle",
    "words_aug_group_sizes": "number of neighbouring words to join",
    "words_aug_join_char": "separator between joined words",
    # of all operators, or all filters
    "text_key": "field to process; default: the recipe's",
    "image_key": "field with images; default: the recipe's",
    "audio_key": "field with audio; default: the recipe's",
    "video_key": "field with video; default: the recipe's",
    "min_closed_interval": "the range includes its minimum",
    "max_closed_interval": "the range includes its maximum",
    "reversed_range": "keep values outside the range",
}


def meaning_of(operator: str, parameter: str) -> str:
    return _MEANINGS.get(f"{parameter}.{operator}") or _MEANINGS.get(parameter, "")


def describe(name: str) -> OperatorInfo:
    """Describes an operator. Raises UnknownOperator."""
    kind = find(name)
    is_own = name in MODULES
    return OperatorInfo(
        name=name,
        kind=kind_of(kind),
        summary=_summary(kind),
        parameters=tuple(_info(name, parameter) for parameter in parameters_of(kind).values()),
        shared_parameters=tuple(_shared(kind, parameter) for parameter in shared_parameters(kind)),
        needs=kind.needs,
        source="" if is_own else user_operators.source_of(name),
        problem=_problem(kind),
    )


def _summary(kind: type[Operator]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split()) if kind.__doc__ else ""


def _info(operator: str, parameter: Parameter) -> ParameterInfo:
    described = next((note.description for note in _notes(parameter.type) if note.description), None)
    return ParameterInfo(
        name=parameter.name,
        type=type_name(parameter.type),
        meaning=described or (meaning_of(operator, parameter.name) if operator in MODULES else ""),
        default=parameter.default,
        is_required=parameter.default is UNSET,
    )


def _notes(kind: Any) -> list[Meta]:
    return [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, Meta)]


def _shared(kind: type[Operator], parameter: str) -> ParameterInfo:
    is_setting = parameter in RANGE_SETTINGS
    assert is_setting or parameter in KEYS
    return ParameterInfo(
        name=parameter,
        type="bool" if is_setting else "str",
        meaning=meaning_of(kind.name, parameter),
        default=getattr(Filter, parameter) if is_setting else None,
    )


def _problem(kind: type[Operator]) -> str:
    """Returns why an operator that can be created from its defaults cannot run."""
    if any(parameter.default is UNSET for parameter in parameters_of(kind).values()):
        return ""
    try:
        kind().check()
    except InputError as error:
        return f"{error}; {error.hint}" if error.hint else str(error)
    except Exception as error:  # noqa: BLE001 - a user's operator: its mistake must not end a list
        return f"{type(error).__name__}: {error}"
    return ""
