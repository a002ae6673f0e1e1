"""Thousands of random options: each is a working experiment, or a one-line error with a field's path."""

import json
import string

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorlab.cli.options.experiment import read_experiment
from anchorlab.errors import SpecError
from anchorlab.models.model import predict

TASK_FIELDS = "length anchors items size rule modulus alpha source noise triggers drawn scored chains steps features"
MODEL_FIELDS = (
    "kind layers heads width head-width hidden residual output-linear layer-norm feed_forward projection mask "
    "shift-values feed_forward_1 factored_values initial_scale"
)
RECIPE_FIELDS = (
    "data data.kind data.size optimiser.kind optimiser.learning-rate learning-rate weight-decay optimiser.betas "
    "optimiser schedule schedule.kind schedule.warmup schedule.horizon schedule.end batch unit duration clip precision "
    "evaluation.every evaluation.at evaluation.size evaluation.splits evaluation.edits checkpoints.at stop stop.metric "
    "stop.value stop.split stop.direction"
)
MEMBER_FIELDS = "seeds hold.data hold.initialisation hold.dat learning-rate weight-decay clip data-size hold"

numbers = st.sampled_from(["0", "1", "2", "3", "4", "8", "10", "20", "100", "-1", "0.5", "1e-3", "1e400", "9" * 30])
WORDS = (
    "none true false nan inf x decoder recall vectors sample stream adamw sgd warmup_cosine steps epochs float64 "
    "accuracy loss test train clean above last after_trigger uniform existing mlp linear pair"
)
words = st.sampled_from(WORDS.split())
odd = st.text(string.printable, max_size=6) | st.sampled_from(["", " ", "[", "{}", "[[]]", '{"a": 1}', "{" * 20, "٣"])
edits = st.builds(
    lambda kind, weight, more: json.dumps({"some": [{"kind": kind, "weight": weight, **more}]}),
    st.sampled_from(["truncate", "remove", "truncat"]),
    st.sampled_from(["blocks.0.mlp.W_in", "blocks.0.mlp", "blocks.0.attn.W_Q", "blocks.9", "", "blocks.0.ln1.w"]),
    st.sampled_from([{}, {"rank": 1}, {"rank": 10**6}, {"rank": -1}, {"fraction": 0.5}, {"fraction": 2, "rank": 1}]),
)
values = st.one_of(numbers, numbers, numbers, words, words, st.lists(numbers, max_size=4).map(",".join), odd, edits)


def options(names: str) -> st.SearchStrategy:
    """Mostly known names, at times mistyped or nested too deep."""
    name = st.sampled_from(names.split())
    name = st.one_of(name, name, name, name, name.map(lambda one: one[:-1]), name.map(lambda one: one + ".x"), odd)
    return st.lists(st.tuples(name, values).map("=".join), max_size=4)


MODEL = ["layers=1", "heads=1", "width=4", "head-width=4"]
tasks = st.sampled_from(["anchor/identity", "anchor/identity", "recall/noisy", "retrieval/minimal", "anchor/x"])
seeds = st.sampled_from(["0", "0:2", "0,1", "0,0", "x", "", "3:1", "0:9999999999"])


def works(experiment) -> None:
    """A working experiment has an address, draws sequences, and its model predicts."""
    assert len(experiment.cell.address) == 20
    batch = experiment.task.sample(experiment.task.splits[-1], 2, seed=0)
    module = experiment.model.build(experiment.task.shape)
    with torch.no_grad():
        for value in module.parameters():
            value.zero_()
        assert predict(module, batch.inputs, batch.positions).shape[-1] == experiment.task.shape.output_size


def one_line_with_a_field(error: SpecError) -> None:
    assert error.field and error.problem
    assert len(" ".join(str(error).split())) < 1000


@pytest.mark.slow
def test_options():
    """Some of the parts keep their defaults, because hardly any four random parts fit together."""
    worked = 0

    @settings(max_examples=2000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        tasks, seeds, options(TASK_FIELDS), options(MODEL_FIELDS), options(RECIPE_FIELDS), options(MEMBER_FIELDS),
        st.integers(0, 4),
    )  # fmt: skip
    def attempt(task, seeds, task_fields, model, recipe, members, kept):
        nonlocal worked
        given_parts = [task_fields, model, recipe, members]
        parts = [part if index == kept or kept == 4 else [] for index, part in enumerate(given_parts)]
        parts[1] = parts[1] or MODEL
        try:
            experiment = read_experiment(task, seeds if kept == 4 else "0:2", *parts)
        except SpecError as error:
            one_line_with_a_field(error)
        else:
            works(experiment)
            worked += 1

    attempt()
    assert worked >= 250
