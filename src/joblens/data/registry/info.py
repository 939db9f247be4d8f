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
    "backend": "how another system keeps its table of texts; makes no difference here",
    "dedup_set_num": "in how many parts another system keeps its table; makes no difference here",
    "flagged_words_dir": "folder with lists of your own: *flagged_words*.json, words by language",
    "hamming_distance": "most bits in which the marks of two texts may differ",
    "ignore_non_character": "compare letters only: without spaces, digits and punctuation",
    "ignore_pattern": "regular expression of what is left out of the comparison",
    "ignore_special_character": "compare sentences without their special characters",
    "index_key": "field for the number of the row",
    "jaccard_threshold": "share of common shingles from which two texts count as the same",
    "lang": "language, such as en",
    "lowercase": "make no difference between small and capital letters",
    "max_len": "at most this long",
    "max_num": "at most so many",
    "max_ppl": "at most this perplexity",
    "max_ratio": "at most this share",
    "min_len": "at least this long",
    "min_num": "at least so many",
    "min_ppl": "at least this perplexity",
    "min_ratio": "at least this share",
    "min_repeat_sentence_length": "shorter sentences, in characters, may repeat",
    "min_score": "least certainty, from 0 to 1",
    "model_path": "file of the language model; {lang} in it is replaced",
    "normalization": "Unicode form the text is brought into: NFC, NFKC, NFD or NFKD",
    "num_bands": "bands the signature is cut into; worked out from the threshold when left out",
    "num_blocks": "blocks the mark is cut into, to find those that are near",
    "num_permutations": "hashes in a signature: more are more exact and slower",
    "num_rows_per_band": "hashes in a band; worked out from the threshold when left out",
    "pattern": "regular expression to look for, instead of the built-in one",
    "pattern.replace_content_mapper": "regular expression to look for, or a list of them",
    "redis_address": "where another system keeps its table; makes no difference here",
    "rep_len": "length of the pieces whose repetition is counted",
    "repl": "what is put in its place",
    "repl.replace_content_mapper": "what is put in its place; a list: one for each pattern",
    "seed": "for the choice: the same seed and data choose the same rows",
    "select_num": "how many rows",
    "select_ratio": "which share of the rows, from 0 to 1",
    "stopwords_dir": "folder with lists of your own: *stopwords*.json, words by language",
    "tokenization": "split words with a tokenizer model; there is none here, so only false can be had",
    "tokenization.document_minhash_deduplicator": "what shingles are made of: space, punctuation, character",
    "tokenization.document_simhash_deduplicator": "what shingles are made of: space, punctuation, character",
    "tokenizer_model": "file of a sentencepiece model, for tokenization by it",
    "tokenizer_path": "file of a sentencepiece model that splits words; else they are split at spaces",
    "use_words_aug": "count neighbouring words, joined, as words too: for writing without spaces",
    "window_size": "how many tokens are in a shingle",
    "words_aug_group_sizes": "how many neighbours are joined",
    "words_aug_join_char": "what stands between them",
    # of all operators, or all filters
    "text_key": "the field it works on; else the recipe's",
    "image_key": "the field with images; else the recipe's",
    "audio_key": "the field with audio; else the recipe's",
    "video_key": "the field with video; else the recipe's",
    "min_closed_interval": "the least value itself is within the range",
    "max_closed_interval": "the greatest value itself is within the range",
    "reversed_range": "keep what lies outside of the range",
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


def _notes(wanted: Any) -> list[Meta]:
    return [note for note in getattr(wanted, "__metadata__", ()) if isinstance(note, Meta)]


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
    except Exception as error:  # noqa: BLE001 - somebody's own operator: a list must not end in its mistake
        return f"{type(error).__name__}: {error}"
    return ""
