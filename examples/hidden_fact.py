"""Which layer hides a fact? Find the matrix that says something else, cut it, read the sentence before and after.

`python examples/hidden_fact.py "Madrid is located in" Spain` asks SmolLM2-135M, which `make language` installs.
"""

import sys

import anchorlab as al
from anchorlab.language import Prompt, Questions, continue_text, search_truncations


def main(text: str, answer: str, name: str = "smollm2", layers: int = 4) -> None:
    """Search the feed-forward matrices of the last layers."""
    model = al.pretrained(name)
    last = range(len(model.blocks) - layers, len(model.blocks))
    search = search_truncations(Questions(model, [Prompt(text, answer)]), [f"blocks.{layer}.mlp.*" for layer in last])
    cut = search.best()
    print(f"{cut.weight}, {cut.fraction:g} of its rank")
    print("before:", continue_text(model, text))
    print("after: ", continue_text(model, text, edits=[cut]))


if __name__ == "__main__":
    main(*sys.argv[1:] or ("Madrid is located in", "Spain"))
