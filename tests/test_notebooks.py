"""Readers of the notebooks rely on this: links lead somewhere, pictures are stored, the first page lists all."""
import ast
import io
import json
import re
import tokenize
from pathlib import Path
from urllib.parse import unquote

import pytest

from pictures import LIVE, slim_output

ROOT = Path(__file__).parents[1]
NBS = ROOT / 'nbs'
NOTEBOOKS = [path for path in sorted(NBS.rglob('*.ipynb')) if '.ipynb_checkpoints' not in path.parts]
PAGES = [*sorted(ROOT.glob('*.md')), *sorted((ROOT / 'docs').glob('*.md')),
         *sorted((ROOT / 'data/models').rglob('*.md')), *sorted((ROOT / 'data/sample').rglob('*.md'))]
DRAWN = {'image/svg+xml', 'image/png'}


def cells(path, kind):
    "Id, text and outputs of the cells of a notebook."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        if cell['cell_type'] == kind: yield cell['id'], ''.join(cell['source']), cell.get('outputs', [])


def prose(path):
    "Markdown of a page or a notebook without its code."
    if path.suffix == '.md': text = path.read_text(encoding='utf-8')
    else: text = '\n\n'.join(text for _, text, _ in cells(path, 'markdown'))
    return re.sub(r'^```.*?^```|`[^`\n]*`', '', text, flags=re.S | re.M)


def anchors(path):
    "Anchors of a page's headings, as JupyterLab and as GitHub write them."
    for heading in re.findall(r'^#+ +(.+?) *$', prose(path), re.M):
        yield heading.replace(' ', '-')
        yield re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')


def broken_links(path):
    "Relative links of a page that lead nowhere."
    for link in re.findall(r'\]\(([^)\s]+)[^)]*\)|(?:src|href)="([^"]+)"', prose(path)):
        link = link[0] or link[1]
        if re.match(r'[a-z]+:', link): continue
        file, _, anchor = link.partition('#')
        target = path.parent / unquote(file) if file else path
        if not target.exists() or anchor and unquote(anchor) not in anchors(target): yield link


@pytest.mark.parametrize('path', [*NOTEBOOKS, *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert list(broken_links(path)) == []


def test_a_broken_link_is_seen(tmp_path):
    page = tmp_path / 'page.md'
    page.write_text('# A heading, here\n[a](page.md) [b](nowhere.md) [c](#a-heading-here) [d](#A-heading,-here) '
                    '[e](page.md#none) [f](https://x.org)')
    assert list(broken_links(page)) == ['nowhere.md', 'page.md#none']


def chart_functions():
    "Functions of the charts notebooks that return a chart."
    trees = [ast.parse(path.read_text(encoding='utf-8')) for path in (ROOT / 'paranmt_lab/charts').glob('*.py')]
    functions = [f for tree in trees for f in tree.body if isinstance(f, ast.FunctionDef) and f.returns]
    found = {f.name for f in functions if 'Chart' in ast.unparse(f.returns)}
    assert 'embedding_map' in found
    return found


def is_chart(value, names):
    "Whether an expression is a chart, given the names that are charts or make them."
    if isinstance(value, ast.IfExp): return is_chart(value.body, names) or is_chart(value.orelse, names)
    if isinstance(value, ast.BinOp): return is_chart(value.left, names) or is_chart(value.right, names)
    if isinstance(value, ast.Lambda): return is_chart(value.body, names)
    if isinstance(value, ast.Name): return value.id in names
    if not isinstance(value, ast.Call): return False
    if isinstance(value.func, ast.Name): return value.func.id in names
    if not isinstance(value.func, ast.Attribute) or re.match('to_|save$', value.func.attr): return False
    if ast.unparse(value.func.value) == 'alt': return bool(re.fullmatch(r'\w*Chart|layer|[hv]?concat', value.func.attr))
    return is_chart(value.func.value, names)


def learn(statements, names):
    "Follow assignments and definitions: keep the names that are charts or make them."
    for node in statements:
        if isinstance(node, ast.Assign):
            targets = {t.id for t in node.targets if isinstance(t, ast.Name)}
            names = names | targets if is_chart(node.value, names) else names - targets
        elif isinstance(node, ast.FunctionDef):
            inside = learn(node.body, names)
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            if any(is_chart(value, inside) for value in returned): names = names | {node.name}
        else:
            names = learn([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)], names)
    return names


def pictures(path):
    "Id and outputs of the cells that show a chart."
    names = chart_functions()
    for cell, text, outputs in cells(path, 'code'):
        if re.search(r'^#\|\s*eval:\s*false', text, re.M): continue
        tree = ast.parse(re.sub(r'^\s*[%!].*$', '', text, flags=re.M))
        names = learn(tree.body, names)
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        shown = [call.args[0] for call in calls if ast.unparse(call.func) == 'display' and call.args]
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr) and not text.rstrip().endswith(';'): shown.append(last.value)
        if any(is_chart(value, names) for value in shown): yield cell, outputs


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: f'{p.parent.name}/{p.stem}')
def test_a_cell_that_draws_stores_its_picture(path):
    bare = [cell for cell, outputs in pictures(path) if not any(DRAWN & set(o.get('data', {})) for o in outputs)]
    assert bare == [], f'run these cells and store what they draw: {bare}'


