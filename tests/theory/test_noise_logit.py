"""The noise's logit against the exact step of W_F, and its learning rates against the steps themselves."""

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.theory.attention_gradient import first_step
from anchorlab.theory.noise_logit import largest_rate, noise_logits, safe_rate, target_logit
from anchorlab.theory.uniform_recall import UniformRecall


def test_the_first_step_is_that_of_the_feedforward_layer():
    law = UniformRecall(50, 40, 0.3)
    assert noise_logits(50, 0.3, rate=2.0, steps=1)[1] == pytest.approx(first_step(law, 2.0).feedforward[-1])


def test_at_the_target_the_noise_has_its_probability():
    odds = np.exp(target_logit(20, 0.3))
    assert odds / (20 + odds) == pytest.approx(0.3)
    assert noise_logits(20, 0.3, rate=1.0, steps=400)[-1] == pytest.approx(target_logit(20, 0.3))


@pytest.mark.parametrize(("share", "passes"), [(0.99, False), (1.01, True)])
def test_the_largest_rate_is_that_which_meets_the_target(share, passes):
    alpha, tokens = 0.3, 20
    start = -target_logit(tokens, alpha)  # the gap of the logit 0
    rate = share * float(largest_rate(np.array([start]), alpha)[0])
    assert (noise_logits(tokens, alpha, rate, 1)[1] > target_logit(tokens, alpha)) == passes


def test_the_safe_rate_is_the_limit_at_the_target():
    for alpha in (0.1, 0.3, 0.45, 0.8):
        assert float(largest_rate(np.array([-1e-5]), alpha)[0]) == pytest.approx(safe_rate(alpha), rel=1e-3)
    assert largest_rate(np.array([-1.0]), 0.8)[0] < safe_rate(0.8)  # above 1/2 it is not the least


def test_an_alpha_that_is_no_probability():
    with pytest.raises(SpecError, match="alpha: 1 is not between"):
        safe_rate(1.0)
