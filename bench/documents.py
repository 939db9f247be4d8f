"""Documents to clean, reproducible:

web-like text with links, addresses, odd spaces, other scripts, noise, and copies.
"""

import json
import random
from pathlib import Path

_SYLLABLES = (
    *("ba", "co", "di", "fu", "ga", "he", "li", "mo", "na", "pe", "qui", "ro", "sa", "te", "vu", "wa"),
    *("xi", "yo", "ze", "sta", "tra", "pre", "con", "ver", "ment", "tion", "ing", "er", "al"),
)
_OTHER_SCRIPTS = (
    "обработка данных требует времени и внимания к мелочам",
    "数据清洗是一项需要耐心的工作 每一行都很重要。",
    "les données nettoyées coûtent moins cher à l'entraînement",
    "η καθαρή πληροφορία αξίζει τον κόπο",
    "データの前処理はとても大切です",
)
_EMOJI = "😀🎉🚀✨💡🔥"
_RUBBISH = "#$%^&*()_+=-[]{}|;:,.<>/?~`@!"


class Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        vocabulary = {
            "".join(self._random.choices(_SYLLABLES, k=self._random.randint(1, 3))) for _ in range(40_000)
        }
        self._words = sorted(vocabulary)
        # Few words are common and most are rare, as in real text.
        self._weights = [1.0 / (place + 3) for place in range(len(self._words))]
        self._random.shuffle(self._words)
        self._pool = self._random.choices(self._words, self._weights, k=500_000)

    def text(self) -> str:
        draw = self._random.random()
        if draw < 0.02:
            return self._rubbish()
        if draw < 0.05:
            return " ".join(self._some(self._random.randint(1, 8)))
        paragraphs = [self._paragraph() for _ in range(self._random.randint(1, 7))]
        if draw < 0.25:
            self._put(paragraphs, f"https://www.{self._word()}.com/{self._word()}/{self._word()}.html?id=7")
        if 0.15 < draw < 0.35:
            self._put(paragraphs, f"{self._word()}.{self._word()}@{self._word()}.org")
        if draw > 0.85:
            self._put(paragraphs, self._random.choice(_OTHER_SCRIPTS))
        if draw > 0.96:
            self._put(paragraphs, self._random.choice(_EMOJI) * 3)
        separator = "\n\n" if draw < 0.7 else "\t\u3000\n"
        return separator.join(paragraphs)

    def nearly(self, text: str) -> str:
        """Changes a word or two."""
        words = text.split(" ")
        for _ in range(2):
            words[self._random.randrange(len(words))] = self._word()
        return " ".join(words)

    def _paragraph(self) -> str:
        sentences = (
            " ".join(self._some(self._random.randint(6, 18))).capitalize()
            for _ in range(self._random.randint(1, 4))
        )
        return ". ".join(sentences) + "."

    def _rubbish(self) -> str:
        return "".join(self._random.choices(_RUBBISH + "ab 12", k=self._random.randint(20, 600)))

    def _put(self, paragraphs: list[str], what: str) -> None:
        place = self._random.randrange(len(paragraphs))
        paragraphs[place] += f" {what} {self._word()}"

    def _some(self, count: int) -> list[str]:
        return self._random.choices(self._pool, k=count)

    def _word(self) -> str:
        return self._random.choice(self._words)


def write_documents(path: str, count: int, *, seed: int = 7) -> None:
    """JSON lines of about 1,000 bytes. Eight in a hundred are copies of an earlier one, four nearly so."""
    writer = Writer(seed)
    chance = random.Random(seed + 1)
    earlier: list[str] = []
    with Path(path).open("w", encoding="utf-8") as out:
        for number in range(count):
            draw = chance.random()
            if earlier and draw < 0.08:
                text = chance.choice(earlier)
            elif earlier and draw < 0.12:
                text = writer.nearly(chance.choice(earlier))
            else:
                text = writer.text()
                earlier.append(text)
            row = {"text": text, "meta": {"source": f"web-{number % 17}", "number": number}}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
