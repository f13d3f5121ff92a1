"""Sphinx's settings: Markdown by MyST, the reference by autodoc from the docstrings."""

project = "scaffe"
author = "The scaffe authors"
copyright = "The scaffe authors"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "code"  # docstrings quote names in single backticks
autodoc_typehints = "none"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "scaffe"
nitpicky = False
