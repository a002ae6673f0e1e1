"""Sphinx: pages in MyST markdown, the API from docstrings; nothing is fetched from the network."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "anchorlab"
author = "The anchorlab maintainers"
copyright = "2026, the anchorlab maintainers"

site = os.environ.get("ANCHORLAB_DOCS", "")  # the address of the published pages, with a slash at its end

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinxext.opengraph",
    "generated_pages",
    "plain_docstrings",
    "social_picture",
]
exclude_patterns = ["_build", "gallery", "api/generated/face.md", "api/generated/cli.md", "api/generated/claims.md"]
myst_enable_extensions = ["colon_fence", "deflist", "substitution"]
nb_execution_mode = "off"  # notebooks are shown as they were run; `make notebooks` runs them
myst_heading_anchors = 3

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "anchorlab"
html_static_path = ["_static"]
html_css_files = ["anchorlab.css"]
html_js_files = ["claims.js"]
html_show_sourcelink = False
html_baseurl = ogp_site_url = site  # for search engines, and for what a link to a page shows
ogp_image, ogp_image_alt = "_static/social.png", "anchorlab, and the attention of a model with two layers"
ogp_custom_meta_tags = ('<meta name="twitter:card" content="summary_large_image" />',)

# The public repository of this copy of the docs, as owner/name: with it, notebooks open in Colab.
repository = os.environ.get("ANCHORLAB_REPOSITORY", "")
_source = f"https://colab.research.google.com/github/{repository}/blob/main/docs/tutorial/compose_or_memorise.ipynb"
myst_substitutions = {
    "colab": f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({_source})\n\n"
    f"On Colab, install first: `%pip install git+https://github.com/{repository}`."
    if repository
    else "On Colab: upload the notebook and a wheel of this project (`pip wheel --no-deps .` makes one), and\n"
    "`%pip install` the wheel."
}
