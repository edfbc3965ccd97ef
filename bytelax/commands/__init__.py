"""The subcommands of the command line, one file each; `bytelax.cli` has their table."""
