from typing import Annotated

from msgspec import Meta

from joblens.data.texts.listed_words import ListedWordsFilter, WordGroups


class FlaggedWordsFilter(ListedWordsFilter):
    """Keeps texts by the share of flagged words, those of pornography and abuse, among their words."""

    name = "flagged_words_filter"
    list_name = "flagged_words"
    stat = "flagged_words_ratio"

    def __init__(
        self,
        *,
        lang: str = "en",
        tokenization: bool = False,
        min_ratio: float = 0.0,
        max_ratio: float = 0.045,
        flagged_words_dir: str | None = None,
        use_words_aug: bool = False,
        words_aug_group_sizes: tuple[Annotated[int, Meta(ge=1)], ...] = (2,),
        words_aug_join_char: str = "",
    ) -> None:
        super().__init__(
            lang,
            tokenization=tokenization,
            least=min_ratio,
            most=max_ratio,
            folder=flagged_words_dir,
            grouping=WordGroups(words_aug_group_sizes, words_aug_join_char) if use_words_aug else None,
        )
