"""Commands that are refused."""

from bytelax import cli


def refused(capsys, *arguments):
    """The one line of a command that ends with exit code 2 and prints nothing else."""
    assert cli.main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("bytelax: ")
    return line
