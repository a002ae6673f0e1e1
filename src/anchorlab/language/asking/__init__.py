"""Ask language models questions, local or behind an endpoint, and score their answers."""

from anchorlab.language.asking.accuracy import Accuracy, Results, accuracy, results
from anchorlab.language.asking.ask import Asked, ask
from anchorlab.language.asking.likelihood import SCORINGS, Likelihoods, Scoring, likelihoods
from anchorlab.language.asking.local import LocalSpeaker
from anchorlab.language.asking.prompt_style import Manner
from anchorlab.language.asking.reply import Reply, read_reply
from anchorlab.language.asking.request import Request, Said, Speaker, Turn
