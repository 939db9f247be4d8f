"""Tokenizers are models, and models are not part of joblens."""

from joblens.model.errors import RecipeError


def refuse_tokenization(operator: str, *, is_wanted: bool) -> None:
    if is_wanted:
        raise RecipeError(
            f"{operator}: tokenization: true needs a tokenizer model, which joblens does not bring",
            hint="leave it out: words are then what stands between spaces; or write an operator of your own",
        )
