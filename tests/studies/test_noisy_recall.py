"""The studies of noisy recall: what they share, and their measures by hand."""

from types import SimpleNamespace

import polars
import pytest
import torch

from anchorlab.models import RecallSpec
from anchorlab.studies import study
from anchorlab.studies.truncation import avoided_noise, feedforward_choices, memories
from anchorlab.studies.truncation.noisy_recall import (
    FIVE,
    FULL,
    SETTINGS,
    WITHOUT_F1,
    WITHOUT_F2,
    noise_peak,
    noisy_recall,
    recall_delay,
    truncations,
)
from anchorlab.tasks import Batch, task
from anchorlab.training import TrainedRun, initialise


class HandMade(TrainedRun):
    """A run of which only the metrics are there: `{(split, edit, metric): {step: [of each member]}}`."""

    def __init__(self, metrics):
        rows = [
            {"split": split, "edit": edit, "metric": metric, "group": "all", "step": step, "member": at, "value": value}
            for (split, edit, metric), steps in metrics.items()
            for step, values in steps.items()
            for at, value in enumerate(values)
        ]
        self.metrics = polars.DataFrame(rows)
        members = max(row["member"] for row in rows) + 1
        self.experiment = SimpleNamespace(members=range(members))


NAMES = ("feedforward-noise", "noise-first", "avoided-noise", "memories", "feedforward-choices")


@pytest.mark.parametrize("profile", SETTINGS)
def test_what_several_studies_ask_for_is_trained_once(profile):
    of_each = [study(f"truncation/{name}").profiles[profile].experiments() for name in NAMES]
    assert len({experiments[0].cell.address for experiments in of_each}) == 1
    first, avoided = (study(f"truncation/{name}").profiles[profile].experiments() for name in NAMES[1:3])
    assert [one.cell.address for one in first] == [one.cell.address for one in avoided]
    every = {experiment.cell.address for experiments in of_each for experiment in experiments}
    assert len(every) == 1 + 1 + 1 + 3  # noisy, fine-tuned, five triggers, three other choices of layers


def test_the_paper_profile_is_the_papers():
    experiment = noisy_recall("paper", "noisy recall")
    law, model, recipe = experiment.task, experiment.model, experiment.recipe
    assert (law.length, law.alpha, law.scored, law.noise, law.width) == (256, 0.5, "last", "appended", 1)
    assert (model.width, model.factored_values) == (256, False)
    assert (recipe.batch, recipe.duration, recipe.optimiser.learning_rate) == (512, 2000, 0.03)
    assert noisy_recall("paper", "", feed_forward=("none", "none")).model.factored_values


def test_the_triggers_are_the_characters_that_the_paper_names():
    characters = task("recall/noisy")
    assert [characters.text_of(token) for token in FIVE] == ["space", "a", "e", "o", "t"]


@pytest.mark.parametrize("first", ["mlp", "linear", "none"])
@pytest.mark.parametrize("second", ["mlp", "linear", "none"])
def test_every_layer_that_is_there_is_dropped(first, second):
    edits = truncations((first, second))
    assert (WITHOUT_F1 in edits) == (first != "none")
    assert (WITHOUT_F2 in edits) == (second != "none")
    assert edits
    assert FULL not in edits
    noisy_recall("smoke", "", feed_forward=(first, second))  # and the edits fit the model


def test_the_peak_leaves_out_the_model_before_training_and_later_steps():
    noise = {0: [0.9, 0.1], 1: [0.2, 0.3], 10: [0.6, 0.1], 15: [0.8, 0.8]}
    assert noise_peak(HandMade({("train", "none", "noise"): noise}), "train").tolist() == pytest.approx([0.6, 0.3])


