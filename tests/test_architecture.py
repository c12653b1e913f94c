"""The list of layers that import-linter checks is the list of notebooks."""
import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def modules_by_floor():
    "Number in a notebook's name and the module it exports."
    for path in sorted((ROOT / 'nbs').glob('*.ipynb')):
        for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
            if found := re.search(r'#\|\s*default_exp\s+(\S+)', ''.join(cell['source'])):
                yield int(path.name[:2]), 'paranmt_lab.' + found[1]


def layers():
    config = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))
    return [row.split(' | ') for row in config['tool']['importlinter']['contracts'][0]['layers']]


def test_every_notebook_is_in_the_contract_and_no_other():
    assert sorted(m for row in layers() for m in row) == sorted(m for _, m in modules_by_floor())


def test_the_contract_follows_the_numbers_of_the_notebooks():
    number = {module: n for n, module in modules_by_floor()}
    heights = [number[m] for row in layers() for m in row]
    assert heights == sorted(heights, reverse=True)
