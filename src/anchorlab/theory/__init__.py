"""Provable results about models and training, with numerical checks."""

from anchorlab.theory.attention_gradient import LeadingOrder, first_step, key_query_gradient, leading_order
from anchorlab.theory.compiled.chains import retrieval_circuit
from anchorlab.theory.information_flow import Flow, depth_by_runs, least_depth, lower_bound
from anchorlab.theory.one_layer import OneLayer
from anchorlab.theory.one_step import (
    ENTRIES,
    TABLE_2,
    Moments,
    feedforward_gradient,
    feedforward_moments,
    value_gradient,
    value_moments,
)
from anchorlab.theory.one_step_margins import StepMargins, alpha_hat, attention_spread, draw_margins, feedforward_spread
from anchorlab.theory.power_law import PowerLaw, fit_power_law
from anchorlab.theory.rank_one_flow import (
    Margins,
    a_offset,
    b_limit,
    gradient_flow,
    lemma_a_offset,
    rank_one_coefficient,
)
from anchorlab.theory.uniform_recall import CountMoments, Sequences, UniformRecall
