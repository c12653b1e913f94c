"""Literacy of the notebooks: exported code, examples and prose of each notebook that exports.

    python tests/literate.py          # a row for each notebook, the fewest example lines per exported line first
    python tests/literate.py 0.6      # only notebooks below that ratio"""
import ast
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r'^\s*#\s*\|\s*(\w+)', re.M)
EXPORTS = {'export', 'exporti', 'exports'}


def code_lines(source):
    "Lines of a cell without blank lines and directives; a described signature counts as one line."
    rows = [row for row in source.splitlines() if row.strip() and not re.match(r'\s*#\s*\|', row)]
    try: tree = ast.parse(source)
    except SyntaxError: return len(rows)
    lines = source.splitlines()
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    signatures = {number for function in functions for number in range(function.lineno + 1, function.body[0].lineno)
                  if lines[number - 1].strip()}
    return len(rows) - len(signatures)


def counts(path):
    "Exported lines, example lines and words of prose of a notebook; hidden cells of a few lines set up the others."
    exported = examples = words = 0
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        source = ''.join(cell['source'])
        directives = set(DIRECTIVE.findall(source))
        if cell['cell_type'] == 'markdown': words += len(re.findall(r'\w+', source))
        elif cell['cell_type'] != 'code': continue
        elif directives & EXPORTS: exported += code_lines(source)
        elif not directives & {'default_exp', 'hide'} or code_lines(source) > 3: examples += code_lines(source)
    return exported, examples, words


if __name__ == '__main__':
    limit = float(sys.argv[1]) if sys.argv[1:] else float('inf')
    rows = [(f'{path.parent.name}/{path.stem}', *counts(path)) for path in sorted((ROOT / 'nbs').glob('*/*/*.ipynb'))]
    rows = sorted((row for row in rows if row[1]), key=lambda row: row[2] / row[1])
    print(f"{'notebook':42} exported examples ratio  words")
    for name, exported, examples, words in rows:
        if examples / exported < limit:
            print(f'{name:42} {exported:8} {examples:8} {examples / exported:5.2f} {words:6}')
    exported, examples, words = (sum(row[column] for row in rows) for column in (1, 2, 3))
    below = sum(row[2] / row[1] < .6 for row in rows)
    print(f'{"all":42} {exported:8} {examples:8} {examples / exported:5.2f} {words:6}; '
          f'{below} of {len(rows)} notebooks below 0.6')
