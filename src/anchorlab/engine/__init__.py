"""Run experiments, in this process or in several."""

from anchorlab.engine.compare import compare
from anchorlab.engine.run import Status, cores, run
from anchorlab.engine.train import train
