"""The named systems: a file each, with all of it, and how it is built from its options."""
