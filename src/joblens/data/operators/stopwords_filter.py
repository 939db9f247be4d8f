from typing import Annotated

from msgspec import Meta

from joblens.data.texts.listed_words import ListedWordsFilter, WordGroups


class StopwordsFilter(ListedWordsFilter):
    """Keeps texts by the share of stop words (the, of, and) among their words. Running text is full of them,
    lists and tables are not."""

    name = "stopwords_filter"
    list_name = "stopwords"
    stat = "stopwords_ratio"

    def __init__(
        self,
        *,
        lang: str = "en",
        tokenization: bool = False,
        min_ratio: float = 0.3,
        max_ratio: float = 1.0,
        stopwords_dir: str | None = None,
        use_words_aug: bool = False,
        words_aug_group_sizes: tuple[Annotated[int, Meta(ge=1)], ...] = (2,),
        words_aug_join_char: str = "",
    ) -> None:
        super().__init__(
            lang,
            tokenization=tokenization,
            least=min_ratio,
            most=max_ratio,
            folder=stopwords_dir,
            grouping=WordGroups(words_aug_group_sizes, words_aug_join_char) if use_words_aug else None,
        )
