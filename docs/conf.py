"""The documentation site: Sphinx over the pages, notebooks and API reference that docs/stage.py lays out."""
import json
import os
import re
from pathlib import Path

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]

project = 'ParaNMT Lab'
author = copyright = 'The ParaNMT Lab authors'
release = version = re.search(r"__version__ = ['\"](.+?)['\"]", (ROOT / 'paranmt_lab/__init__.py').read_text())[1]

extensions = ['myst_nb', 'sphinx-mathjax-offline']
exclude_patterns = ['**/.ipynb_checkpoints']
templates_path, html_static_path = [], [str(ROOT / 'docs/static')]
html_theme = 'furo'
html_title = f'ParaNMT Lab {release}'
html_css_files = ['site.css']
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
mathjax_path = 'mathjax/tex-svg.js'  # needs no font files, which browsers refuse beside a page from `file://`

nb_execution_mode = 'off'  # Notebooks are shown as they were stored; the tests execute them
suppress_warnings = ['mystnb.unknown_mime_type']  # the live specification beside the picture of a chart
nb_ipywidgets_js = {}  # widgets are not live on the site; nothing is loaded from a network
nb_merge_streams = True
nb_mime_priority_overrides = [('html', 'image/svg+xml', 0)]  # a picture, not the text beside it
myst_enable_extensions = ['dollarmath', 'amsmath', 'fieldlist', 'html_image', 'deflist', 'colon_fence']
myst_heading_anchors = 4
python_maximum_signature_line_length = 88
add_module_names = False
python_use_unqualified_type_names = True


def markdown_of(path):
    "Markdown cells of a notebook, with links to the pages of the site."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    text = '\n\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown')
    page = lambda link: f']({os.path.relpath(path.parent / link[1], ROOT)}.html'
    return re.sub(r'\]\(([\w./-]+)\.ipynb', page, text)


def write_llms(app, error):
    "llms.txt: the first page, and the opening notebook of each package, which lists the others."
    pages = [ROOT / 'nbs/START.ipynb', *sorted((ROOT / 'nbs').glob('[0-9]_*/*/00_*.ipynb'))]
    texts = [*map(markdown_of, pages), '## API\n\n- [API reference](api/index.html)\n']
    (Path(app.outdir) / 'llms.txt').write_text('\n\n'.join(texts), encoding='utf-8')


def setup(app):
    "Write llms.txt; a Mermaid diagram without a picture of docs/diagrams.py is shown as text."
    app.add_lexer('mermaid', TextLexer)
    mathjax = app.extensions['sphinx-mathjax-offline']  # does not say that two processes may read pages
    mathjax.parallel_read_safe = mathjax.parallel_write_safe = True
    app.connect('build-finished', write_llms)
