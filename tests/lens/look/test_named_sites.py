"""Sites of any module under our names: the same numbers as through the names that it declares itself."""

import pytest
import torch
from torch import nn

from anchorlab.errors import SiteError
from anchorlab.lens import Intervention, detect, look, patch, with_sites

PATTERN, OURS = "blocks.0.attn.hook_pattern", {"softmax": "blocks.0.attn.hook_pattern"}
INPUTS = torch.randint(0, 11, (20, 6), generator=torch.Generator().manual_seed(0))


class Previous(nn.Module):
    """Two heads: the first attends to the previous token, the second to the first; each adds the token it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.softmax = nn.Embedding.from_pretrained(torch.eye(11)), nn.Softmax(dim=-1)
        place = torch.arange(6)
        read = torch.stack([place[:, None] - 1 == place, (place == 0).expand(6, 6)]).float()
        read[0, 0, 0] = 1
        self.register_buffer("scores", 100 * read)

    def forward(self, inputs):
        pattern = self.softmax(self.scores.expand(len(inputs), -1, -1, -1))
        return (pattern @ self.embed(inputs).unsqueeze(1) * torch.tensor([1.0, 2.0])[:, None, None]).sum(dim=1)


def test_detectors_name_the_heads():
    record = look(Previous(), INPUTS, PATTERN, sites=OURS)
    assert record.axes(PATTERN) == ("member", "batch", "head", "query", "key")
    fires = detect(record).filter("fires").select("head", "detector").rows()
    assert (0, "previous_token") in fires and (1, "first_token") in fires and (1, "previous_token") not in fires


def test_an_intervention_changes_what_follows():
    zero = Intervention(site=PATTERN, rule="zero", where={"head": 1})
    found = look(Previous(), INPUTS, interventions=zero, sites=OURS)["output"][0]
    assert torch.allclose(found[:, 1:], torch.eye(11)[INPUTS[:, :-1]])


def test_values_of_heads_are_patched():
    """The tokens are the same, but the first: only the value of that head carries the difference."""
    other = INPUTS.clone()
    other[:, 0] = (INPUTS[:, 0] + 1) % 11
    named = with_sites(Previous(), {"embed": "blocks.0.hook_resid_pre"})
    answers, wrong = INPUTS[:, :1], other[:, :1]
    found = patch(named, INPUTS, other, answers, wrong, site="blocks.0.hook_resid_pre", over="position", positions=[5])
    assert found.recovered[0, 0].tolist() == [1, 0, 0, 0, 0, 0]


def test_axes_may_be_given_and_a_name_must_be_the_module_s():
    other = look(
        Previous(), INPUTS, "mine", sites={"softmax": "mine"}, axes={"mine": ("batch", "head", "query", "key")}
    )
    assert other.axes("mine")[2] == "head"
    with pytest.raises(SiteError, match=r"sites: unknown site 'softmx'; did you mean 'softmax'\?"):
        look(Previous(), INPUTS, sites={"softmx": PATTERN})
    with pytest.raises(SiteError, match=r"record\.0: unknown site 'softmax'"):
        look(Previous(), INPUTS, "softmax", sites=OURS)
