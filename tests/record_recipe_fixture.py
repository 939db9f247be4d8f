"""Records what DataJuicer's operators on text make of texts made here. Run it with the Python of an
environment that has py-data-juicer 1.6.1, ftfy and selectolax:

    python tests/record_recipe_fixture.py > tests/fixtures/recipes/text_operators.json
"""

import contextlib
import json
import random
import sys
from importlib import import_module
from typing import Any

ODD = [
    "",
    " ",
    "\n",
    "\t \n",
    "\u3000",
    "\x1f",
    "\x85",
    "\u200b",
    ".",
    "......",
    "\u2026\u2026",
    "a",
    "a b",
    "a\tb",
    "\ufeffa",
    "a\x00b",
    "x" * 600,
    "word " * 100,
    ("word" * 80 + " ") * 3,
    "one\rtwo\r\nthree\n\rfour\x0bfive\x0c",
    "a\x1cb\x1db\x1eb\x1fb",
    "last line\n",
    "\n\nfirst line",
    "a\u2028b\u2029c\x85d",
    "  both ends \u2003",
    "see http://a.example/b(c)d, or www.b.example. Or c.example/x!",
    "HTTPS://A.EXAMPLE",
    "http://" + "." * 60,
    "(http://a.example/(x)(y(z)))",
    "www1.a b www.",
    "mailto:a@b.example",
    "x:y",
    "10:30",
    "caf\u00e9:au",
    "\u017fcheme:x",
    "\u4e2dhttp://a.example\u4e2d\u6587",
    "\u00abhttp://a.example/\u00bb",
    "a.b+c_d@e-f.example.",
    "A@B.c @x.y a@.z",
    "1.2.3.4 255.255.255.255 256.1.1.1 01.2.3.4 1.2.3",
    "1:2:3:4:5:6:7:8 fe80:0:0:0:0:0:0:1 ::1",
    "\u0661:2:3:4:5:6:7:8",
    "/* Copyright 2020 */ code",
    "/* no */ /* copyright */ code",
    "// a\n# b\n-- c\n\ncode",
    "code\n// a",
    "/* open",
    "/** COPYR\u0130GHT **/x",
    "/*/ copyright */",
    "# only",
    "<p>one</p><ol><li>two</li><li>three</li></ol>",
    "a < b && c > d",
    "&lt;b&gt; &eacute; &#233; &unknown;",
    "<!-- gone --><b>bold",
    " leading",
    "\r\nx\r\ny",
    "<script>x</script>text",
    "sch\u00c3\u00b6n caf\u00c3\u00a9 \u00e2\u20ac\u0153quoted\u00e2\u20ac\x9d",
    "\u00c2\u00a0x",
    "\ufb01ne \uff21\uff22\u3000\u2018q\u2019",
    "\x1b[31mred\x1b[0m",
    "e\u0301 \u1e9b\u0323",
    "&amp; <\n&amp;",
    "\u00e9t\u00e9 \u00df \u00ff",
    "a\ud7a3\u11a8",
    "Same. Same. same! Other? Same.",
    "\u540c\u3002\u540c\u3002\u4e0d\u540c\uff01\u540c\u3002",
    "He said \u201cno.\u201d He said \u201cno.\u201d",
    "a. b. a. b.\na. c.",
    "......x......x",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
    "\u039f\u0394\u039f\u03a3 \u03bf\u03b4\u03bf\u03c2 \u039f\u0394\u039f\u03a3",
    "\u6570\u636e\uff0c\u6e05\u6d17\u3002\uff08\u4e00\uff09\u2014\u2026\uff05\uff11",
    "\U0001f600\U0001f389 party \U0001f468\u200d\U0001f469",
    "!!! *** 123 ---",
    "!word! ?? (word) ''",
    "\u0130x i\u0307x \u0131x",
    "\u0915\u093e \u0915\u094d\u0937",
    "\ufffc\u2060\x84x",
    "abcabcabcabcabcabcabcabcabcabc",
    "\u00e9a" * 200,
]