def test_pictures_are_found():
    assert sum(len(list(pictures(path))) for path in NBS.glob('6_showing/charts/*.ipynb')) > 20


def test_a_picture_loses_what_no_reader_sees():
    svg = '<svg class="m"><g aria-label="a > b"></g><path d="M1.2345,2" opacity="1"/><text>0.0012</text></svg>'
    data = {'image/svg+xml': [svg], LIVE: {}, 'text/plain': ['chart']}
    slim_output(data)
    assert data == {'image/svg+xml': ['<svg><path d="M1.23,2"/><text>0.0012</text></svg>'], 'text/plain': ['chart']}


SETTING = r"os\.environ\['(PARANMT_\w+)'\] *=(?!=)"


def settings_left(path):
    "Settings that a notebook puts into the environment and its last code cell does not take out again."
    texts = [text for _, text, _ in cells(path, 'code')]
    examples = [text for text in texts if not re.search(r'^#\| *export', text, re.M)]
    changed = {name for text in examples for name in re.findall(SETTING, text)}
    last = texts[-1] if texts and 'os.environ.pop(' in texts[-1] else ''
    return {name for name in changed if f"'{name}'" not in last}


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: f'{p.parent.name}/{p.stem}')
def test_no_setting_outlives_a_notebook(path):
    """A process of `nbdev_test` runs one notebook after the other: the next would write into its database."""
    assert settings_left(path) == set(), 'take them out by os.environ.pop in the last code cell'


@pytest.mark.parametrize('texts, left', [
    (["os.environ['PARANMT_PORT'] = '80'", "os.environ.pop('PARANMT_PORT', None);"], set()),
    (["script = '''os.environ['PARANMT_PORT'] = '80' '''", "os.environ.pop('PARANMT_PORT', None)", 'visit(script)'],
     {'PARANMT_PORT'}),
    (["assert os.environ['PARANMT_PORT'] == '80'"], set())])
def test_a_setting_that_outlives_a_notebook_is_seen(tmp_path, texts, left):
    code = [dict(cell_type='code', id=str(n), source=[text]) for n, text in enumerate(texts)]
    (tmp_path / 'a.ipynb').write_text(json.dumps(dict(cells=code)))
    assert settings_left(tmp_path / 'a.ipynb') == left


def comments(text):
    "Lines that have a comment."
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def functions(tree):
    "Name, node and parameters of the public functions and methods of a module, without `self` and the like."
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    nodes = [(None, tree), *((node.name, node) for node in classes)]
    for owner, node in nodes:
        for function in (f for f in node.body if isinstance(f, ast.FunctionDef)):
            if any(name.startswith('_') and name != '__init__' for name in (owner or '', function.name)): continue
            a = function.args
            parameters = [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]
            is_method = owner or any('patch' in ast.unparse(d) for d in function.decorator_list)
            yield function.name, [p for p in parameters if p][1 if is_method else 0:]


def undescribed(text):
    "Parameters of a module without a comment on their line or above it, or a help of Typer."
    described = comments(text)
    for name, parameters in functions(ast.parse(text)):
        own = [p.lineno for p in parameters]
        for p in parameters:
            above = p.lineno - 1 in described and p.lineno - 1 not in own
            is_described = {p.lineno, p.end_lineno} & described or above or 'help=' in ast.unparse(p)
            if not is_described: yield f'{name}({p.arg})'


@pytest.mark.parametrize('path', sorted((ROOT / 'paranmt_lab').rglob('*.py')),
                         ids=lambda p: f'{p.parent.name}/{p.stem}')
def test_every_parameter_is_described(path):
    assert list(undescribed(path.read_text(encoding='utf-8'))) == []


def test_an_undescribed_parameter_is_seen():
    text = 'def f(\n    a, # A number\n    b,\n): pass\nclass C:\n    def g(self, c): pass\n    def _h(self, d): pass\n'
    assert list(undescribed(text)) == ['f(b)', 'g(c)']


def head(path):
    "Title and summary of a notebook."
    lines = next(text for _, text, _ in cells(path, 'markdown')).splitlines()
    return lines[0].removeprefix('# '), next(line for line in lines if line.startswith('> '))[2:]


def entries(files, folder):
    "A line for each notebook: title and summary, with a link from a folder."
    return [f'- [{head(path)[0]}]({path.relative_to(folder)}): {head(path)[1]}' for path in files]


