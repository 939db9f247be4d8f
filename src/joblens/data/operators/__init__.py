"""One module an operator; this table says where each is, so that only those a recipe names are imported."""

# name in recipes -> "module:class", the module below joblens.data.operators
MODULES: dict[str, str] = {
    "alphanumeric_filter": "alphanumeric_filter:AlphanumericFilter",
    "character_repetition_filter": "character_repetition_filter:CharacterRepetitionFilter",
    "clean_email_mapper": "clean_email_mapper:CleanEmailMapper",
    "clean_ip_mapper": "clean_ip_mapper:CleanIpMapper",
    "clean_links_mapper": "clean_links_mapper:CleanLinksMapper",
    "document_deduplicator": "document_deduplicator:DocumentDeduplicator",
    "document_minhash_deduplicator": "document_minhash_deduplicator:DocumentMinhashDeduplicator",
    "document_simhash_deduplicator": "document_simhash_deduplicator:DocumentSimhashDeduplicator",
    "flagged_words_filter": "flagged_words_filter:FlaggedWordsFilter",
    "language_id_score_filter": "language_id_score_filter:LanguageIdScoreFilter",
    "perplexity_filter": "perplexity_filter:PerplexityFilter",
    "punctuation_normalization_mapper": "punctuation_normalization_mapper:PunctuationNormalizationMapper",
    "random_selector": "random_selector:RandomSelector",
    "ray_document_deduplicator": "ray_document_deduplicator:RayDocumentDeduplicator",
    "special_characters_filter": "special_characters_filter:SpecialCharactersFilter",
    "stopwords_filter": "stopwords_filter:StopwordsFilter",
    "text_length_filter": "text_length_filter:TextLengthFilter",
    "whitespace_normalization_mapper": "whitespace_normalization_mapper:WhitespaceNormalizationMapper",
    "word_repetition_filter": "word_repetition_filter:WordRepetitionFilter",
    "words_num_filter": "words_num_filter:WordsNumFilter",
}
