"""Sphinx configuration. Nothing that a page shows comes from another host."""

import sys
from pathlib import Path

import mapveil

sys.path.append(str(Path(__file__).parent / "_ext"))

project = "Mapveil"
author = "The Mapveil team"
release = version = mapveil.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "mathml",
    "notebook",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Mapveil"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["pages.js"]
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Short names such as "length" mean something in several classes: not every mention is a link.
suppress_warnings = ["ref.python"]
