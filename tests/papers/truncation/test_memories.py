"""Which memories weights hold, by hand and in a model built by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.models import RecallSpec
from anchorlab.papers.truncation import memories as of
from anchorlab.papers.truncation.noisy_recall import FIVE, QUICK
from anchorlab.tasks import task
from anchorlab.training import initialise
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, values_of, verdicts_of

LAW = task("recall/noisy", length=8, noise="existing")
N, NOISE = LAW.shape.input_size, LAW.noise_token

PREVIOUS = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0.1, 0.8, 0.1, 0], [0.4, 0.3, 0.2, 0.1]])
LOGITS = torch.tensor([[3.0, 1, 0], [0, 2, 4], [1, 2, 3]])
PERFECT_PREVIOUS = torch.eye(4).roll(-1, dims=1)


def by_hand(*triggers, previous=PREVIOUS, noise=LOGITS, signal=LOGITS, match=LOGITS, own=LOGITS):
    """One member; the noise token is 2."""
    return of.Memories(previous[None], noise[None], signal[None], match[None], own[None], 2, triggers)


def seen(one, five):
    return seen_by_hand(of.Seen, memories={"one": one, "five": five})


def test_measures_and_values_of_memories_by_hand():
    found = by_hand(1)
    assert found.previous_share().tolist() == pytest.approx([2 / 3])
    assert found.previous_share(3).tolist() == [1]
    assert found.noise_share().tolist() == pytest.approx([2 / 3])
    assert found.noise_share([0]).tolist() == [0]
    assert found.trigger_ratio.tolist() == pytest.approx([4 / 1.5])
    assert found.own_output.tolist() == pytest.approx([1 / 2])
    assert found.noise_ratio.tolist() == pytest.approx([3 / 2.5])
    assert by_hand(0).match_ratio.tolist() == pytest.approx([3 / 4])
    assert by_hand(0, 2).match_ratio.tolist() == pytest.approx([3 / 4])
    assert by_hand(2, 1).match_ratio.tolist() == pytest.approx([2 / 4])
    # the trigger 1 scores 1 and 2 with other tokens and 2 with the noise; both triggers of the second 2 and 1.5, and -7
    assert found.noise_repelled.tolist() == pytest.approx([(2 - 1.5) / 0.5**0.5])
    scores = torch.tensor([[1.0, 3, 9], [2, 1, 9], [-8, -6, 9]])
    assert by_hand(0, 1, own=scores).noise_repelled.tolist() == pytest.approx([(-7 - 1.75) / 0.125**0.5])
    other = by_hand(0, 2, previous=PERFECT_PREVIOUS, noise=LOGITS.T, signal=torch.eye(3), match=2 * torch.eye(3) + 1)
    # of match-five the entry of token 1 is as large, and no trigger
    expected = {"previous-token": 2 / 3, "previous-token-early": 1.0}
    expected |= {"noise-from-trigger": 1.0, "noise-from-all": 2 / 3, "noise-avoided": 0.5**0.5}
    expected |= {"signal-diagonal": 1 / 2, "signal-but-noise": 3 / 2.5, "match-one": 2 / 4, "match-five": 1.0}
    assert values_of(of.STUDY, seen(by_hand(1), other)) == pytest.approx(expected)
    swapped = values_of(of.STUDY, seen(other, by_hand(1)))
    assert (swapped["noise-from-trigger"], swapped["previous-token"], swapped["match-five"]) == (0.0, 1.0, 0.5)


@pytest.mark.parametrize(("place", "early"), [(3, 3 / 4), (13, 1.0)])
def test_early_positions_are_a_quarter_of_all(place, early):
    """Of 21 positions, of which one attends elsewhere."""
    previous = torch.eye(21).roll(-1, dims=1)
    previous[place, 0] = 2.0
    found = values_of(of.STUDY, seen(by_hand(1, previous=previous), by_hand(1)))
    assert (found["previous-token"], found["previous-token-early"]) == pytest.approx((19 / 20, early))


def built(*triggers, strength=5.0):
    """Appendix A.1's construction: every memory is as the paper draws it."""
    width = 512
    basis = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0))).Q
    tokens, outputs, moved, places = basis[:N], basis[N : 2 * N], basis[2 * N : 3 * N], basis[3 * N : 3 * N + 8]
    model = initialise(RecallSpec(width=width, hidden=4), LAW.shape, [0])
    weights = {name: torch.zeros_like(value) for name, value in model.weights.items()}
    weights["embed.W_E"][0], weights["unembed.W_U"][0], weights["pos_embed.W_pos"][0] = tokens, outputs.T, places
    weights["blocks.0.attn.W_KQ"][0] = 1e3 * places[1:].T @ places[:-1]
    weights["blocks.0.attn.W_V"][0] = tokens.T @ moved
    weights["blocks.1.attn.W_V"][0] = (tokens * keeps()[:, None]).T @ outputs
    for trigger in triggers:
        weights["blocks.1.attn.W_KQ"][0] += strength * torch.outer(tokens[trigger], moved[trigger] - tokens[NOISE])
    weights["blocks.1.mlp.W_in"][0, :, 0] = tokens.sum(dim=0)
    weights["blocks.1.mlp.W_out"][0, 0] = outputs[NOISE]
    return model.with_weights(weights)


