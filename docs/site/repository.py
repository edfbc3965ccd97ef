"""Gives the site the layout of the repository, so that a link is right in both.

The README is the home page, and the pages of `docs/` and of the studies keep their places.
"""

import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[2]
PAGES = (
    "*.md", "docs/*.md", "docs/*.svg", "docs/reference/*.md", "docs/notebooks/*.ipynb",
    "docs/site/*.css", "experiments/**/*.md", "experiments/**/*.svg",
)  # fmt: skip


@event_priority(100)  # before the plugins that render notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of the docs directory by those of the repository; keeps the theme's."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    found = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    pages = [
        File(
            str(path.relative_to(ROOT)),
            src_dir=str(ROOT),
            dest_dir=config.site_dir,
            use_directory_urls=config.use_directory_urls,
        )
        for path in found
    ]
    return Files([*theme, *pages])


def on_post_build(config: MkDocsConfig) -> None:
    """Fails if the home page names a style sheet or a script that the site does not have."""
    site = pathlib.Path(config.site_dir)
    names = re.findall(r'(?:href|src)="([^":]*\.(?:css|js))"', (site / "index.html").read_text())
    for name in names:
        if not (site / name).exists():
            raise PluginError(f"the site lacks {name}")
