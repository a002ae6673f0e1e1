"""Run experiments in this process, in several processes, or on other machines."""

from anchorlab.engine.forecast import Forecast, ForecastCell, forecast
from anchorlab.engine.plan import checked_device
from anchorlab.engine.ray_cluster import Ray
from anchorlab.engine.run import On, run
from anchorlab.engine.slurm import Slurm
from anchorlab.engine.train import compare, train
from anchorlab.progress import Status
