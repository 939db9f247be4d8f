"""Records which rows DataJuicer keeps of texts made here. Run it with the Python of an environment that has
py-data-juicer 1.6.1, scipy and simhash-pybind:

    python tests/record_deduplication_fixture.py > tests/fixtures/recipes/deduplication.json
"""

import contextlib
import json
import random
import sys
from importlib import import_module

WORDS = [
    "river", "stone", "light", "window", "paper", "garden", "engine", "summer", "letter", "market", "bridge",
    "winter", "ocean", "silver", "forest", "table", "music", "number", "signal", "copper",
    "valley", "harbour",
    "pencil", "mirror", "Straße", "naïve", "ΣΊΣΥΦΟΣ", "İstanbul", "数据", "清洗", "данные", "😀",
]  # fmt: skip

ODD = [
    "", " ", "\n", "\t \u3000", "\x1f", "\u00a0", "a", "A", "a ", "\u2003a\u2003", "\x1ca\x1c", "a\x00",
    "\ufeffa", "one two three four", "one  two   three four ", "One, two; three. Four!",
    "one two three four five", " one two three four five", "one two three four five ",
    "one\ttwo three four five", "one\ntwo three four five", "one two  three four    five",
    "ONE TWO THREE FOUR FIVE", "1one 2two 3three 4four 5five", "one two three four five.",
    "one-two-three-four-five", "one_two_three_four_five", "one。two\uff0cthree\uff01four\uff1ffive",
    "one\u00a0two three four five six", "数据清洗数据清洗", "数据清洗 数据清洗",
    "数据\uff0c清洗。数据\uff01清洗\uff1f", "١٢٣",
    "١٢٣ abc", "²³", "abc", "ABC", "a b c 1 2 3 . , !", "straße", "STRASSE", "Straße", "ΟΔΟΣ", "οδος",
    "οδοσ", "İ", "i̇", "I", "\u0131", "\u017f", "S", "\u212a", "k", "ǅ", "ǆ", "word " * 500, "word " * 501,
    "x" * 5000, "x" * 5001, ("y" * 70 + " ") * 30, ("y" * 70 + " ") * 31, "!!!!!!!!!!", "!!!!!!!!!",
    "..........", "😀😀😀😀😀😀😀", "😀 😀 😀 😀 😀 😀 😀", "é" * 20, "e\u0301" * 20,
    "\u2028".join(["line"] * 12),
    "\r\n".join(["line"] * 12), "  ".join(["line"] * 12), " ".join(["line"] * 12),
]  # fmt: skip


def texts() -> list[str]:
    """Some of them copies of each other, whole or in part, near and far apart."""
    chance = random.Random(7)
    made = list(ODD)
    for _ in range(330):
        kind = chance.random()
        if kind < 0.45 or len(made) < len(ODD) + 20:
            made.append(" ".join(chance.choices(WORDS, k=chance.randint(1, 60))))
            continue
        words = chance.choice(made).split(" ")
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        made.append(chance.choice((str, str.upper, str.title, lambda text: text + "  "))(" ".join(words)))
    chance.shuffle(made)
    return made


CASES: list[tuple[str, dict[str, object]]] = [
    ("document_deduplicator", {}),
    ("document_deduplicator", {"lowercase": True}),
    ("document_deduplicator", {"ignore_non_character": True}),
    ("document_deduplicator", {"lowercase": True, "ignore_non_character": True}),
    ("ray_document_deduplicator", {}),
    ("ray_document_deduplicator", {"lowercase": True, "ignore_non_character": True}),
    ("document_minhash_deduplicator", {}),
    ("document_minhash_deduplicator", {"lowercase": False}),
    ("document_minhash_deduplicator", {"window_size": 1, "jaccard_threshold": 0.5}),
    ("document_minhash_deduplicator", {"window_size": 2, "jaccard_threshold": 0.9}),
    ("document_minhash_deduplicator", {"tokenization": "character"}),
    (
        "document_minhash_deduplicator",
        {"tokenization": "character", "window_size": 20, "num_permutations": 64},
    ),
    ("document_minhash_deduplicator", {"tokenization": "punctuation", "window_size": 1}),
    ("document_minhash_deduplicator", {"tokenization": "punctuation", "window_size": 2}),
    ("document_minhash_deduplicator", {"ignore_pattern": "[0-9.!, ]+", "tokenization": "character"}),
    ("document_minhash_deduplicator", {"num_bands": 50, "num_rows_per_band": 3, "num_permutations": 150}),
    ("document_simhash_deduplicator", {}),
    ("document_simhash_deduplicator", {"lowercase": False, "window_size": 2}),
    ("document_simhash_deduplicator", {"tokenization": "character"}),
    ("document_simhash_deduplicator", {"tokenization": "punctuation", "window_size": 1}),
    ("document_simhash_deduplicator", {"window_size": 1, "num_blocks": 12, "hamming_distance": 8}),
    ("document_simhash_deduplicator", {"window_size": 3, "num_blocks": 4, "hamming_distance": 1}),
    ("document_simhash_deduplicator", {"ignore_pattern": "[aeiou]", "window_size": 2}),
    ("random_selector", {}),
    ("random_selector", {"select_ratio": 0.3}),
    ("random_selector", {"select_num": 17}),
    ("random_selector", {"select_ratio": 0.5, "select_num": 40}),
    ("random_selector", {"select_ratio": 0.01, "select_num": 300}),
    ("random_selector", {"select_ratio": 0.0001}),
    ("random_selector", {"select_ratio": 1.0}),
]


def kept(name: str, params: dict[str, object], rows: list[str]) -> list[int]:
    operator = import_module("data_juicer.ops.base_op").OPERATORS.modules[name](**params)
    dataset = import_module("data_juicer.core.data").NestedDataset.from_list(
        [{"text": text, "number": number} for number, text in enumerate(rows)]
    )
    if name == "ray_document_deduplicator":  # its cluster only remembers which hashes it has seen
        hashes = [operator.calculate_hash({"text": text}) for text in rows]
        return [number for number, value in enumerate(hashes) if value not in hashes[:number]]
    if name == "random_selector":
        return sorted(operator.process(dataset)["number"])
    found = operator.process(dataset.map(operator.compute_hash, load_from_cache_file=False))[0]
    return list(found["number"])


def main() -> None:
    import_module("data_juicer.ops")
    rows = texts()
    with contextlib.redirect_stdout(sys.stderr):
        cases = [{"name": name, "params": params, "kept": kept(name, params, rows)} for name, params in CASES]
    recorded = {"datajuicer": import_module("data_juicer").__version__, "texts": rows, "cases": cases}
    sys.stdout.write(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
