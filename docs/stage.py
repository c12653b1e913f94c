"""Lay out the sources of the documentation site: pages, notebooks as stored, and an API reference from the library.

    python docs/stage.py FOLDER [--plain]

With --plain notebooks come without their outputs, which is enough to check links and names. The folder mirrors the
repository, so relative links need no change. The reference is read from the text of the modules (signatures,
docstrings, docments comments); nothing is imported, so the site needs no package of the library."""
import ast
import io
import json
import re
import shutil
import sys
import tokenize
from pathlib import Path

from diagrams import with_pictures

ROOT = Path(__file__).parents[1]
PAGES = ['CONTRIBUTING.md', 'CHANGELOG.md', 'docs/*.md', 'data/*/README.md', 'data/models/*/README.md',
         'nbs/*.ipynb', 'nbs/papers/*.ipynb', 'nbs/tutorials/*.ipynb', 'nbs/[0-9]_*/*/*.ipynb',
         'nbs/tutorials/images/*', 'docs/images/*', 'docs/images/diagrams/*', 'LICENSE']
FLOORS = ['Ground', 'Models', 'Pairs', 'Judging', 'Measuring', 'Learning', 'Showing', 'Command line']
GUIDE = ['docs/command-line', 'docs/translation', 'docs/judging', 'docs/annotation', 'docs/encoders', 'docs/generation',
         'docs/reproduce', 'docs/install', 'docs/python', 'docs/settings', 'docs/team', 'docs/several-machines',
         'docs/notebooks', 'nbs/GLOSSARY']
CONTRIBUTE = ['CONTRIBUTING', 'docs/how-to-add', 'docs/architecture', 'docs/style', 'docs/decisions', 'CHANGELOG']


def toctree(pages, caption=None, options=''):
    "A list of pages for the sidebar."
    title = f':caption: {caption}\n' if caption else ''
    return f'```{{toctree}}\n{title}{options}\n' + '\n'.join(pages) + '\n```\n'


def comments(text):
    "Comments of a module by their line."
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0]: t.string.lstrip('# ').strip() for t in tokens if t.type == tokenize.COMMENT}


def plain(text):
    "A comment or docstring as Markdown, in which only code in backquotes is marked up."
    parts = re.split(r'(`[^`]*`)', ' '.join(text.split()))
    return ''.join(p if p.startswith('`') else re.sub(r'([<$*_\[\]])', r'\\\1', p) for p in parts)


def describe(name, first, last, notes, taken):
    "The comment of a parameter or field: on its line, or on the lines above it."
    above, line = [], first - 1
    while line in notes and line not in taken:
        above.insert(0, notes[line])
        line -= 1
    own = [notes[n] for n in range(first, last + 1) if n in notes]
    return f':param {name}: {plain(" ".join(above + own))}' if above or own else ''


class Homes(ast.NodeTransformer):
    "Names in annotations with the module that defines them, so that a link leads to the right one of two `Run`."

    def __init__(self, tree, module):
        "Read what a module defines and imports from the library."
        self.homes = {n.name: f'{module}.{n.name}' for n in tree.body if isinstance(n, ast.ClassDef)}
        for n in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)):
            home = '.'.join([*module.split('.')[:-n.level], n.module or '']) if n.level else n.module
            if home.startswith('paranmt_lab'): self.homes |= {a.asname or a.name: f'{home}.{a.name}' for a in n.names}

    def visit_FunctionDef(self, node):
        "Annotations of parameters and result; nested classes and functions are not shown."
        for p in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if p.annotation: p.annotation = self.visit(p.annotation)
        if node.returns: node.returns = self.visit(node.returns)
        return node

    def visit_Name(self, node): return ast.copy_location(ast.Name(self.homes.get(node.id, node.id), node.ctx), node)


def parameters(function, notes):
    "Fields of a function's parameters and of what it returns."
    a = function.args
    found = [p for p in [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg] if p]
    taken = {p.lineno for p in found} | {function.lineno}
    yield from (describe(p.arg, p.lineno, p.end_lineno, notes, taken) for p in found)
    line = getattr(function.returns, 'end_lineno', None)
    if line in notes and (line not in taken or not found): yield f':returns: {plain(notes[line])}'


def block(kind, signature, node, fields, inner=()):
    "A directive for a function, method or class."
    fence = '`' * (6 if kind == 'class' else 4)
    text = plain(ast.get_docstring(node) or '')
    return '\n'.join([f'{fence}{{py:{kind}}} {signature}', '', text, '', *filter(None, fields), '', *inner, fence, ''])


def signature(function, name, owner=None):
    "Name, parameters and result of a function, in one line."
    a = function.args
    first = (a.posonlyargs + a.args)[:1]
    if owner and first and first[0].arg in ('self', 'cls'): (a.posonlyargs or a.args).pop(0)
    returned = f' -> {ast.unparse(function.returns)}' if function.returns else ''
    return f'{name}({ast.unparse(a)}){returned}'


def patched(function):
    "The class that `@patch` gives a function to."
    marks = [ast.unparse(d) for d in function.decorator_list]
    first = (function.args.posonlyargs + function.args.args)[:1]
    return ast.unparse(first[0].annotation) if first and first[0].annotation and 'patch' in ' '.join(marks) else None


def methods(node, notes):
    "Directives of the public methods of a class."
    for f in node.body:
        if isinstance(f, ast.FunctionDef) and not f.name.startswith('_'):
            fields = list(parameters(f, notes))
            yield block('method', signature(f, f.name, node.name), f, fields)


