"""Draw the Mermaid diagrams of the notebooks as pictures for the site, which shows them without a network.

    python docs/diagrams.py          # draws those that have changed; needs `dot` (Debian: graphviz)

JupyterLab and GitHub draw Mermaid by themselves. The site shows `docs/images/diagrams/NOTEBOOK.svg` instead, whose
first line holds a hash of the source that it was drawn from. Flow charts from left to right and state diagrams can be
drawn; another kind is an error."""
import hashlib
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / 'docs/images/diagrams'
FENCE = re.compile(r'^```mermaid\n(.*?)^```', re.S | re.M)
NODE = re.compile(r'\s*(\w+|\[\*\])(?:(\[\(|\[)"(.*?)"(?:\)\]|\]))?')
ARROW = re.compile(r'\s*(?:--\s+(.+?)\s+-->|(-\.)\s+(.+?)\s+\.->|(-->))')
STYLE = '''bgcolor="white" fontname="sans-serif" nodesep=0.25 ranksep=0.45 pad=0.15
  node [shape=box style="rounded,filled" fillcolor="#e8f1f8" color="#2878b5" fontcolor="#173f5f" fontname="sans-serif"
        fontsize=12 height=0.35 margin="0.14,0.07"]
  edge [color="#555555" fontcolor="#333333" fontname="sans-serif" fontsize=10 arrowsize=0.7]'''


def quoted(text):
    "A text of Mermaid as a label of dot."
    lines = re.split(r'<br\s*/?>', text)
    return '"' + '\\n'.join(line.replace('\\', '\\\\').replace('"', '\\"') for line in lines) + '"'


def flow_line(line):
    "Nodes of a line of a flow chart, and its arrows: chains such as `a --> b -- twice --> c`."
    nodes, arrows, at, before, arrow = [], [], 0, None, None
    while found := NODE.match(line, at):
        name, shape, label = found.groups()
        if label is not None: nodes.append(f'{name} [label={quoted(label)}{" shape=cylinder" if "(" in shape else ""}]')
        if before: arrows.append(f'{before} -> {name} [{arrow}]')
        before, at = name, found.end()
        if not (found := ARROW.match(line, at)): break
        text, dotted, dotted_text, _ = found.groups()
        arrow = f'label={quoted(text or dotted_text or "")}{" style=dashed" if dotted else ""}'
        at = found.end()
    if line[at:].strip(): raise ValueError(f'{line.strip()!r}: cannot read {line[at:]!r}')
    return nodes + arrows


def state_line(line):
    "A transition of a state diagram: `[*]` is where it begins."
    found = re.fullmatch(r'\s*(\w+|\[\*\]) --> (\w+)(?:: (.+))?', line)
    if not found: raise ValueError(f'{line.strip()!r} is no transition')
    first, second, text = found.groups()
    begin = ['begin [shape=circle style=filled fillcolor="#555555" color="#555555" label="" width=0.15 height=0.15]']
    source = 'begin' if first == '[*]' else first
    return begin * (first == '[*]') + [f'{source} -> {second} [label={quoted(text or "")}]']


def as_dot(source):
    "A diagram of Mermaid in the language of dot."
    kind, *lines = source.strip().splitlines()
    readers = {'flowchart LR': flow_line, 'stateDiagram-v2': state_line}
    if kind not in readers: raise ValueError(f'{kind!r}, expected one of {", ".join(readers)}')
    merged = {}
    for row in (row for line in lines if line.strip() for row in readers[kind](line)):
        ends, _, label = row.partition(' [label=')
        key = ends if ' -> ' in ends else row
        merged[key] = merged[key] + [label] if key in merged else [label]
    rows = [one_arrow(key, labels) if ' -> ' in key else key for key, labels in merged.items()]
    return '\n  '.join([f'digraph {{\n  rankdir=LR {STYLE}', *rows]) + '\n}\n'


def one_arrow(ends, labels):
    "Arrows between the same two ends as one, with a label a line."
    texts = [re.match(r'"(.*?)"', label)[1] for label in labels]
    joined = '\\n'.join(text for text in texts if text)
    dashed = ' style=dashed' if 'dashed' in labels[0] else ''
    return f'{ends} [label="{joined}"{dashed}]'


def digest(source): return hashlib.sha256(source.encode()).hexdigest()[:16]


def diagrams():
    "Name of the picture and source of each diagram of a notebook."
    paths = (path for path in sorted((ROOT / 'nbs').rglob('*.ipynb')) if '.ipynb_checkpoints' not in path.parts)
    for path in paths:
        cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        text = '\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown')
        for number, source in enumerate(FENCE.findall(text)):
            name = path.stem.lstrip('0123456789_')
            if path.parents[1].parent.name == 'nbs': name = f'{path.parent.name}.{name}'  # of a package
            yield name + (f'-{number}' if number else ''), source


def picture_of(source):
    "The picture that was drawn from a source; None where there is none, or one of an older source."
    mark = f'<!-- {digest(source)} -->'
    drawn = (path for path in sorted(PICTURES.glob('*.svg')) if path.read_text(encoding='utf-8').startswith(mark))
    return next(drawn, None)


def draw():
    "Draw the diagrams without a picture, and remove pictures without a diagram."
    PICTURES.mkdir(parents=True, exist_ok=True)
    found = dict(diagrams())
    for path in PICTURES.glob('*.svg'):
        if path.stem not in found: path.unlink()
    for name, source in found.items():
        if picture_of(source): continue
        text = subprocess.run(['dot', '-Tsvg'], input=as_dot(source), capture_output=True, text=True, check=True).stdout
        svg = re.sub(r'<!--.*?-->\n?|<title>.*?</title>\n?', '', text[text.index('<svg'):], flags=re.S)
        (PICTURES / f'{name}.svg').write_text(f'<!-- {digest(source)} -->\n{svg}', encoding='utf-8')


def with_pictures(text, folder):
    "Markdown of a notebook with pictures in place of its diagrams; `folder` leads from its page to the pictures."
    def replaced(fence):
        path = picture_of(fence[1])
        labels = re.findall(r'"(.*?)"', fence[1]) or re.findall(r'\w{3,}', fence[1].partition('\n')[2])
        texts = [re.sub(r'<br\s*/?>|[^\w\s,.:+=-]', ' ', label) for label in labels]
        words = ', '.join(dict.fromkeys(' '.join(text.split()) for text in texts))
        return f'![{words}]({folder}/{path.name})' if path else fence[0]
    return FENCE.sub(replaced, text)


if __name__ == '__main__': draw()
