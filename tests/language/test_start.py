"""The token that a text begins with, of tokenizers that put it there and of tokenizers that leave it to others."""

import pytest

from anchorlab.language.start import beginning, start_token


class Words:
    """A tokenizer of one word, with special tokens around it where it puts some."""

    def __init__(self, before: list[int], after: list[int], vocabulary: dict[str, int]) -> None:
        self.before, self.after, self.vocabulary = before, after, vocabulary

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [*self.before, 7, *self.after] if add_special_tokens else [7]}

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


@pytest.mark.parametrize(
    ("tokenizer", "begins", "between"),
    [
        (Words([2], [], {}), 2, None),  # Gemma's <bos>
        (Words([], [], {"<|endoftext|>": 0}), 0, 0),  # SmolLM2
        (Words([], [], {}), None, None),
        (Words([], [3], {}), None, None),  # a special token at the end alone
        (Words([1], [3], {"<|endoftext|>": 0}), 1, None),
        (None, None, None),
    ],
)
def test_what_a_text_begins_with(tokenizer, begins, between):
    assert (beginning(tokenizer), start_token(tokenizer)) == (begins, between)
