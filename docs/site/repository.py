"""Gives the site the layout of the repository, so that a link is right in both.

The README is the home page, and the pages of `docs/` and of the studies keep their places.
"""

import pathlib

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[2]
PAGES = (
    "*.md", "docs/*.md", "docs/*.svg", "docs/reference/*.md", "docs/notebooks/*.ipynb",
    "docs/site/*.css", "experiments/**/*.md", "experiments/**/*.svg",
)  # fmt: skip


@event_priority(100)  # before the plugins that render notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of the docs directory by those of the repository."""
    found = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    return Files(
        File(
            str(path.relative_to(ROOT)),
            src_dir=str(ROOT),
            dest_dir=config.site_dir,
            use_directory_urls=config.use_directory_urls,
        )
        for path in found
    )
