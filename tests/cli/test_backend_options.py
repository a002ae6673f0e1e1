"""Where a command trains: options that have no use are refused before anything is trained."""

import pytest

from anchorlab.cli.main import main


@pytest.mark.parametrize("command", [["train"], ["study"], ["study", "--dry-run"]])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--address", "10.0.0.1:6379"], "address: only a Ray cluster has one; add --on ray"),
        (["--import", "no_such_module"], "import: no_such_module cannot be imported"),
        (["--on", "ray", "--import", "no_such_module"], "import: no_such_module cannot be imported"),
    ],
)
def test_an_option_without_use_is_refused(command, options, message, tmp_path, capsys):
    store = tmp_path / "runs"
    assert main([command[0], "anchor/identity", *command[1:], *options, "--store", str(store)]) == 2
    assert capsys.readouterr().err.startswith(f"anchorlab: {message}")
    assert not store.exists()
