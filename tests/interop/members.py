"""Members of every form that TransformerLens can hold."""

import torch

from anchorlab.axes import TaskShape
from anchorlab.models import DecoderSpec, RecallSpec
from anchorlab.training.ensemble import initialise

SHAPE = TaskShape("tokens", length=7, input_size=11, output_size=12)
INPUTS = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(0))
DECODER = DecoderSpec(layers=2, heads=3, width=12, head_width=5, hidden=9)
PLAIN = DECODER.replace(layer_norm=False)
RECALL = RecallSpec(width=8)
SPECS = {
    "post-norm": DECODER,
    "post-norm-without-mask": DECODER.replace(mask=False),
    "norm-in-one-block": DECODER.replace(layer_norm=(False, True)),
    "plain": PLAIN,
    "without-mask": PLAIN.replace(mask=False),
    "without-projection": PLAIN.replace(projection=False),
    "without-output-linear": PLAIN.replace(head_width=4, output_linear=False),
    "output-linear-in-one-block": PLAIN.replace(head_width=4, output_linear=(True, False)),
    "without-feed-forward": PLAIN.replace(feed_forward=False),
    "feed-forward-in-one-block": PLAIN.replace(feed_forward=(False, True)),
    "biases": DECODER.replace(biases=True),
    "everything-off": PLAIN.replace(
        head_width=4, output_linear=False, feed_forward=False, projection=False, mask=False
    ),
    "recall": RECALL,
    "recall-factored": RECALL.replace(factored_values=True),
    "recall-unscaled": RECALL.replace(scale_scores=False),
    "recall-linear": RECALL.replace(feed_forward_2="linear"),
    "recall-linear-wider-than-the-perceptron": RECALL.replace(feed_forward_1="linear", hidden=5),
    "recall-without-feed-forward": RECALL.replace(feed_forward_1="none", feed_forward_2="none"),
}


def drawn(spec, members=2, dtype=torch.float32):
    """Members whose layer norms and biases are drawn too, so that none hides at zero or one."""
    ensemble = initialise(spec, SHAPE, seeds=range(members), dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    return ensemble.with_weights(
        {name: value + 0.1 * torch.randn(value.shape, generator=generator) for name, value in ensemble.weights.items()}
    )
