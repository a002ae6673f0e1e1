"""Where the second layer attends, for models whose attention is known."""

from dataclasses import replace

import pytest
import torch

from anchorlab.models import RecallSpec
from anchorlab.papers.truncation.avoided_noise import STUDY, Attention, Seen, _maps, attention, followers
from anchorlab.papers.truncation.noisy_recall import QUICK, noisy_and_tuned
from anchorlab.tasks import Batch, task
from anchorlab.training import initialise
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, values_of

LAW = task("recall/noisy", length=8, noise="existing")  # the trigger is 1, the noise 2
Y = 5
SEQUENCE = [1, Y, 1, 2, 1, 2, 3, 1]  # y once and noise twice after a trigger
NOWHERE, TO_RIGHT, TO_NOISE = {}, {Y: 1e3}, {2: 1e3}


def batch_of(sequences, outputs):
    inputs = torch.tensor(sequences)
    column = torch.zeros(len(inputs), 1, dtype=torch.int64)
    return Batch(
        inputs=inputs,
        targets=column,
        answers=column,
        positions=torch.tensor([inputs.shape[1] - 1]),
        split="train",
        latents={"output": torch.tensor(outputs).unsqueeze(1)},
    )


def made(*members):
    """Members whose trigger asks for these tokens in the second layer, so strongly; uniform attention for none."""
    model = initialise(RecallSpec(width=80, feed_forward_1="none", feed_forward_2="none"), LAW.shape, [0, 1])
    weights = {name: torch.zeros_like(value) for name, value in model.weights.items()}
    tokens = torch.eye(80)[: LAW.shape.input_size]
    weights["embed.W_E"] = tokens.expand(2, -1, -1).contiguous()
    for member, asked in enumerate(members):
        for token, strength in asked.items():
            weights["blocks.1.attn.W_KQ"][member, 1, token] = strength
    return model.with_weights(weights)


def seen(found, **checkpoints):
    """What is read of both runs, given as members by checkpoint, from these followers."""
    runs = {
        label: HandMadeRun(experiment, [0], {}, {step: made(*members) for step, members in checkpoints[label].items()})
        for label, experiment in noisy_and_tuned(replace(QUICK, seeds=2)).items()
    }
    return seen_by_hand(Seen, runs=runs, found=found)


def test_what_followed_the_trigger():
    """The last position is set and not drawn, and follows nothing even after a trigger."""
    found = followers(
        LAW,
        batch_of(
            [
                [1, 5, 1, 2, 5, 2, 1, 1],  # y = 5: right at 1, noise at 3; 5 and 2 elsewhere follow no trigger
                [1, 5, 1, 5, 3, 3, 3, 1],  # no noise: left out
                [1, 2, 1, 2, 3, 3, 3, 1],  # y is the noise: left out
                [1, 1, 2, 3, 1, 2, 1, 1],  # y is the trigger: right at 1, not at the end
            ],
            [5, 5, 2, 1],
        ),
    )
    assert found.tokens.tolist() == [[1, 5, 1, 2, 5, 2, 1, 1], [1, 1, 2, 3, 1, 2, 1, 1]]
    assert found.right.tolist() == [[0, 1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]]
    assert found.noise.tolist() == [[0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1, 0, 0]]


def test_attention_of_a_model_whose_attention_is_known():
    found = attention(made(NOWHERE, TO_NOISE), followers(LAW, batch_of([SEQUENCE], [Y])))
    assert found.right.tolist() == pytest.approx([1 / 8, 0], abs=1e-6)
    assert found.noise.tolist() == pytest.approx([2 / 8, 1], abs=1e-6)
    assert found.share.tolist() == pytest.approx([2 / 3, 1], abs=1e-6)
    assert float(found.ratio[0]) == pytest.approx(1)


def test_values_of_runs_made_by_hand():
    """Trained with noise both members attend to y; without it, and fine-tuned, one does, the other everywhere."""
    noisy = {0: (TO_NOISE, NOWHERE), 7: (TO_NOISE, TO_NOISE), 9: (TO_RIGHT, TO_RIGHT)}
    tuned = {0: (NOWHERE, TO_RIGHT), 7: (TO_NOISE, TO_NOISE), 9: (TO_RIGHT, NOWHERE)}
    found = seen(followers(LAW, batch_of([SEQUENCE], [Y])), noisy=noisy, tuned=tuned)
    assert values_of(STUDY, found) == pytest.approx(
        {
            "noisy-attends": 1.0,
            "noisy-avoids": 0.0,
            "clean-attends": (3 / 8 + 1) / 2,
            "clean-attends-to-both": 0.0,  # of the member that attends; uniform attention is not judged
            "tuned-attends": (1 + 1 / 8) / 2,
            "tuned-avoids": (0 + 2 / 3) / 2,
        },
        abs=1e-5,
    )


def numbers(right, noise, ratio=1.0):
    return Attention(*(torch.full((2,), value) for value in (right, noise, ratio)))


def test_each_claim_reads_its_own_checkpoint_of_models_that_attend_to_one_of_both():
    # attention without noise is that before fine-tuning, all other that at the end of either run
    noisy, tuned = [numbers(0.1, 0.2), numbers(0.6, 0.2)], [numbers(0.3, 0.4, 1.5), numbers(0.45, 0.05)]
    assert values_of(STUDY, seen_by_hand(Seen, noisy=noisy, tuned=tuned)) == pytest.approx(
        {
            "noisy-attends": 0.6, "noisy-avoids": 0.25, "clean-attends": 0.7, "clean-attends-to-both": 1.5,
            "tuned-attends": 0.45, "tuned-avoids": 0.1,
        }
    )  # fmt: skip
    uniform = numbers(0.1, 0.1)
    found = seen_by_hand(Seen, noisy=[uniform], tuned=[uniform])
    assert values_of(STUDY, found)["clean-attends-to-both"] is None


def test_the_sequence_drawn_has_the_most_of_both():
    """Of three sequences the second has y twice and noise twice; its maps hold attention at those places alone."""
    found = followers(LAW, batch_of([SEQUENCE, [1, Y, 1, 2, 1, Y, 1, 1], [1, Y, 1, Y, 1, 2, 3, 1]], [Y, Y, Y]))
    found = replace(found, noise=found.noise + torch.tensor([0, 1, 0])[:, None] * torch.eye(8)[6])
    checkpoints = {0: (NOWHERE, TO_NOISE), 9: (TO_RIGHT, TO_NOISE)}
    first, second = _maps(seen(found, noisy=checkpoints, tuned=checkpoints)).maps[0]
    assert first.column_ticks == ("1 y", "3 noise", "5 y", "6 noise")
    assert first.row_ticks == ("0", "9")
    assert first.values[0] == pytest.approx([1 / 8] * 4)
    assert first.values[1] == pytest.approx([1 / 2, 0, 1 / 2, 0], abs=1e-6)
    assert second.values == first.values
