"""The anchor function f(.., 3, x, ..) = x + 5, declared in Python."""

from anchorlab.tasks import AnchorFunction

plus_five = AnchorFunction(name="plus_five", operations={3: "+5"})

if __name__ == "__main__":
    for example in plus_five.render(plus_five.sample("train", 3, seed=0).inputs):
        print(*(token.text for token in example.tokens), "->", example.answer, "  ", "; ".join(example.trace))
