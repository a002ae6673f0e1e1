"""Retrieval: follow chains, or any graph of steps, through records."""

from anchorlab.tasks.retrieval.minimal import MinimalRetrieval
from anchorlab.tasks.retrieval.mixed import MixedRetrieval
from anchorlab.tasks.retrieval.prompts import Question, RetrievalPrompts
from anchorlab.tasks.retrieval.steps import StepRetrieval
from anchorlab.tasks.retrieval.tokens import TokenRetrieval
