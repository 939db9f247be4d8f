"""One module an operator; this table says where each is, so that only those a recipe names are imported."""

# name in recipes -> "module:class", the module below joblens.data.operators
MODULES: dict[str, str] = {
    "document_deduplicator": "document_deduplicator:DocumentDeduplicator",
    "flagged_words_filter": "flagged_words_filter:FlaggedWordsFilter",
    "language_id_score_filter": "language_id_score_filter:LanguageIdScoreFilter",
    "perplexity_filter": "perplexity_filter:PerplexityFilter",
    "ray_document_deduplicator": "ray_document_deduplicator:RayDocumentDeduplicator",
    "stopwords_filter": "stopwords_filter:StopwordsFilter",
}
