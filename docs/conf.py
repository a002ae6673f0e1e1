"""Sphinx: pages in MyST markdown, the API from docstrings; nothing is fetched from the network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "anchorlab"
author = "The anchorlab maintainers"
copyright = "2026, the anchorlab maintainers"

extensions = ["myst_parser", "sphinx.ext.autodoc", "generated_pages", "plain_docstrings"]
exclude_patterns = ["_build", "gallery", "api/generated/face.md", "api/generated/cli.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "anchorlab"
html_static_path = ["_static"]
html_css_files = ["anchorlab.css"]
html_show_sourcelink = False
