"""Sweeps that TOML files declare, and studies of one's own in a Python file."""

import sys

import pytest

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec, LSTMSpec
from anchorlab.runs import Store
from anchorlab.studies import run_study, sweep_study
from anchorlab.studies.python_file import named_in, studies_in
from anchorlab.studies.toml_file import read_sweep
from anchorlab.tasks import load_task, task
from anchorlab.training import Evaluation, Members
from anchorlab.training.recipe import default_recipe
from tests.studies.study_file import write

SMALL = """
[model]
layers = 1
heads = 1
width = 4
head_width = 4

[recipe]
duration = 2
batch = 10
data.size = 20
evaluation.size = 20
"""
TASK = 'task = "anchor/identity"\n'
GRID = "[grid]\nmodel.layers = [1, 2]\n"


def read(folder, text, name="mine", seeds=None):
    path = folder / f"{name}.toml"
    path.write_text(text)
    return read_sweep(path, seeds)[0].experiments_of("quick")


def test_the_grid_changes_the_defaults_of_the_task(tmp_path):
    text = 'task = "anchor/identity"\nseeds = "0:2"\n[recipe]\nbatch = 20\n'
    cells = read(tmp_path, f"{text}[grid]\nmodel.heads = [1, 2]\nrecipe.learning_rate = [1e-3, 3e-3, 1e-2]\n")
    default = default_recipe(task("anchor/identity")).replace(batch=20, evaluation=Evaluation(every=100))
    wanted = [
        (
            DecoderSpec(heads=heads, head_width=64),
            default.replace(optimiser=default.optimiser.replace(learning_rate=rate)),
        )
        for heads in (1, 2)
        for rate in (1e-3, 3e-3, 1e-2)
    ]
    assert [(cell.model, cell.recipe) for cell in cells] == wanted
    assert all(cell.task == task("anchor/identity") and cell.members == Members(seeds=(0, 1)) for cell in cells)


def test_the_same_cells_as_in_python_also_of_lists_and_other_kinds_of_models(tmp_path):
    text = f"{TASK}seeds = [3, 5]\n{SMALL}[members]\nlearning_rate = [0.1, 0.2]\n{GRID}"
    cells = read(tmp_path, text)
    members = Members(seeds=(3, 5), learning_rate=(0.1, 0.2))
    base = cells[0]
    study = sweep_study("anchor/identity", {"model.layers": (1, 2)}, base.model, base.recipe, members)
    assert [cell.cell for cell in cells] == [cell.cell for cell in study.experiments_of("quick")]
    text = f"{TASK}[grid]\nrecipe.optimiser.betas = [[0.9, 0.99], [0.8, 0.9]]\n"
    assert [cell.recipe.optimiser.betas for cell in read(tmp_path, text)] == [(0.9, 0.99), (0.8, 0.9)]
    (one, two) = read(tmp_path, f'{TASK}[model]\nkind = "lstm"\nwidth = 8\n{GRID}')
    assert (one.model, two.model) == (LSTMSpec(width=8, layers=1), LSTMSpec(width=8, layers=2))


def test_tasks_by_name_with_arguments_in_a_file_and_in_place(tmp_path):
    (one, _) = read(tmp_path, f'[task]\nname = "anchor/identity"\nlength = 12\n{GRID}')
    assert one.task == task("anchor/identity", length=12)
    (tmp_path / "beside.toml").write_text('[operations]\n3 = "+5"\n')
    (one, _) = read(tmp_path, f'task = "beside.toml"\n{GRID}')
    assert one.task == load_task(tmp_path / "beside.toml")
    (one, _) = read(tmp_path, f'[task.operations]\n3 = "+5"\n{GRID}')
    assert one.task.operations == load_task(tmp_path / "beside.toml").operations


def test_seeds_and_names(tmp_path):
    text = f"{TASK}{GRID}"
    assert read(tmp_path, text)[0].members.seeds == (0, 1, 2)
    assert read(tmp_path, text, seeds="7:9")[0].members.seeds == (7, 8)
    assert read_sweep(tmp_path / "mine.toml")[0].name == "sweep/mine"
    (tmp_path / "mine.toml").write_text(f'name = "own/that"\n{text}')
    assert read_sweep(tmp_path / "mine.toml")[0].name == "own/that"


