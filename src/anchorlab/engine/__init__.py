"""Run experiments, in this process or in several."""

from anchorlab.engine.compare import compare
from anchorlab.engine.forecast import Forecast, ForecastCell, forecast
from anchorlab.engine.run import check_place, cores, run
from anchorlab.engine.train import train
from anchorlab.progress import Status
