"""What `replay` computes from a block on is what whole passes compute."""

import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.lens.look.replay import replay
from anchorlab.models import DecoderSpec, RecallSpec
from anchorlab.training.ensemble import initialise
from anchorlab.training.executions.member import member_module

SHAPE = TaskShape("tokens", length=6, input_size=11, output_size=11)
INPUTS = torch.randint(0, 11, (4, 6), generator=torch.Generator().manual_seed(0))
LAST, OWN = torch.tensor([5]), torch.tensor([[1], [5], [0], [3]])
DECODER = DecoderSpec(layers=3, heads=2, width=8)
FORMS = {
    "post": DECODER,
    "pre": DECODER.replace(norm="pre", biases=True, tied=True),
    "rms": DECODER.replace(norm="rms", positions="rotary"),
    "linear": DECODER.replace(attention=("softmax", "linear", "linear")),
    "merged": RecallSpec(width=8),
}


def built(spec):
    return member_module(initialise(spec, SHAPE, [0], dtype=torch.float64), 0)


def at(output, positions):
    return output[torch.arange(len(INPUTS)).unsqueeze(1), positions.expand(len(INPUTS), -1)]


@pytest.mark.parametrize("positions", [LAST, OWN], ids=["shared", "own"])
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_from_a_block_on_outputs_are_those_of_a_whole_pass(form, narrow, positions):
    module = built(FORMS[form])
    output, streams = replay(module, INPUTS, positions, {}, keep=[1], narrow=narrow)
    torch.testing.assert_close(output, at(module(INPUTS), positions), rtol=0, atol=1e-12)
    site = "blocks.1.attn.hook_v"
    doubled = at(module(INPUTS, tap=lambda name, value: 2 * value if name == site else value), positions)
    assert (doubled - output).abs().max() > 1e-6
    again, none = replay(
        module, INPUTS, positions, {site: lambda value: 2 * value}, entering=(1, streams[1]), narrow=narrow
    )
    torch.testing.assert_close(again, doubled, rtol=0, atol=1e-12)
    assert not none


def test_a_replay_runs_no_earlier_block():
    module, run = built(DECODER), []
    _, streams = replay(module, INPUTS, LAST, {}, keep=[1, 2])
    for layer, block in enumerate(module.blocks):
        block.register_forward_hook(lambda *_, layer=layer: run.append(layer))
    replay(module, INPUTS, LAST, {}, entering=(2, streams[2]))
    assert run == [2]


def test_sites_have_every_position_unless_the_last_layer_is_narrow():
    module, seen = built(DECODER), []
    changes = {"blocks.2.attn.hook_q": lambda value: (seen.append(value.shape[1]), value)[1]}
    for narrow in (True, False):
        replay(module, INPUTS, OWN, changes, narrow=narrow)
    assert seen == [1, 6]
