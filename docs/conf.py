"""Settings of the documentation site. `make docs` builds it; the source directory is the root of the repository, so that
pages may link to README.md, CONTRIBUTING.md and the like."""

import re
from typing import Any

from polydomo import __version__

project = "polydomo"
author = "The polydomo authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
include_patterns = [
    "README.md",
    "examples/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/**/*.md",
]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "misc.highlighting_failure", "toc.multiple_toc_parents"]

html_theme = "furo"
html_title = f"polydomo {version}"
html_copy_source = False
html_theme_options = {"source_repository": "", "source_branch": "main"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"

FENCE = re.compile(r"^(\s*)```(\w*)\s*$")


def fences_to_blocks(_app: Any, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Docstrings show examples as fenced Markdown blocks; autodoc expects reStructuredText."""
    out: list[str] = []
    inside = False
    for line in lines:
        found = FENCE.match(line)
        if found is None:
            out.append(f"   {line}" if inside and line else line)
            continue
        inside = not inside
        out.extend([f"{found[1]}.. code-block:: {found[2] or 'text'}", ""] if inside else [""])
    lines[:] = out


# The navigation. It is added here, not in index.md, so that the page reads well outside the site as well. Pages that no
# line names are picked up by the globs, which skip what was listed before.
TOCTREE = """
```{toctree}
:hidden:
:caption: Use polydomo

/README
cli
libraries
testing
api
```
```{toctree}
:hidden:
:glob:
:caption: Protocols

protocols/*
```
```{toctree}
:hidden:
:glob:
:caption: All pages

*
/examples/README
/CONTRIBUTING
/SECURITY
/CHANGELOG
```
"""


def add_navigation(_app: Any, docname: str, source: list[str]) -> None:
    if docname == root_doc:
        source[0] += TOCTREE


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", fences_to_blocks)
    app.connect("source-read", add_navigation)
