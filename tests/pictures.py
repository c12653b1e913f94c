"""Stored outputs of the notebooks without weight that no reader sees.

    python tests/pictures.py    # rewrite the notebooks whose outputs weigh too much

A chart is stored once, as SVG: JupyterLab draws the live chart again when the cell runs. The SVG keeps no labels for
screen readers (a picture in a page cannot be read by parts), no empty groups, and two digits of a coordinate."""
import json
import re
from pathlib import Path

NBS = Path(__file__).parents[1] / 'nbs'
LIVE = 'application/vnd.vegalite.v5+json'
UNSEEN = re.compile(r' (?:aria-[a-z]+|role|class|pointer-events)="[^"]*"| opacity="1"| font-weight="normal"')
EMPTY = re.compile(r'<path(?: (?:d="(?:M0,0h0v0h0Z)?"|display="none"))+(?:/>|></path>)|<g>\s*</g>|<g/>')


def round_tag(match):
    "A tag of SVG with two digits of each number; text between tags is not touched."
    return re.sub(r'(\.\d\d)\d+(?![\w.])', r'\1', UNSEEN.sub('', match[0]))


def slim_svg(text):
    "The same picture in fewer characters."
    text = re.sub(r'<(?:[^<>"]|"[^"]*")*>', round_tag, text)
    while (shorter := EMPTY.sub('', text)) != text: text = shorter
    return text


def slim_output(data):
    "Take out of an output, by MIME type, what no reader sees."
    if 'image/svg+xml' in data:
        data.pop(LIVE, None)
        data['image/svg+xml'] = slim_svg(''.join(data['image/svg+xml'])).splitlines(keepends=True)
    if 'text/html' in data:
        page = re.sub(r'<style scoped>.*?</style>\n?', '', ''.join(data['text/html']), flags=re.S)
        data['text/html'] = page.splitlines(keepends=True)


def slim(path):
    "Rewrite a notebook whose outputs weigh too much."
    text = path.read_text(encoding='utf-8')
    notebook = json.loads(text)
    for cell in notebook['cells']:
        for output in cell.get('outputs', []): slim_output(output.get('data', {}))
    slimmer = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + '\n'
    if slimmer != text: path.write_text(slimmer, encoding='utf-8')


if __name__ == '__main__':
    for path in NBS.rglob('*.ipynb'):
        if '.ipynb_checkpoints' not in path.parts: slim(path)