PIECES = [
    *"aabcwW.:/()@1239-_%'\"<>,!?#*;& \n\t\r",
    " ",
    " ",
    "word ",
    "Word, ",
    "the end. ",
    "www.",
    "http://",
    "a@b.co ",
    ".com/",
    "1.2.3.4",
    "\u3000",
    "\u00a0",
    "\u200b",
    "\u00e9",
    "\u00c9",
    "\u00df",
    "\u03a3",
    "\u0130",
    "\u017f",
    "\u212a",
    "\u0661",
    "\u4e2d\u6587",
    "\u4e00",
    "\u3002",
    "\u201c",
    "\u201d",
    "\u2019",
    "\u00ab",
    "\u2026",
    "\u2014",
    "\U0001f600",
    "\ufb01",
    "\uff21",
    "\u00c3\u00a9",
    "\u00e2\u20ac\u2122",
    "&amp;",
    "<li>",
    "</li>",
    "/*",
    "*/",
    "copyright",
]

CASES: list[tuple[str, dict[str, object]]] = [
    ("clean_links_mapper", {}),
    ("clean_links_mapper", {"repl": "[\\1]"}),
    ("clean_links_mapper", {"pattern": "r'w+'", "repl": "-"}),
    ("clean_email_mapper", {}),
    ("clean_email_mapper", {"repl": "<mail>"}),
    ("clean_ip_mapper", {}),
    ("clean_html_mapper", {}),
    ("clean_copyright_mapper", {}),
    ("whitespace_normalization_mapper", {}),
    ("punctuation_normalization_mapper", {}),
    ("fix_unicode_mapper", {}),
    ("fix_unicode_mapper", {"normalization": "nfkd"}),
    ("remove_repeat_sentences_mapper", {}),
    ("remove_repeat_sentences_mapper", {"lowercase": True, "ignore_special_character": False}),
    ("remove_repeat_sentences_mapper", {"min_repeat_sentence_length": 5}),
    ("remove_long_words_mapper", {}),
    ("remove_long_words_mapper", {"min_len": 2, "max_len": 6}),
    ("replace_content_mapper", {"pattern": ["w+", "\\s(.)"], "repl": ["<>", "\\1-"]}),
    ("replace_content_mapper", {"pattern": "a.b", "repl": ""}),
    ("text_length_filter", {}),
    ("text_length_filter", {"min_len": 3, "max_len": 40, "reversed_range": True}),
    ("words_num_filter", {}),
    ("words_num_filter", {"min_num": 2, "max_num": 9, "max_closed_interval": False}),
    ("alphanumeric_filter", {}),
    ("average_line_length_filter", {}),
    ("maximum_line_length_filter", {}),
    ("special_characters_filter", {}),
    ("character_repetition_filter", {}),
    ("character_repetition_filter", {"rep_len": 2, "max_ratio": 0.3}),
    ("word_repetition_filter", {}),
    ("word_repetition_filter", {"rep_len": 2, "max_ratio": 0.3}),
]


def texts() -> list[str]:
    chance = random.Random(7)
    made = ["".join(chance.choices(PIECES, k=chance.choice((3, 8, 20, 60)))) for _ in range(150)]
    return [*ODD, *made]


def recorded(name: str, params: dict[str, object], rows: list[str]) -> dict[str, Any]:
    """Of mappers what changed, by row; of filters the number of each row, and whether it stays."""
    modules = import_module("data_juicer.ops.base_op").OPERATORS.modules
    operator = modules[name](**params)
    case: dict[str, Any] = {"name": name, "params": params}
    samples: dict[str, Any] = {"text": list(rows), "__dj__stats__": [{} for _ in rows]}
    if name.endswith("_mapper"):
        new = operator.process_batched(samples)["text"]
        return {**case, "changed": {index: text for index, text in enumerate(new) if text != rows[index]}}
    samples = operator.compute_stats_batched(samples)
    stats = samples["__dj__stats__"]
    (stat,) = stats[0]
    keep = [int(kept) for kept in operator.process_batched(samples)]
    return {**case, "stat": stat, "numbers": [row[stat] for row in stats], "keep": keep}


def main() -> None:
    rows = texts()
    with contextlib.redirect_stdout(sys.stderr):
        import_module("data_juicer.ops")
        cases = [recorded(name, params, rows) for name, params in CASES]
    json.dump({"version": "1.6.1", "texts": rows, "cases": cases}, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
