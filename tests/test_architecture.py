"""import-linter checks a contract written from the numbers of the notebooks: python tests/test_architecture.py"""
import ast
import json
import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / 'pyproject.toml'


def modules_by_number():
    "Number in a notebook's name and the module it exports, the highest number first."
    for path in sorted((ROOT / 'nbs').glob('[0-9]*.ipynb'), key=lambda p: (-int(p.name[:2]), p.name)):
        for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
            if match := re.search(r'#\|\s*default_exp\s+(\S+)', ''.join(cell['source'])):
                yield int(path.name[:2]), 'paranmt_lab.' + match[1]


def floors():
    "Modules of each number, the highest number first."
    return [[module for _, module in floor] for _, floor in groupby(modules_by_number(), lambda pair: pair[0])]


def as_toml(rows):
    "The layers: a colon lets modules of a row import each other; a long row is a string over several lines."
    lines = []
    for row in rows:
        line = f'    "{" : ".join(row)}",'
        if len(line) > 120: line = '    """\\\n        ' + ' : \\\n        '.join(row) + '""",'
        lines.append(line)
    return 'layers = [\n' + '\n'.join(lines) + '\n]\n'


def renewed(text):
    "The text of pyproject.toml with the layers as the notebooks are now."
    return re.sub(r'^layers = \[\n.*?^\]\n', lambda _: as_toml(floors()), text, flags=re.M | re.S)


def test_the_contract_is_that_of_the_notebooks():
    text = PYPROJECT.read_text(encoding='utf-8')
    assert text == renewed(text), 'to renew the layers of pyproject.toml: python tests/test_architecture.py'


def test_a_long_row_is_read_as_a_short_one():
    rows = [['top'], [f'paranmt_lab.pages.page_{i}' for i in range(9)], ['ground']]
    assert tomllib.loads(as_toml(rows))['layers'] == [' : '.join(row) for row in rows]


def test_modules_of_a_number_do_not_import_in_circles():
    "import-linter checks what lies between two numbers; inside one any order will do, but there must be one."
    graph = grimp.build_graph('paranmt_lab', cache_dir=None)
    for floor in floors():
        imports = {module: graph.find_modules_directly_imported_by(module) & set(floor) for module in floor}
        TopologicalSorter(imports).prepare()


def test_a_circle_is_seen():
    with pytest.raises(CycleError): TopologicalSorter({'a': {'b'}, 'b': {'a'}}).prepare()


def test_pages_keep_their_state_in_the_address_by_one_function():
    # Streamlit's `bind` leaves defaults out of the address, and its parameters cannot be written with the others.
    pages = (ROOT / 'paranmt_lab/pages').glob('*.py')
    assert [path.name for path in pages if 'bind=' in path.read_text(encoding='utf-8')] == []


KINDS = re.compile(r'\w*(Engine|Stepper|Learner|Layer)')


def kinds_of_models(trees):
    "Names of the classes of layers, engines, steppers and learners."
    classes = [(node.name, {ast.unparse(base) for base in node.bases}) for tree in trees for node in ast.walk(tree)
               if isinstance(node, ast.ClassDef)]
    kinds = {name for name, _ in classes if KINDS.fullmatch(name)}
    while more := {name for name, bases in classes if bases & kinds} - kinds: kinds |= more
    return kinds


def asked_classes(tree):
    "Names of the classes after which the code of a module asks."
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {part.id for call in calls if ast.unparse(call.func) in ('isinstance', 'issubclass')
            for part in ast.walk(call.args[1]) if isinstance(part, ast.Name)}


def test_code_asks_what_a_model_offers_and_not_which_it_is():
    package = ROOT / 'paranmt_lab'
    texts = {str(path.relative_to(package)): path.read_text(encoding='utf-8') for path in package.rglob('*.py')}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    kinds = kinds_of_models(trees.values())
    assert {'Average', 'Gran', 'CompiledStepper', 'MarianEngine'} <= kinds
    asked = {name: classes for name, tree in trees.items() if (classes := asked_classes(tree) & kinds)}
    assert asked == {'encoders/layers.py': {'Layer'}}  # a walk through the parts of a layer


if __name__ == '__main__':
    before = PYPROJECT.read_text(encoding='utf-8')
    after = renewed(before)
    if after != before: PYPROJECT.write_text(after, encoding='utf-8')  # make installs again when the file is younger
