"""Slow references, with which tests compare the fast functions. A notebook states them in cells marked `#| reference`,
which stay out of the package."""
import json
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

NBS = Path(__file__).parents[1] / 'nbs'


@cache
def references(module):
    "The names of a module, such as `filters.words`, and those that the marked cells of its notebook add."
    package, name = module.split('.')
    path, = NBS.glob(f'*/{package}/[0-9][0-9]_{name}.ipynb')
    names = dict(vars(import_module(f'paranmt_lab.{module}')))
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        source = ''.join(cell['source'])
        if source.startswith('#| reference'): exec(compile(source, str(path), 'exec'), names)
    return SimpleNamespace(**names)
