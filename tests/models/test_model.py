"""A user's own module needs nothing of ours."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from anchorlab.axes import TaskShape
from anchorlab.models import parse_model, register_module
from anchorlab.models.model import predict


class Recurrent(nn.Module):
    def __init__(self, shape: TaskShape, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.input_size, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, shape.output_size)

    def forward(self, inputs):
        return self.out(torch.tanh(self.mix(self.embed(inputs)).cumsum(dim=1)))


@register_module("test-recurrent")
def recurrent(shape, width: int = 4):
    return Recurrent(shape, width)


SHAPE = TaskShape(inputs="tokens", length=5, input_size=7, output_size=7)
INPUTS = torch.arange(15).view(3, 5) % 7


def test_a_plain_module_is_built_from_its_spec():
    spec = parse_model({"kind": "test-recurrent", "width": 6})
    assert spec == recurrent(width=6)
    assert spec.build(SHAPE).embed.weight.shape == (7, 6)


def test_predictions_of_a_plain_module_are_gathered():
    module = recurrent().build(SHAPE)
    full = module(INPUTS)
    assert torch.equal(predict(module, INPUTS, torch.tensor([4, 0])), full[:, [4, 0]])
    own = torch.tensor([[1], [2], [3]])
    assert torch.equal(predict(module, INPUTS, own)[:, 0], full[torch.arange(3), own[:, 0]])


def test_a_plain_module_can_be_mapped_over_members():
    template = recurrent().build(SHAPE).double()
    members = [recurrent().build(SHAPE).double() for _ in range(3)]
    weights = {k: torch.stack([dict(m.named_parameters())[k].detach() for m in members]) for k in template.state_dict()}

    def loss(weights):
        return predict(template, INPUTS, torch.tensor([4]), weights).square().mean()

    slopes = vmap(grad(loss))(weights)
    for index, member in enumerate(members):
        own = {name: value[index] for name, value in weights.items()}
        torch.testing.assert_close(functional_call(template, own, (INPUTS,)), member(INPUTS))
        torch.testing.assert_close(slopes["mix.weight"][index], grad(loss)(own)["mix.weight"])
