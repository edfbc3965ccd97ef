"""The command line that all studies share."""

import pathlib

import pytest

import experiments
from experiments.harness import discovery, study

ROOT = pathlib.Path(experiments.__file__).parent


@pytest.mark.parametrize(
    ("given", "words"),
    [([], "--data"), (["--data", "/nowhere/at/all"], "there is no directory /nowhere/at/all")],
)
@pytest.mark.parametrize("name", ["quality/agreement", "speed/vs_peers"])
def test_data_is_missed_at_once(name, given, words, monkeypatch, capsys):
    module = discovery.Study(name, ROOT / name).module()
    monkeypatch.setattr("sys.argv", ["run.py", *given])
    with pytest.raises(SystemExit) as ended:
        module.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and words in told and told.count("\n") == 1


def test_a_study_that_reads_none_needs_none(tmp_path):
    parser = study.parser("Counts.\n\n    python -m it.run", __file__)
    assert parser.parse_args([]).data is None
