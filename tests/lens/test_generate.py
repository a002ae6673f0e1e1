"""Generation under interventions: the same as without a cache, as transformers generate, and as recorded afterwards."""

import pytest
import torch

import anchorlab as al
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import generate, look

pytest.importorskip("transformers")

from anchorlab.language.pretrained import wrap
from anchorlab.papers.pretrained.tiny import tiny_model
from tests.language.tiny import NAMES, hugging_face, tokens

MODEL = tiny_model()
TEXTS = ["ab", "Some text", "An end", "no"]
QUIET = al.Intervention(site="blocks.1.attn.hook_z", where={"head": 1}, rule="zero")
LARGER = al.Intervention(site="blocks.0.hook_resid_post", rule="scale", operand=1.5)
KEYS = al.Intervention(site="blocks.1.attn.hook_k", rule="scale", operand=0.5)
VALUES = al.Intervention(site="blocks.2.attn.hook_v", rule="scale", operand=-2.0)
CHANGES = [QUIET, LARGER, KEYS, VALUES]


@pytest.mark.parametrize("name", NAMES)
def test_a_cache_changes_nothing_but_rounding(name):
    model, ids = wrap(hugging_face(name), None, name), tokens()
    whole = model(ids)
    past = model.empty_cache()
    parts = [model(ids[:, :4], past=past), *(model(ids[:, at : at + 1], past=past) for at in range(4, ids.shape[1]))]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", [[], [QUIET], [LARGER], [KEYS], [VALUES], CHANGES])
def test_a_cache_changes_nothing_under_interventions(changes):
    cached, whole = (generate(MODEL, TEXTS, 8, changes, cache=cache) for cache in (True, False))
    assert cached.said == whole.said
    for one, other in zip(cached.logits, whole.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    if changes:
        assert cached.said != generate(MODEL, TEXTS, 8).said


def test_the_likeliest_tokens_are_those_that_transformers_generate():
    found = generate(MODEL, TEXTS, 6)
    theirs = MODEL.hugging_face
    for text, ids in zip(TEXTS, found.ids, strict=True):
        read = MODEL.tokenise([text]).inputs
        expected = theirs.generate(read, max_new_tokens=6, do_sample=False, pad_token_id=0)[0, read.shape[1] :]
        assert torch.equal(ids, expected[: len(ids)])
        assert len(ids) == 6 or int(ids[-1]) == MODEL.tokenizer.eos_token_id


def test_records_are_those_of_the_whole_text():
    sites = ["blocks.1.hook_resid_post", "blocks.2.attn.hook_pattern", "blocks.0.attn.hook_v"]
    found = generate(MODEL, TEXTS, 5, CHANGES, sites)
    assert set(found.record) == set(sites)
    for row, text in enumerate(TEXTS):
        read = MODEL.tokenise([text]).inputs
        ids = torch.cat([read[0], found.ids[row]])[None]
        record = look(MODEL, ids[:, :-1], sites, CHANGES)
        begin = read.shape[1] - 1
        stream = record["blocks.1.hook_resid_post"][0, 0, begin:]
        torch.testing.assert_close(found.record["blocks.1.hook_resid_post"][row], stream, rtol=1e-4, atol=1e-5)
        pattern = record["blocks.2.attn.hook_pattern"][0, 0, :, begin:].transpose(0, 1)
        torch.testing.assert_close(found.record["blocks.2.attn.hook_pattern"][row], pattern, rtol=1e-4, atol=1e-5)
        values = record["blocks.0.attn.hook_v"][0, 0, begin:]
        torch.testing.assert_close(found.record["blocks.0.attn.hook_v"][row], values, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.logits[row], record["output"][0, 0, begin:], rtol=1e-4, atol=1e-5)


def test_draws_follow_the_probabilities_and_a_seed_of_each_text():
    one, again, other = (generate(MODEL, TEXTS, 8, temperature=1.0, seed=seed) for seed in (0, 0, 1))
    assert one.said == again.said != other.said
    with_other_texts = generate(MODEL, [TEXTS[0], "ok"], 8, temperature=1.0)
    assert with_other_texts.said[0] == one.said[0]
    cold = generate(MODEL, TEXTS, 8, temperature=1e-4)
    assert cold.said == generate(MODEL, TEXTS, 8).said
    many = generate(MODEL, ["ab"] * 400, 1, temperature=2.0)
    shares = (many.logits[0][0] / 2).softmax(dim=-1)
    best = int(shares.argmax())
    drawn = sum(int(ids[0]) == best for ids in many.ids) / 400
    assert abs(drawn - float(shares[best])) < 4 * (float(shares[best]) / 400) ** 0.5


def test_a_text_ends_with_its_own_end(monkeypatch):
    """The token that one text says second becomes the end: that text stops there, and others go on."""
    free = generate(MODEL, TEXTS, 6)
    end = int(free.ids[0][1])
    assert end not in free.ids[0][:1]
    monkeypatch.setattr(MODEL.tokenizer, "eos_token", MODEL.tokenizer.convert_ids_to_tokens(end))
    found = generate(MODEL, TEXTS, 6, record="blocks.0.attn.hook_z")
    assert found.ids[0].tolist() == free.ids[0][:2].tolist()
    assert found.said[0] == MODEL.tokenizer.decode(free.ids[0][:1].tolist())
    assert len(found.record["blocks.0.attn.hook_z"][0]) == len(found.logits[0]) == 2
    longest = max(found.ids, key=len)
    assert len(longest) > 2


def test_a_chat_is_put_in_the_template(monkeypatch):
    monkeypatch.setattr(MODEL.tokenizer, "chat_template", "{% for m in messages %}<{{ m.content }}>{% endfor %}:")
    assert generate(MODEL, ["ab"], 4, chat=True).said == generate(MODEL, ["<ab>:"], 4).said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"interventions": QUIET.replace(rule="mean")}, r"^interventions\.0\.rule: 'mean' takes values from other"),
        ({"interventions": LARGER.replace(where={"position": 0})}, r"^interventions\.0: tells places of the axis 'pos"),
        (
            {"interventions": LARGER.replace(operand=al.lens.Operand(values=[1.0, 2.0, 3.0, 4.0], axes=("batch",)))},
            r"^interventions\.0: tells places of the axis 'batch' apart",
        ),
        ({"tokens": 0}, r"^tokens: 0 is too small; give at least 1$"),
        ({"temperature": -1.0}, r"^temperature: -1\.0 is too small; give 0 or more$"),
        ({"chat": True}, r"^chat: the tokenizer has no chat template"),
        ({"model": wrap(hugging_face("gpt2"), None, "gpt2")}, r"^model: has no tokenizer"),
    ],
)
def test_unfitting_arguments(given, message):
    with pytest.raises(SpecError, match=message):
        generate(**{"model": MODEL, "texts": TEXTS} | given)


def test_what_changes_nothing_is_an_error_unless_it_may():
    still = LARGER.replace(operand=1.0)
    with pytest.raises(SiteError, match=r"^interventions\.1 .* changed nothing; set may_do_nothing"):
        generate(MODEL, TEXTS, 2, [QUIET, still])
    assert generate(MODEL, TEXTS, 2, still.replace(may_do_nothing=True)).said == generate(MODEL, TEXTS, 2).said


def test_a_site_that_does_not_exist():
    with pytest.raises(SiteError, match="hook_zz"):
        generate(MODEL, TEXTS, 2, record="blocks.0.hook_zz")
