"""Members in TransformerLens: against the library's own passes."""

import sys

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.interop import to_transformer_lens
from anchorlab.lens import Intervention, look
from tests.interop.members import DECODER, INPUTS, PLAIN, SPECS, drawn


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformer_lens.config", None)
    monkeypatch.delitem(sys.modules, "anchorlab.interop.bridge", raising=False)
    message = r"^transformer-lens: version 4 is not installed; run pip install 'anchorlab\[interop\]'$"
    with pytest.raises(SpecError, match=message):
        to_transformer_lens(drawn(PLAIN))


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("transformer_lens")


@pytest.mark.usefixtures("library")
class TestLibrary:
    @pytest.mark.parametrize("name", SPECS)
    def test_gives_the_same_logits(self, name):
        ensemble = drawn(SPECS[name])
        ours = look(ensemble, INPUTS)["output"]
        for member in range(2):
            with torch.no_grad():
                theirs = to_transformer_lens(ensemble, member)(INPUTS)
            assert theirs.dtype == torch.float32
            assert (theirs - ours[member]).abs().max() < 1e-5

    @pytest.mark.parametrize("name", SPECS)
    def test_has_the_same_values_at_the_same_names(self, name):
        ensemble = drawn(SPECS[name], dtype=torch.float64)
        ours = look(ensemble, INPUTS, record=["**"])
        with torch.no_grad():
            logits, cache = to_transformer_lens(ensemble, member=1).run_with_cache(INPUTS)
        assert logits.dtype == torch.float64

        names = {site: site for site in ours if not site.endswith(("_unmasked", "hook_attn_scores"))}
        names |= {"output": "unembed.hook_out", "hook_logits": "unembed.hook_out"}
        if name == "recall-linear-wider-than-the-perceptron":  # whose spare neurons are zero there
            for site in ("blocks.1.mlp.hook_pre", "blocks.1.mlp.hook_post"):
                del names[site]
                assert torch.allclose(cache[site][..., :5], ours[site][1], rtol=0, atol=1e-10)
                assert (cache[site][..., 5:] == 0).all()
        for site in [site for site in names if site.endswith("hook_normalized")]:  # before weight and bias there
            del names[site]
            w, b = (ensemble.weights[site.replace("hook_normalized", part)][1] for part in "wb")
            assert torch.allclose(cache[site] * w + b, ours[site][1], rtol=0, atol=1e-10), site
        for site, hook in names.items():
            assert cache[hook].shape == ours[site][1].shape, site
            assert torch.allclose(cache[hook], ours[site][1], rtol=0, atol=1e-10), site

    @pytest.mark.parametrize("spec", [DECODER, PLAIN], ids=["post-norm", "plain"])
    def test_intervenes_as_we_do(self, spec):
        ensemble, site = drawn(spec), "blocks.0.attn.hook_z"
        without = Intervention(site=site, where={"head": 1}, rule="zero")
        ours = look(ensemble, INPUTS, interventions=[without])["output"][0]

        def zero(value, hook):
            value[:, :, 1] = 0
            return value

        with torch.no_grad():
            theirs = to_transformer_lens(ensemble).run_with_hooks(INPUTS, fwd_hooks=[(site, zero)])
        assert (theirs - ours).abs().max() < 1e-5
        assert (theirs - look(ensemble, INPUTS)["output"][0]).abs().max() > 1e-2

    @pytest.mark.parametrize("name", ["post-norm", "plain", "recall"])
    def test_is_opened_by_look_like_the_member(self, name):
        ensemble = drawn(SPECS[name], dtype=torch.float64)
        hooked = to_transformer_lens(ensemble, member=1)
        ours, theirs = look(ensemble, INPUTS, ["**"]), look(hooked, INPUTS, ["**"])
        shared = [site for site in theirs if site in ours and not site.endswith("hook_normalized")]
        assert {"output", "blocks.1.attn.hook_pattern", "blocks.0.hook_resid_mid"} < set(shared)
        for site in shared:
            assert theirs.axes(site) == ours.axes(site), site
            assert torch.allclose(theirs[site][0], ours[site][1], rtol=0, atol=1e-10), site

    @pytest.mark.parametrize("name", ["post-norm", "plain", "recall"])
    @pytest.mark.parametrize("site", ["hook_resid_mid", "hook_resid_pre", "attn.hook_pattern", "hook_mlp_out"])
    def test_is_changed_by_look_like_the_member(self, name, site):
        ensemble = drawn(SPECS[name], dtype=torch.float64)
        change = Intervention(site=f"blocks.0.{site}", rule="mean")
        ours = look(ensemble.select([1]), INPUTS, interventions=[change])["output"]
        theirs = look(to_transformer_lens(ensemble, member=1), INPUTS, interventions=[change])["output"]
        assert torch.allclose(theirs, ours, rtol=0, atol=1e-10)

    def test_gets_a_copy_and_leaves_the_random_state(self):
        ensemble = drawn(PLAIN)
        kept = {name: value.clone() for name, value in ensemble.weights.items()}
        before = torch.get_rng_state()
        hooked = to_transformer_lens(ensemble)
        assert torch.equal(torch.get_rng_state(), before)
        with torch.no_grad():
            for parameter in hooked.parameters():
                parameter.zero_()
        assert all(torch.equal(ensemble.weights[name], value) for name, value in kept.items())

    @pytest.mark.parametrize("name", ["post-norm", "recall"])
    def test_padding_is_as_if_it_were_absent(self, name):
        """Keys that a mask hides count as little as keys that are not there."""
        bridge = to_transformer_lens(drawn(SPECS[name].replace(**({"mask": False} if name == "post-norm" else {}))))
        shown = torch.ones_like(INPUTS)
        shown[:, 4:] = 0
        with torch.no_grad():
            padded, short = bridge(INPUTS, attention_mask=shown), bridge(INPUTS[:, :4])
        assert (padded[:, :4] - short).abs().max() < 1e-5

    def test_the_compatibility_mode_leaves_norms_after_sums_as_they_are(self):
        """Folding them into the layers that follow, as for norms before the layers, would change the logits."""
        bridge = to_transformer_lens(drawn(DECODER.replace(width=15)))  # of 12 outputs: the library tells axes by size
        with torch.no_grad():
            before = bridge(INPUTS).log_softmax(-1)  # the mode centres the logits
            bridge.enable_compatibility_mode()
            assert torch.allclose(bridge(INPUTS).log_softmax(-1), before, atol=1e-5)
