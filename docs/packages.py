"""Draw the imports between packages at two commits as one picture, nbs/tutorials/images/packages.svg.

    python docs/packages.py 0458e21 HEAD     # needs `dot` (Debian: graphviz) and grimp, of the extra `dev`

A room is a package or a single module of the library, an arrow an import of any of its modules."""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / 'nbs/tutorials/images/packages.svg'
WIDTH = 1400  # pixels
COLOURS = '#dfe7ee #d3e6f5 #d9efe2 #fbe9d0 #f3dbe6 #e4dff3 #fdf3c4 #e6e6e6'.split()  # of the floors
STYLE = '''rankdir=BT; bgcolor="white"; nodesep=.12; ranksep=.5;
node [shape=box style="rounded,filled" fillcolor="#e8f1f8" color="#2878b5" fontname="sans-serif" fontsize=11 height=.25
      margin="0.08,0.03"];
edge [color="#1f3b5545" arrowsize=.4 penwidth=.7 dir=back];'''
READ = '''
import grimp, json
graph = grimp.build_graph('paranmt_lab', cache_dir=None)
rooms = {m: m.split('.')[1] for m in graph.modules if m.count('.') and m.split('.')[1] not in ('_modidx', '__main__')}
arrows = {(rooms[m], rooms[n]) for m in rooms for n in graph.find_modules_directly_imported_by(m) if n in rooms}
print(json.dumps([sorted(set(rooms.values())), sorted((a, b) for a, b in arrows if a != b)]))'''


def run(*command, **options):
    "What a command prints."
    return subprocess.run(command, capture_output=True, check=True, **options).stdout


def house(commit):
    "Rooms, arrows, and the packages of each floor at a commit."
    with tempfile.TemporaryDirectory() as folder:
        archive = run('git', 'archive', commit, 'paranmt_lab', 'nbs', cwd=ROOT)
        run('tar', '-x', '-C', folder, input=archive)
        rooms, arrows = json.loads(run(sys.executable, '-c', READ, cwd=folder, env=dict(PYTHONPATH=folder)))
        floors = [[p.name for p in sorted(floor.iterdir()) if p.is_dir()]
                  for floor in sorted(Path(folder, 'nbs').glob('[0-9]_*/'))]
    return rooms, arrows, floors


def as_dot(rooms, arrows, floors):
    "The house in the language of dot, a floor in a row."
    rows = [f'{{rank=same; {" ".join(f"{room} [fillcolor={COLOURS[k]!r}];" for room in floor)}}}'.replace("'", '"')
            for k, floor in enumerate(floors)]
    rows += [f'{low[0]} -> {high[0]} [style=invis weight=50]' for low, high in zip(floors, floors[1:])]
    return '\n'.join(['digraph {', STYLE, *rooms, *rows, *(f'{b} -> {a}' for a, b in arrows), '}'])


def panel(title, commit, top):
    "The picture of a commit as a part of the whole, and where it ends."
    rooms, arrows, floors = house(commit)
    svg = run('dot', '-Tsvg', input=as_dot(rooms, arrows, floors), text=True)
    width, height = map(float, re.search(r'viewBox="0.00 0.00 ([\d.]+) ([\d.]+)"', svg).groups())
    inner = svg[svg.index('<g id'):svg.rindex('</svg>')]
    inner = re.sub(r'<!--.*?-->\n?|<title>.*?</title>\n?| (?:id|class)="[^"]*"', '', inner, flags=re.S)
    inner = re.sub(r'(\d+\.\d)\d+', r'\1', inner)
    drawn = height * WIDTH / width
    text = f'{title}: {len(rooms)} rooms, {len(arrows)} arrows'
    place = f'y="{top + 36:.0f}" width="{WIDTH}" height="{drawn:.0f}" viewBox="0 0 {width} {height}"'
    head = f'<text x="10" y="{top + 26:.0f}" font-family="sans-serif" font-size="18">{text}</text>'
    return f'{head}<svg {place}>{inner}</svg>', top + drawn + 56


if __name__ == '__main__':
    before, end = panel('Before', sys.argv[1], 0)
    after, end = panel('Now, a colour for each floor', sys.argv[2], end)
    PICTURE.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{end:.0f}" '
                       f'viewBox="0 0 {WIDTH} {end:.0f}"><rect width="100%" height="100%" fill="white"/>{before}{after}'
                       '</svg>\n', encoding='utf-8')
