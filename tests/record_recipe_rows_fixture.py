"""Records which rows DataJuicer exports for recipes with unusual input or keys. Run it with the Python of an
environment that has py-data-juicer 1.6.1, aiohttp, scipy and nltk:

    python tests/record_recipe_rows_fixture.py > tests/fixtures/recipes/rows.json
"""

import contextlib
import json
import os
import sys
import tempfile
from importlib import import_module
from typing import Any

KEEP_ALL = {"text_length_filter": {"min_len": 0}}


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


RATIOS = lines(
    *(
        {"id": number, "text": text}
        for number, text in enumerate(["a--", "aa-", "a--" * 7, "abc-------", "word -"])
    )
)
NULLS = lines(
    {"id": 0, "text": "full text", "title": "t", "n": 1},
    {"id": 1, "text": None, "title": "t", "n": 1},
    {"id": 2, "title": "t", "n": 1},
    {"id": 3, "text": "no title"},
    {"id": 4, "text": "null title", "title": None, "n": None},
    {"id": 5, "text": "", "title": "t", "n": 1},
    {"id": 6, "text": "empty title", "title": "", "n": 1},
    {"id": 7, "text": "no number", "title": "t"},
)
LENGTHS = lines(*({"id": number, "text": "x" * (number + 1)} for number in range(6)))
NO_VALUES = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "Null", "none", "NAN", "na", "text", " NA", "NA ",
    '"NA"', '"null"', '""',
)  # fmt: skip
CSV = "id,text,other\n" + "".join(f"{number},{text},x\n" for number, text in enumerate(NO_VALUES))
CSV += "".join(
    f"{90 + number},ok,{other}\n" for number, other in enumerate(("NA", "null", "", '"null"', "x"))
)


def ratio(**bounds: float | None) -> list[Any]:
    return [{"alphanumeric_filter": bounds}]


# name -> files, keys of the recipe
CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "ratio at the lower bound": ({"a.jsonl": RATIOS}, {"process": ratio(min_ratio=0.33333333333)}),
    "ratio at the upper bound": (
        {"a.jsonl": RATIOS},
        {"process": ratio(min_ratio=0.3, max_ratio=0.3333333333)},
    ),
    "ratio below the upper bound": (
        {"a.jsonl": RATIOS},
        {"process": ratio(min_ratio=0.3, max_ratio=0.33333333333)},
    ),
    "ratio of three tenths": ({"a.jsonl": RATIOS}, {"process": ratio(min_ratio=0.0, max_ratio=0.3)}),
    "ratio with its numbers": (
        {"a.jsonl": RATIOS},
        {"process": ratio(min_ratio=0.0), "keep_stats_in_res_ds": True},
    ),
    "no lower bound": ({"a.jsonl": RATIOS}, {"process": ratio(min_ratio=None, max_ratio=0.5)}),
    "no upper length": (
        {"a.jsonl": RATIOS},
        {"process": [{"text_length_filter": {"min_len": 4, "max_len": None}}]},
    ),
    "two text keys": ({"a.jsonl": NULLS}, {"process": [KEEP_ALL], "text_keys": ["text", "title"]}),
    "a text key that is no text": ({"a.jsonl": NULLS}, {"process": [KEEP_ALL], "text_keys": ["text", "n"]}),
    "index of the first operator": (
        {"a.jsonl": LENGTHS},
        {"process": [{"text_length_filter": {"min_len": 3, "index_key": "idx"}}]},
    ),
    "index behind a filter": (
        {"a.jsonl": LENGTHS},
        {
            "process": [
                {"text_length_filter": {"min_len": 3}},
                {"whitespace_normalization_mapper": {"index_key": "idx"}},
                {"text_length_filter": {"min_len": 5, "index_key": "idx"}},
            ]
        },
    ),
    "index of a deduplicator": (
        {"a.jsonl": LENGTHS},
        {
            "process": [
                {"text_length_filter": {"min_len": 3}},
                {"document_deduplicator": {"index_key": "idx"}},
                {"text_length_filter": {"min_len": 5, "index_key": "idx2"}},
            ]
        },
    ),
    "an index that is a field already": (
        {"a.jsonl": LENGTHS},
        {"process": [{"whitespace_normalization_mapper": {"index_key": "id"}}]},
    ),
    "csv without values": ({"a.csv": CSV}, {"process": [KEEP_ALL]}),
    "csv with semicolons": (
        {"a.csv": "id;text\n1;one, two\n2;three\n"},
        {"process": [KEEP_ALL], "load_dataset_kwargs": {"delimiter": ";", "num_proc": 1}},
    ),
    "weighted path": (
        {"a.jsonl": LENGTHS, "b.jsonl": RATIOS},
        {"process": [KEEP_ALL], "dataset_path": "0.8 {folder}/b.jsonl 0 {folder}/a.jsonl"},
    ),
    "two paths": (
        {"a.jsonl": LENGTHS, "b.jsonl": RATIOS},
        {"process": [KEEP_ALL], "dataset_path": "{folder}/b.jsonl '{folder}/a.jsonl'"},
    ),
    "weighted sources": (
        {"a.jsonl": LENGTHS, "b.jsonl": RATIOS},
        {
            "process": [KEEP_ALL],
            "dataset": {
                "configs": [
                    {"type": "local", "path": "{folder}/b.jsonl", "weight": 0.25},
                    {"type": "local", "path": "{folder}/a.jsonl", "weight": 2},
                ]
            },
        },
    ),
    "keys of its own": (
        {"a.jsonl": LENGTHS},
        {
            "process": [KEEP_ALL, {"whitespace_normalization_mapper": {}}],
            "debug": True,
            "open_tracer": True,
            "trace_keys": ["id"],
            "op_list_to_trace": ["whitespace_normalization_mapper"],
            "read_options": {"block_size": 1000000},
        },
    ),
    "an array": ({"a.jsonl": LENGTHS}, {"process": [KEEP_ALL], "export_path": "{folder}/out/out.json"}),
}


def recipe_in(folder: str, keys: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    """The recipe of a case, with its files written to the folder."""
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", newline="") as file:
            file.write(text)
    recipe = {
        "dataset_path": "{folder}/" + next(iter(files)),
        "export_path": "{folder}/out/out.jsonl",
        "np": 1,
    }
    if "dataset" in keys:
        del recipe["dataset_path"]
    return dict(json.loads(json.dumps({**recipe, **keys}).replace("{folder}", folder)))


def rows_in(folder: str) -> list[Any]:
    if os.path.exists(f"{folder}/out/out.json"):
        with open(f"{folder}/out/out.json") as file:
            return list(json.load(file))
    with open(f"{folder}/out/out.jsonl") as file:
        return [json.loads(line) for line in file]


def recorded(name: str, folder: str) -> dict[str, Any]:
    files, keys = CASES[name]
    path = f"{folder}/recipe.yaml"
    with open(path, "w") as file:
        json.dump(recipe_in(folder, keys, files), file)
    config = import_module("data_juicer.config").init_configs(["--config", path])
    import_module("data_juicer.core.executor").DefaultExecutor(config).run()
    return {"name": name, "files": files, "keys": keys, "rows": rows_in(folder)}


def main() -> None:
    with tempfile.TemporaryDirectory() as cache, contextlib.redirect_stdout(sys.stderr):
        os.environ.update(HF_HOME=cache, DATA_JUICER_CACHE_HOME=cache)
        cases = []
        for name in CASES:
            with tempfile.TemporaryDirectory() as folder:
                cases.append(recorded(name, folder))
    json.dump({"version": "1.6.1", "cases": cases}, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
