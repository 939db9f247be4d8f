"""Write pages as JSON lines: most are prose; some have links and mail addresses, some are too short, some are
duplicates, and a few lines are broken."""

import json
import random
import sys

VOCABULARY = """
    river mountain paper engine window garden winter signal market letter number system story village music
    morning table bridge forest circle summer question teacher metal orange coffee journey island history
"""
WORDS = VOCABULARY.split()


def sentence(chance: random.Random) -> str:
    words = [chance.choice(WORDS) for _ in range(chance.randint(5, 14))]
    return " ".join(words).capitalize() + "."


def page(chance: random.Random, number: int) -> dict[str, object]:
    text = " ".join(sentence(chance) for _ in range(chance.randint(4, 16)))
    if number % 5 == 0:
        text += f" See https://example.org/{number}?a=b for more,\u00a0or write to user{number}@example.org."
    if number % 17 == 0:
        text = chance.choice(WORDS)
    if number % 23 == 0:
        text = "#" * 60 + " ** " * 20
    return {"id": number, "text": text, "source": f"site-{number % 7}"}


def main(count: int) -> None:
    chance = random.Random(1)
    before: list[str] = []
    for number in range(count):
        line = json.dumps(page(chance, number), ensure_ascii=False)
        if before and number % 11 == 0:
            line = chance.choice(before)
        if number % 4999 == 4998:
            line = line[: len(line) // 2]
        before = [*before[-99:], line]
        print(line)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
