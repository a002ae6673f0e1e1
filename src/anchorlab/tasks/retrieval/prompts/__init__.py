"""The retrieval problem in words, for language models and for models that read the words as tokens."""

from anchorlab.tasks.retrieval.prompts.formulation import Question
from anchorlab.tasks.retrieval.prompts.prompts import RetrievalPrompts