def test_hypotheses_of_a_sweep_read_the_points_that_they_name(tmp_path):
    both = '[[hypothesis]]\nname = "NAME"\nstatement = "S"\nmetric = "loss"\nruns = "layers NAME"\nat_least = 0\n'
    text = f'{TASK}seeds = 2\nmetric = "loss"\n{SMALL}{GRID}'
    (tmp_path / "mine.toml").write_text(text + both.replace("NAME", "1") + both.replace("NAME", "2"))
    study, _ = read_sweep(tmp_path / "mine.toml")
    findings = run_study(study, "quick", Store(tmp_path / "runs"), workers=1)
    means = [row[4] for row in findings.tables[0].rows]  # of the test loss
    assert [one.value for one in findings.claims] == pytest.approx(means)
    assert {one.verdict for one in findings.claims} == {"supported"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GRID, r"mine\.toml: task: field required"),
        (TASK, r"mine\.toml: grid: field required"),
        (f"{TASK}[grid]\n", r"mine\.toml: grid: holds no quantity"),
        (f'task = "anchor/identit"\n{GRID}', r"mine\.toml: task: unknown task 'anchor/identit'; did you mean"),
        (f'task = "nowhere.toml"\n{GRID}', r"mine\.toml: task: there is no file .*nowhere\.toml"),
        (f'task = "../beside.toml"\n{GRID}', r"mine\.toml: task: '\.\./beside\.toml' is not below the folder of this"),
        (f'task = "/beside.toml"\n{GRID}', r"mine\.toml: task: '/beside\.toml' is not below the folder of this file"),
        (f'[task]\nname = "anchor/identity"\nlenth = 3\n{GRID}', r"mine\.toml: task\.lenth: .* did you mean 'length'"),
        (f"[task]\nlength = 3\n{GRID}", r"mine\.toml: task\.name: is missing"),
        (f"{TASK}[grid]\nmodel.layers = 3\n", r"mine\.toml: grid\.model\.layers: 3 is no list"),
        (f"{TASK}[grid]\nmodel.layers = []\n", r"mine\.toml: grid\.model\.layers: holds no values"),
        (f"{TASK}[grid]\nmodel.layers = [1, 1]\n", r"grid\.model\.layers: holds a value twice"),
        (f"{TASK}[grid]\nmodel.layer = [1]\n", r"mine\.toml: grid\.model\.layer: unknown field"),
        (f"{TASK}[grid]\nmodell.layers = [1]\n", r"mine\.toml: grid\.modell\.layers: names nothing"),
        (f"{TASK}[grid]\nmodel.layers = [0]\n", r"mine\.toml: grid\.model\.layers: "),
        (f'{TASK}metric = "los"\n{GRID}', r"mine\.toml: metric: .* did you mean 'loss'"),
        (f'{TASK}seeds = "x"\n{GRID}', r"mine\.toml: seeds: 'x' is not a list of seeds"),
        (f"{TASK}[members]\nseeds = 3\n{GRID}", r"mine\.toml: members\.seeds: is not set here"),
        (f"{TASK}[recipe]\nbatchs = 3\n{GRID}", r"mine\.toml: recipe\.batchs: .*'batch'"),
        (f'study = "anchor/identity"\n{GRID}', r"mine\.toml: varies a study: it is no sweep; run anchorlab study"),
        (f'{TASK}{GRID}[[hypothesis]]\nname = "h"\nsays = "S"\nat_least = 0\n',
         r"mine\.toml: hypothesis\.0\.says: unknown field 'says';"),
        (f'{TASK}{GRID}[[hypothesis]]\nname = "h"\nstatement = "S"\nruns = "x"\nat_least = 0\n',
         r"mine\.toml: hypothesis\.h\.runs: no run is named 'x'; the nearest is 'layers"),
        (f'{TASK}{GRID}[[hypothesis]]\nname = "h"\nstatement = "S"\nruns = "layer 1"\nat_most = 0',
         r"hypothesis\.h\.runs: no run is named 'layer 1'; the nearest is 'layers 1'"),
    ],
)  # fmt: skip
def test_an_entry_that_is_refused_names_the_file_and_the_field(tmp_path, text, message):
    with pytest.raises(SpecError, match=message) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_no_file(tmp_path):
    with pytest.raises(SpecError, match=r"^file: there is no file .*none\.toml; check the path"):
        read_sweep(tmp_path / "none.toml")
    with pytest.raises(SpecError, match=r"study: there is no file .*nowhere\.py"):
        studies_in(tmp_path / "nowhere.py")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Python's path and modules as they were before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("held_"):
            del sys.modules[name]


def test_studies_by_name_in_lists_and_in_tables_and_varied_ones_of_ours(tmp_path):
    more = """
OTHERS = [STUDY.vary(seeds=1)]
TABLE = {'a': STUDY.vary(seeds=3)}
SAME = STUDY
BASE = al.study('anchor/identity')
"""
    found = studies_in(write(tmp_path, "held_all", more))
    assert [one.name for one in found] == ["own/held_all", "own/held_all-seeds-0", "own/held_all-seeds-0-to-2"]
    text = "import anchorlab as al\nSTUDY = al.study('anchor/identity').vary({'model.heads': 3})\n"
    (one,) = studies_in(write(tmp_path, "held_varied", text=text))
    assert one.name == "anchor/identity-heads-3"


def test_a_file_is_imported_once_and_errors_from_elsewhere_stay_as_they_are(tmp_path):
    (tmp_path / "held_beside.py").write_text("DURATION = 7\n")
    path = write(tmp_path, "held_once", "\nfrom held_beside import DURATION\n")
    assert studies_in(path)[0] is studies_in(path)[0]
    with pytest.raises(KeyError), named_in(tmp_path / "held_other.py"):
        raise KeyError("a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = undefined\n", r"held_bad\.py, line 2: NameError: name 'undefined' is not defined; correct"),
        ("x = 1\ndef f(:\n", r"held_bad\.py, line 2: SyntaxError: invalid syntax; correct"),
        ("import anchorlab as al\n\nal.Recipe(batch=0)\n", r"held_bad\.py, line 3: batch: input should be greater"),
        ("import sys\n\n\nsys.exit(0)\n", r"held_bad\.py, line 4: ends the program; put what it does"),
        ("def f():\n    raise KeyError('a')\n\nf()\n", r"held_bad\.py, line 2: KeyError: 'a'"),
        ("x = 1\n", r"held_bad\.py: holds no study; write STUDY"),
        ("import anchorlab as al\nS = al.study('anchor/identity')\n", r"held_bad\.py: holds anchor/identity as it is"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, text, message):
    with pytest.raises(SpecError, match=message) as raised:
        studies_in(write(tmp_path, "held_bad", text=text))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["json", "held.dotted", "torch", "this"])
def test_a_file_with_the_name_of_another_module(tmp_path, name):
    with pytest.raises(SpecError, match=r"is the name of another module; rename the file"):
        studies_in(write(tmp_path, name))