def keeps():
    return torch.ones(N).index_fill(0, torch.tensor([NOISE]), 0)


def test_memories_of_a_model_built_by_hand():
    found = of.memories(built(1), LAW)
    torch.testing.assert_close(found.signal[0], torch.diag(keeps()), rtol=0, atol=1e-4)
    torch.testing.assert_close(found.noise[0][:, NOISE], torch.ones(N), rtol=0, atol=1e-4)
    assert float(found.match[0, 1, 1]) == pytest.approx(5, abs=1e-3)
    assert found.previous_share().tolist() == [1]
    assert found.own_output.tolist() == [1]
    assert found.noise_share().tolist() == [1]
    assert abs(float(found.noise_ratio)) < 1e-3
    assert float(found.match_ratio) > 1e3
    assert (found.noise_token, found.triggers) == (NOISE, (1,))


def runs():
    """One trigger, and five; the first checkpoints hold models that know nothing."""
    nothing = built(strength=0.0)
    nothing = nothing.with_weights({name: torch.zeros_like(value) for name, value in nothing.weights.items()})
    clean = {("clean", metric): [[0.0, 0.5]] for metric in ("noise", "right")}
    clean["clean", "right", "without F2"] = [[0.0, 0.95]]
    settings = replace(QUICK, task=QUICK.task.replace(length=8, max_scored=2), seeds=1)
    return [
        HandMadeRun(experiment, (0, 9), clean, {0: nothing, 9: built(*triggers)})
        for experiment, triggers in zip(of.experiments(settings).values(), ((1,), FIVE), strict=True)
    ]


def test_the_last_checkpoints_of_both_runs_are_read():
    found = of.STUDY.see(runs(), QUICK)
    one, five = found.memories.values()
    assert (one.triggers, five.triggers) == ((1,), FIVE)
    assert set(verdicts_of(of.STUDY, found).values()) == {"agrees at small scale"}
    diagonal = five.match[0].diagonal()
    assert diagonal[list(FIVE)].tolist() == pytest.approx([5.0] * 5, abs=1e-3)
    assert int((one.match[0] > 1).sum()) == 1


def test_figures_and_table():
    analysis = of.STUDY.analysis(runs(), QUICK)
    *maps, lines, timeline = analysis.figures
    assert [len(figure.maps[0]) for figure in maps] == [1, 1, 1, 2]
    assert [figure.seeds for figure in analysis.figures] == ["1000"] * 4 + [None] * 2
    assert maps[3].maps[0][1].title == "triggers ␣ a e o t"
    assert [line.mean[-1] for line in lines.lines] == [1, 1, 1, 1]
    assert {event.label: event.at for event in timeline.events}["right token without F₂ at 0.9"] == (
        pytest.approx(1 + 9 * 0.9 / 0.95),
    )
    assert analysis.tables[0].rows[0][:4] == ("one trigger", 1, 1, 1)


@pytest.mark.parametrize("label", ["one", "five"])
def test_the_control_is_trained_without_noise(label):
    experiment = of.experiments(QUICK)[label]
    control = of.without_noise(experiment)
    scored, noisy = (one.sample("train", 64, seed=3) for one in (control, experiment.task))
    assert (scored.targets == control.noise_token).double().mean() < 0.05  # "!" is itself an output, if rarely
    assert (noisy.targets == control.noise_token).double().mean() > 0.4
    assert control.shape == experiment.task.shape