def attributes(node, notes):
    "Fields of a dataclass or a named tuple."
    found = [f for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
    taken = {f.lineno for f in found} | {node.lineno}
    for f in found: yield describe(f.target.id, f.lineno, f.end_lineno, notes, taken)


def class_block(node, notes):
    "Directive of a class: its parameters and its public methods."
    start = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == '__init__'), None)
    fields = [*attributes(node, notes), *(parameters(start, notes) if start else ())]
    given = signature(start, node.name, node.name).split(' -> ')[0] if start else node.name
    return block('class', given, node, fields, methods(node, notes))


def reference(path):
    "The public names of a module as Markdown."
    text = path.read_text(encoding='utf-8')
    tree, notes = ast.parse(text), comments(text)
    module = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
    notebook = re.search(r'File to edit: (?:\.\./)+(nbs/[\w./]+)\.ipynb', text)
    yield f'## {module.removeprefix("paranmt_lab.")}\n\n{plain(ast.get_docstring(tree) or "")}\n'
    if notebook: yield f'Explained in [{Path(notebook[1]).name}](../{notebook[1]}.ipynb).\n'
    yield f'```{{py:currentmodule}} {module}\n```\n'
    homes = Homes(tree, module)
    for node in tree.body:
        owner = patched(node) if isinstance(node, ast.FunctionDef) else None
        homes.visit(node)
        if isinstance(node, ast.ClassDef) and not node.name.startswith('_'): yield class_block(node, notes)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith('_'):
            name, kind = (f'{owner}.{node.name}', 'method') if owner else (node.name, 'function')
            fields = list(parameters(node, notes))
            yield block(kind, signature(node, name, owner), node, fields[1:] if owner else fields)


def api(folder):
    "A page for each package of the library, one for its single modules."
    library = ROOT / 'paranmt_lab'
    groups = {d.name: sorted(d.glob('*.py')) for d in sorted(library.iterdir()) if d.is_dir() and d.name != 'assets'}
    groups = {'modules': sorted(library.glob('*.py')), **groups}
    (folder / 'api').mkdir()
    pages = []
    for name, files in groups.items():
        found = [line for f in files if f.stem not in ('__init__', '_modidx') for line in reference(f)]
        title = f'paranmt_lab.{name}' if name != 'modules' else 'paranmt_lab'
        if found: pages.append(name)
        if found: (folder / f'api/{name}.md').write_text(f'# {title}\n\n' + '\n'.join(found), encoding='utf-8')
    head = '# API reference\n\nSignatures and descriptions of parameters, from the exported modules.\n\n'
    (folder / 'api/index.md').write_text(head + toctree(pages), encoding='utf-8')


def show(notebook, up, plain=False):
    "Leave out the cells that are marked as hidden, as nbdev does, and show diagrams as pictures."
    content = json.loads(notebook.read_text(encoding='utf-8'))
    content['cells'] = [c for c in content['cells'] if not re.match(r'#\| *(hide\b|default_exp)', ''.join(c['source']))]
    for cell in content['cells']:
        if plain and 'outputs' in cell: cell['outputs'] = []
        if cell['cell_type'] == 'markdown':
            cell['source'] = with_pictures(''.join(cell['source']), f'{up}docs/images/diagrams')
    notebook.write_text(json.dumps(content, ensure_ascii=False), encoding='utf-8')


def floor_page(folder, floor, name):
    "Write the page of a floor: the notebooks of each package."
    page = [f'# {floor} {name}\n']
    for package in sorted((ROOT / 'nbs').glob(f'{floor}_*/*/')):
        books = [f'/{f.relative_to(ROOT).with_suffix("")}' for f in sorted(package.glob('*.ipynb'))]
        page += [f'## {package.name}\n', toctree(books)]
    (folder / f'nbs/floor{floor}.md').write_text('\n'.join(page), encoding='utf-8')


def stage(folder, plain=False):
    "Write the sources of the site into an empty folder."
    shutil.rmtree(folder, ignore_errors=True)
    for file in sorted({f for pattern in PAGES for f in ROOT.glob(pattern) if f.is_file()}):
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
        if target.suffix == '.ipynb': show(target, '../' * (len(file.relative_to(ROOT).parts) - 1), plain)
    for floor, name in enumerate(FLOORS):
        floor_page(folder, floor, name)
    papers = [f'/nbs/papers/{f.stem}' for f in sorted((ROOT / 'nbs/papers').glob('*.ipynb'))]
    (folder / 'nbs/papers/index.md').write_text(f'# Tables of the papers\n\n{toctree(papers)}', encoding='utf-8')
    cards = [str(f.relative_to(ROOT).with_suffix('')) for f in sorted((ROOT / 'data').glob('**/README.md'))
             if (folder / f.relative_to(ROOT)).exists()]
    tutorials = [f'nbs/tutorials/{f.stem}' for f in sorted((ROOT / 'nbs/tutorials').glob('*.ipynb'))]
    guide = [page for page in GUIDE if any((folder / f'{page}{end}').exists() for end in ('.md', '.ipynb'))]
    numbers = [f'nbs/floor{n}' for n in range(len(FLOORS))]
    floors = ['The pipeline and its packages <nbs/START>', *numbers, 'nbs/papers/index']
    lists = [('Tutorials', tutorials), ('Guide', guide), ('Notebooks', floors), ('Reference', ['api/index', *cards]),
             ('Contribute', CONTRIBUTE)]
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    trees = '\n'.join(toctree(pages, caption, ':hidden:\n') for caption, pages in lists if pages)
    (folder / 'index.md').write_text(f'{text}\n\n{trees}', encoding='utf-8')
    api(folder)


if __name__ == '__main__': stage(Path(sys.argv[1]), '--plain' in sys.argv)
