import pytest

from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.training import Evaluation
from tests.small_experiments import experiment


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of three members, measured at steps 0, 2 and 4."""
    one = experiment(duration=4, evaluation=Evaluation(every=2, size=8))
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]
