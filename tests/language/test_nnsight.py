"""A decoder's copy in transformers, opened in nnsight: values and a change against our own passes."""

import pytest
import torch

from anchorlab.language import to_hugging_face
from anchorlab.lens import Intervention, look
from tests.language.test_to_hugging_face import FORMS, INPUTS, drawn

nnsight = pytest.importorskip("nnsight", reason="needs nnsight (make test-nnsight)")


@pytest.mark.parametrize("name", FORMS)
def test_it_reads_and_changes_the_same_values(name: str) -> None:
    ensemble = drawn(FORMS[name])
    zero = Intervention(site="blocks.0.hook_mlp_out", rule="zero")
    ours, changed = look(ensemble, INPUTS, ["blocks.1.hook_resid_post"]), look(ensemble, INPUTS, interventions=[zero])
    assert float((ours["output"][1] - changed["output"][1]).abs().max()) > 1
    copied = to_hugging_face(ensemble, member=1)
    traced, blocks = nnsight.NNsight(copied), "transformer.h" if name.startswith("gpt2") else "model.layers"
    with torch.no_grad():
        with traced.trace(INPUTS):
            stream = traced.get(f"{blocks}.1").output.save()
            logits = traced.output.logits.save()
        with traced.trace(INPUTS):
            traced.get(f"{blocks}.0").mlp.output[:] = 0
            without = traced.output.logits.save()
    torch.testing.assert_close(stream, ours["blocks.1.hook_resid_post"][1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits, ours["output"][1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(without, changed["output"][1], atol=1e-5, rtol=1e-5)