def test_recall_is_later_by_the_ratio_of_two_crossings():
    """Noise reaches 0.5 at steps 2 and 0 (counted as 1), the right token 0.25 at steps 100 and 50."""
    noise = {0: [0.0, 0.6], 4: [1.0, 0.6], 100: [0.5, 0.5]}
    right = {0: [0.0, 0.0], 100: [0.25, 0.5], 200: [0.5, 0.5]}
    run = HandMade({("clean", "none", "noise"): noise, ("clean", "none", "right"): right})
    assert recall_delay(run).tolist() == pytest.approx([50, 50])
    never = HandMade({("clean", "none", "noise"): noise, ("clean", "none", "right"): {0: [0.0, 0.0], 9: [0.2, 1.0]}})
    assert recall_delay(never) is None


def test_claims_of_the_choices_by_hand():
    """Every number of the four choices of layers is made up, so that each claim's value can be told."""

    def ends(**right_noise_loss):
        metrics = {}
        for edit, numbers in right_noise_loss.items():
            for metric, value in zip(("right", "noise", "loss"), numbers, strict=True):
                metrics["clean", edit.replace("_", " ").replace("rho", "rho="), metric] = {9: [value, value]}
        return HandMade(metrics)

    both = ends(none=(0.5, 0.5, 0.7), without_F1=(0.2, 0.75, 2.0), without_F2=(0.96, 0.0, 0.05))
    then_linear = ends(none=(0.5, 0.5, 0.7), without_F1=(0.6, 0.4, 0.6), without_F2=(0.7, 0.0, 0.5))
    then_mlp = ends(none=(0.5, 0.5, 0.7), without_F1=(0.1, 0.6, 3.0), without_F2=(0.9, 0.0, 0.1))
    neither = {"none": (0.5, 0.5, 0.7), "rho0.05": (0.58, 0.4, 0.5), "rho0.01": (0.1, 0.1, 4.0)}
    found = feedforward_choices.measure([both, then_linear, then_mlp, ends(**neither)])
    expected = {
        "mlp-mlp-without-f2": 0.96, "mlp-mlp-without-f1": 0.75,
        "mlp-linear-without-f2": 0.2, "mlp-linear-without-f1": 0.1, "mlp-linear-f1-is-better": -0.1,
        "linear-mlp-without-f2": 0.4, "linear-mlp-without-f1": 0.1,
        "none-best": 0.08, "none-less": 0.2 - 0.08, "none-destroyed": 0.2,
    }  # fmt: skip
    assert {name: float(value.mean()) for name, value in found.items()} == pytest.approx(expected)


def batch_of(law, sequences, outputs):
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


def test_what_followed_the_trigger():
    """Trigger 1, noise 2: the last position is set and not drawn, and follows nothing even after a trigger."""
    law = task("recall/noisy", length=8, noise="existing")
    seen = avoided_noise.followers(
        law,
        batch_of(
            law,
            [
                [1, 5, 1, 2, 5, 2, 1, 1],  # y = 5: right at 1, noise at 3; 5 and 2 elsewhere follow no trigger
                [1, 5, 1, 5, 3, 3, 3, 1],  # no noise: left out
                [1, 2, 1, 2, 3, 3, 3, 1],  # y is the noise: left out
            ],
            [5, 5, 2],
        ),
    )
    assert seen.tokens.tolist() == [[1, 5, 1, 2, 5, 2, 1, 1]]
    assert seen.right.tolist() == [[0, 1, 0, 0, 0, 0, 0, 0]]
    assert seen.noise.tolist() == [[0, 0, 0, 1, 0, 0, 0, 0]]


def test_attention_of_a_model_whose_attention_is_known():
    """Without scores attention is uniform; with a query map that asks for one token it goes there."""
    law = task("recall/noisy", length=8, noise="existing")
    model = initialise(RecallSpec(width=80, feed_forward_1="none", feed_forward_2="none"), law.shape, [0, 1])
    weights = {name: torch.zeros_like(value) for name, value in model.weights.items()}
    tokens = torch.eye(80)[: law.shape.input_size]
    weights["embed.W_E"] = tokens.expand(2, -1, -1).contiguous()
    weights["blocks.1.attn.W_KQ"][1, 1, 2] = 1e3  # of the second member: the trigger 1 asks for 2
    seen = avoided_noise.followers(law, batch_of(law, [[1, 5, 1, 2, 1, 2, 3, 1]], [5]))
    found = avoided_noise.attention(model.with_weights(weights), seen)
    assert found.right.tolist() == pytest.approx([1 / 8, 0], abs=1e-6)
    assert found.noise.tolist() == pytest.approx([2 / 8, 1], abs=1e-6)
    assert found.share.tolist() == pytest.approx([2 / 3, 1], abs=1e-6)
    assert float(found.ratio[0]) == pytest.approx(1)


