"""Relative links of all Markdown pages and notebooks lead somewhere; nothing is fetched."""

import json
import re
import unicodedata

import pytest

from tests.helpers import pages

_SKIPPED = re.compile(r"^site/|(^|/)\.")  # what was built, environments, caches
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def _written():
    found = [*pages.ROOT.rglob("*.md"), *pages.ROOT.glob("docs/notebooks/*.ipynb")]
    return sorted(path for path in found if not _SKIPPED.search(str(path.relative_to(pages.ROOT))))


def _markdown(path):
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(x["source"]) for x in cells if x["cell_type"] == "markdown")


def anchors(text):
    """The anchors of a page's headings, as the site and code hosts make them."""
    fenced = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in _HEADING.findall(fenced):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        kept = re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKD", plain)).strip()
        found.add(re.sub(r"\s", "-", kept))
    return found


def leads_somewhere(target, path):
    """Whether a link on the page at `path` has a file, and its anchor a heading."""
    file, _, anchor = target.partition("#")
    there = (path.parent / file).resolve() if file else path
    if not there.is_file() or pages.ROOT not in there.parents:
        return False
    if there.parent.name == "reference":  # its headings are docstrings; `make docs` checks them
        return True
    return not anchor or anchor in anchors(_markdown(there))


def broken(path):
    """Links of a page that lead nowhere."""
    targets = _LINK.findall(_CODE.sub("", _markdown(path)))
    relative = [target for target in targets if not re.match(r"[a-z]+:", target)]
    return [target for target in relative if not leads_somewhere(target, path)]


@pytest.mark.parametrize("path", _written(), ids=pages.name)
def test_links(path):
    assert not broken(path)
