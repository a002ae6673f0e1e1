"""Records: of plain arrays of attention, of sites under our names, and their selection by axis name."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, Record, describe, detect, look, patch, record_patterns, with_sites


def shifting(by, sequences=12, length=6):
    """One head that attends `by` positions back, and to itself where there is nothing."""
    pattern = np.zeros((sequences, 1, length, length))
    for query in range(length):
        pattern[:, 0, query, query - by if query >= by else query] = 1
    return pattern


def test_detectors_read_the_attention_of_any_model():
    tokens = torch.randint(50, (12, 6), generator=torch.Generator().manual_seed(0))
    record = record_patterns((shifting(1), torch.from_numpy(shifting(2))), tokens)
    assert list(record) == ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"]
    assert record.axes("blocks.1.attn.hook_pattern") == ("member", "batch", "head", "query", "key")
    heads = describe(detect(record)).sort("layer")
    assert heads["label"].to_list() == ["shift 1", "shift 2"]


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        ((), "patterns: has layers of shape"),
        ((shifting(1)[0],), "give .batch head query key. for each layer"),
        ((shifting(1), shifting(1, 11)), "patterns: has layers of shape"),
        ((shifting(1, 11),), "for 12 sequences of 6"),
        ((shifting(1), None), "patterns.1: is None; load the model with attn_implementation"),
    ],
)
def test_what_does_not_fit_is_refused(patterns, problem):
    with pytest.raises(SpecError, match=problem):
        record_patterns(patterns, torch.zeros(12, 6, dtype=torch.int64))


class TestAt:
    SITE = "blocks.0.attn.hook_pattern"

    @pytest.fixture
    def record(self):
        values = torch.arange(2 * 3 * 4 * 5 * 5).reshape(2, 3, 4, 5, 5)
        axes = ("member", "batch", "head", "query", "key")
        return Record({self.SITE: values}, {self.SITE: axes}, torch.zeros(3, 5, dtype=torch.int64))

    def test_named_axes_are_selected_and_dropped(self, record):
        values = record[self.SITE]
        assert torch.equal(record.at(self.SITE, head=2, member=1), values[1, :, 2])
        assert torch.equal(record.at(self.SITE, key=-1), values[..., -1])
        assert torch.equal(record.at(self.SITE), values)
        single = record.at(self.SITE, member=0, batch=1, head=2, query=3, key=4)
        assert single.shape == () and single == values[0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("site", "chosen", "problem"),
        [
            (SITE, {"heads": 0}, r"at\.heads: unknown axis 'heads'; .*member, batch, head, query, key"),
            (SITE, {"head": 4}, r"at\.head: index 4 is out of range; .*member 2, batch 3, head 4, query 5, key 5"),
            (SITE, {"head": -5}, r"at\.head: index -5 is out of range; .*member 2, batch 3, head 4, query 5, key 5"),
            ("blocks.0.attn.hook_patterns", {"member": 0}, r"did you mean 'blocks\.0\.attn\.hook_pattern'"),
        ],
    )  # fmt: skip
    def test_what_is_not_there_is_named(self, record, site, chosen, problem):
        with pytest.raises((SiteError, SpecError), match=problem):
            record.at(site, **chosen)

    def test_the_end_of_sequences_of_different_lengths_is_not_one_place(self, record):
        values, padded = record[self.SITE], replace(record, lengths=torch.tensor([5, 2, 4]))
        with pytest.raises(SpecError, match=r"^at\.query: -1 is not .* different lengths; count from 0; the last plac"):
            padded.at(self.SITE, query=-1)
        assert torch.equal(padded.at(self.SITE, query=1, head=-1, batch=-2), values[:, 1, 3, 1])


# Sites of any module under our names: the same numbers as through the names that it declares itself.
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


def test_interventions_and_patches_act_at_sites_under_our_names():
    zero = Intervention(site=PATTERN, rule="zero", where={"head": 1})
    found = look(Previous(), INPUTS, interventions=zero, sites=OURS)["output"][0]
    assert torch.allclose(found[:, 1:], torch.eye(11)[INPUTS[:, :-1]])
    # The tokens are the same, but the first: only the value of that head carries the difference.
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
    for twice in ({"*": "one"}, {"embed": "one", "softmax": "one"}):
        with pytest.raises(SpecError, match=r"^sites: 'one' is the name of embed and of \w+; give each its own name"):
            with_sites(Previous(), twice)
    with pytest.raises(SiteError, match=r"record\.0: unknown site 'softmax'"):
        look(Previous(), INPUTS, "softmax", sites=OURS)