def test_measures_of_memories_by_hand():
    attention = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0.1, 0.8, 0.1, 0], [0.4, 0.3, 0.2, 0.1]])
    assert memories.previous_share(attention[None]).tolist() == pytest.approx([2 / 3])
    logits = torch.tensor([[3.0, 1, 0], [0, 2, 4], [1, 2, 3]])
    assert memories.noise_share(logits[None], 2, range(3)).tolist() == pytest.approx([2 / 3])
    assert memories.noise_share(logits[None], 2, [0]).tolist() == [0]
    assert memories.trigger_ratio(logits[None], 2, [1]).tolist() == pytest.approx([4 / 1.5])
    assert memories.diagonal_share(logits[None], 2).tolist() == pytest.approx([1 / 2])
    assert memories.noise_on_diagonal(logits[None], 2).tolist() == pytest.approx([3 / 2.5])
    assert memories.match_ratio(logits[None], [0]).tolist() == pytest.approx([3 / 4])
    assert memories.match_ratio(logits[None], [0, 2]).tolist() == pytest.approx([3 / 4])


def test_memories_of_a_model_built_by_hand():
    """Appendix A.1's construction: every memory is as the paper draws it, and each measure says so."""
    law = task("recall/noisy", length=8, noise="existing")
    n, width, noise, trigger = law.shape.input_size, 512, law.noise_token, 1
    spec = RecallSpec(width=width, hidden=4)
    basis = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0))).Q
    tokens, outputs, moved, places = basis[:n], basis[n : 2 * n], basis[2 * n : 3 * n], basis[3 * n : 3 * n + 8]
    model = initialise(spec, law.shape, [0])
    weights = {name: torch.zeros_like(value) for name, value in model.weights.items()}
    weights["embed.W_E"][0], weights["unembed.W_U"][0], weights["pos_embed.W_pos"][0] = tokens, outputs.T, places
    weights["blocks.0.attn.W_KQ"][0] = 1e3 * places[1:].T @ places[:-1]
    weights["blocks.0.attn.W_V"][0] = tokens.T @ moved
    keeps = torch.ones(n).index_fill(0, torch.tensor([noise]), 0)
    weights["blocks.1.attn.W_V"][0] = (tokens * keeps[:, None]).T @ outputs
    weights["blocks.1.attn.W_KQ"][0] = 5 * torch.outer(tokens[trigger], moved[trigger])
    weights["blocks.1.mlp.W_in"][0, :, 0] = tokens.sum(dim=0)
    weights["blocks.1.mlp.W_out"][0, 0] = outputs[noise]
    found = memories.memories(model.with_weights(weights))
    torch.testing.assert_close(found.signal[0], torch.diag(keeps), rtol=0, atol=1e-4)
    torch.testing.assert_close(found.noise[0][:, noise], torch.ones(n), rtol=0, atol=1e-4)
    assert float(found.match[0, trigger, trigger]) == pytest.approx(5, abs=1e-3)
    assert memories.previous_share(found.previous).tolist() == [1]
    assert memories.diagonal_share(found.signal, noise).tolist() == [1]
    assert memories.noise_share(found.noise, noise, range(n)).tolist() == [1]
    assert abs(float(memories.noise_on_diagonal(found.signal, noise))) < 1e-3
    assert float(memories.match_ratio(found.match, [trigger])) > 1e3
