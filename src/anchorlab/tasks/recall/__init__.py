"""Recall: noisy in-context recall, and the noisy associative memory."""

from anchorlab.tasks.recall.associative import NoisyAssociative
from anchorlab.tasks.recall.noisy import NoisyRecall