SECTION = re.compile(r'^- (`([\w-]+)(?:\.\d+)?`.*?): \[(.+?)\]\((.+?)\)$', re.M)  # - `KEY` 4: what: [notebook](file)
PAPERS = 'paranmt', 'paranmt-arxiv', 'paranmt-preprint', 'backtranslation', 'opusparcus'


def sections():
    "Sections of the papers, from the opening notebooks, with the notebooks that implement them."
    lines = []
    for path in OPENINGS:
        found = [match for _, text, _ in cells(path, 'markdown') for match in SECTION.findall(text)]
        lines += [(PAPERS.index(key), f'- {what}: [{title}]({path.parent.relative_to(NBS)}/{file})')
                  for what, key, title, file in found]
    return [line for _, line in sorted(lines)]


def with_lists(path):
    "The first page or an opening notebook, its lists of notebooks as they are now."
    notebook = json.loads(path.read_text(encoding='utf-8'))
    lists = {'## Tutorials': lambda: entries(sorted(NBS.glob('tutorials/*.ipynb')), NBS),
             '## Experiments': lambda: entries(sorted(NBS.glob('papers/*.ipynb')), NBS), '## Sections': sections,
             '## Notebooks': lambda: entries(sorted(set(path.parent.glob('*.ipynb')) - {path}), path.parent)}
    lists |= {f'## {n} ': lambda n=n: entries([o for o in OPENINGS if o.parts[-3][0] == str(n)], NBS) for n in range(8)}
    for cell in notebook['cells'][1:]:
        heading = ''.join(cell['source']).split('\n')[0]
        for start, lines in lists.items():
            if heading.startswith(start): cell['source'] = '\n'.join([heading, '', *lines()]).splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + '\n'


START = NBS / 'START.ipynb'
OPENINGS = sorted(NBS.glob('[0-9]_*/*/00_*.ipynb'), key=lambda path: path.parts[-3:])


def test_every_package_opens_with_a_notebook():
    assert [path.parent for path in OPENINGS] == sorted(path for path in NBS.glob('[0-9]_*/*') if path.is_dir())


@pytest.mark.parametrize('path', [START, *OPENINGS], ids=lambda p: p.stem)
def test_the_first_page_and_the_openings_list_every_notebook(path):
    page = path.read_text(encoding='utf-8')
    assert page == with_lists(path), 'to renew the lists of notebooks: python tests/test_notebooks.py'


def test_every_paper_has_sections():
    assert {key for path in OPENINGS for _, text, _ in cells(path, 'markdown') for _, key, _, _ in
            SECTION.findall(text)} >= {'paranmt', 'paranmt-arxiv', 'backtranslation', 'opusparcus'}


# Sections of the papers, by the keys of docs/notebooks.md.
NUMBERS = {'paranmt': '1 2 3 3.1 3.2 4 5 5.1 5.2 5.3 5.4 5.5 5.6 6 7 8',
           'paranmt-arxiv': '1 2 3 3.1 3.2 4 5 5.1 5.2 5.3 5.4 5.5 5.6 6 7 A.1 A.2 A.2.1',
           'paranmt-preprint': '1 2 3 4 4.1 4.2 4.2.1 5 6 6.1 6.1.1 6.1.2 6.2 6.3 6.4 6.5 6.5.1 6.6 7 8',
           'backtranslation': '1 2 3 4 4.1 4.2 5 5.1 5.2 5.3 5.4 5.5 5.6 5.6.1 5.7 5.8 6',
           'opusparcus': '1 2 3 3.1 3.2 4 4.1 4.2 4.2.1 4.3 4.4 5'}
CITED = re.compile(r'`(paranmt|paranmt-arxiv|paranmt-preprint|backtranslation|opusparcus)`,? '
                   r'(?:\(?sections? )?((?:\d|A\.\d)(?:\.\d)*\b(?:(?:, | and | to )\d(?:\.\d)*\b)*)')


def cited_sections(text):
    "Key and section of each citation in a text."
    return [(key, number) for key, numbers in CITED.findall(text) for number in re.split(r', | and | to ', numbers)]


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: f'{p.parent.name}/{p.stem}')
def test_cited_sections_exist(path):
    text = '\n'.join(text for kind in ('markdown', 'code') for _, text, _ in cells(path, kind))
    assert [(key, n) for key, n in cited_sections(text) if n not in NUMBERS[key].split()] == []


def test_a_section_that_does_not_exist_is_seen():
    text = '`paranmt` section 4.3, (`backtranslation`, sections 5.5 to 5.9), `opusparcus` 4.1: words'
    assert cited_sections(text) == [('paranmt', '4.3'), ('backtranslation', '5.5'), ('backtranslation', '5.9'),
                                    ('opusparcus', '4.1')]


if __name__ == '__main__':
    for path in [START, *OPENINGS]: path.write_text(with_lists(path), encoding='utf-8')
