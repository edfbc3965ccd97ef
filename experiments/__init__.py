"""Studies that a reader can repeat: a folder each, by subject; `harness` is what they share."""
