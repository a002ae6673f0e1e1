"""A short notebook, executed by a real kernel: what a reader sees below each cell."""

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.documents import ROOT


def execute(notebook: Any, folder: Path, workplace: Path, allow_errors: bool = False) -> None:
    """Run every cell in a kernel whose working directory is `workplace`; nothing else is kept outside `folder`."""
    from jupyter_client import AsyncKernelManager

    with pytest.MonkeyPatch.context() as changed:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "ANCHORLAB_STORE"):
            changed.setenv(name, str(folder / name.lower()))
        changed.setenv("OMP_NUM_THREADS", "2")  # so that effects show their progress from threads
        manager = AsyncKernelManager(transport="ipc", ip=str(folder / "k"))  # no port is opened
        client = nbclient.NotebookClient(notebook, km=manager, timeout=600, allow_errors=allow_errors)
        client.execute(cwd=str(workplace))


CELLS = {
    "setting": """
import anchorlab as al
import anchorlab.progress
anchorlab.progress.FIRST = 0.0  # shows the progress of what takes less than two seconds, too
from anchorlab.lens import find_circuit
from anchorlab.studies import study
model = al.DecoderSpec(layers=2, heads=2, width=16)
recipe = al.Recipe(data=al.FixedSample(size=100), duration=60, evaluation={"every": 20, "size": 20})
""",
    "training": "run = al.train('anchor/identity', model, recipe, seeds=2, workers=1)",
    "silent": "al.train('anchor/identity', model, recipe, seeds=1, workers=1, progress=False).run.finished",
    "task": "task = al.task('anchor/identity'); task",
    "proof": "task.proof()",
    "batch": "batch = task.sample('test', 20, seed=0); batch",
    "run": "run",
    "ensemble": "run.ensemble()",
    "curve": "run.plot('accuracy')",
    "record": "record = al.look(run, batch, ['blocks.*.attn.hook_pattern']); record",
    "pattern": "record.plot('blocks.0.attn.hook_pattern', member=1)",
    "effects": """
zero = al.Intervention(site="blocks.*.attn.hook_z", rule="zero")
swept = al.effects(run, batch, batch.targets, zero, over="head")
""",
    "heads": "swept.plot('loss' if 'loss' in swept.metrics else 'logit')",
    "circuit": "circuit = find_circuit(run, sequences=8, threshold=100.0, progress=False); circuit",
    "paths": "circuit.plot()",
    "findings": "al.run_study(study('retrieval/information-flow'), 'smoke', progress=False)",
    "after pyplot": "import matplotlib.pyplot; run.plot('loss')",
    "mistake": "run.plot('acuracy')",
}
CARDS = ("task", "proof", "batch", "run", "ensemble", "record", "circuit", "findings")
DRAWINGS = ("curve", "pattern", "heads", "paths", "after pyplot")
PROGRESS = {"training": "anchor/identity: 100% in ", "effects": "effects: 100% in "}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of every cell; nothing is kept outside a folder of their own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text.strip()) for text in CELLS.values()])
    execute(notebook, tmp_path_factory.mktemp("nb"), ROOT, allow_errors=True)
    return {name: list(cell.outputs) for name, cell in zip(CELLS, notebook.cells, strict=True)}


def test_nothing_is_said_beside_results(outputs):
    for name, each in outputs.items():
        kinds = [one.output_type for one in each]
        wanted = {"mistake": ["error"], "setting": []}.get(
            name, ["display_data"] if name in PROGRESS else ["execute_result"]
        )
        assert kinds == wanted, (name, each)
    assert outputs["silent"][0].data["text/plain"] == "True"


@pytest.mark.parametrize("name", PROGRESS)
def test_progress_is_one_line_that_ends_with_the_time_it_took(outputs, name):
    (shown,) = outputs[name]
    assert shown.data["text/plain"].startswith(PROGRESS[name])
    assert "<progress" in shown.data["text/html"]


def test_progress_of_training_tells_the_accuracy(outputs):
    assert "accuracy train" in outputs["training"][0].data["text/plain"]


@pytest.mark.parametrize("name", CARDS)
def test_values_are_cards(outputs, name):
    (shown,) = outputs[name]
    assert shown.data["text/html"].startswith('<div class="anchorlab-card">')
    assert len(shown.data["text/plain"]) < 1500


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_images(outputs, name):
    (shown,) = outputs[name]
    assert len(shown.data["image/png"]) > 10_000
    assert "text/html" not in shown.data


def test_a_mistake_ends_in_one_line(outputs):
    (error,) = outputs["mistake"]
    assert (error.ename, error.evalue) == ("SpecError", "metric: unknown metric 'acuracy'; did you mean 'accuracy'?")
