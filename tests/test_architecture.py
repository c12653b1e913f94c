"""The folders of notebooks, the packages of the library and the layers of import-linter are one order."""
import ast
import json
import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / 'nbs').glob('[0-9]_*/*/*.ipynb'))
LAYERS = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))['tool']['importlinter']['contracts'][0]


def exported_module(path):
    "The module that a notebook exports, such as `tokens.text`; None where it exports nothing."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        if match := re.search(r'#\|\s*default_exp\s+(\S+)', ''.join(cell['source'])): return match[1]
    return None


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: f'{p.parent.name}/{p.stem}')
def test_a_notebook_is_named_as_its_module(path):
    assert exported_module(path) in (f'{path.parent.name}.{path.stem[3:]}', None)
    assert re.fullmatch(r'\d\d_[a-z0-9_]+', path.stem), 'two digits of the reading order, then the name'


def test_two_notebooks_of_a_package_have_two_numbers():
    places = [(path.parent, path.stem[:2]) for path in NOTEBOOKS]
    assert len(set(places)) == len(places)


def test_the_layers_are_the_folders():
    "Every package is a layer, and a floor's packages come after those of the floors above it."
    floors = {path.parent.name: int(path.parents[1].name[0]) for path in NOTEBOOKS}
    assert sorted(LAYERS['layers']) == sorted(floors)
    order = [floors[package] for package in LAYERS['layers']]
    assert order == sorted(order, reverse=True)


def test_modules_of_a_package_do_not_import_in_circles():
    "import-linter compares packages; inside one any order will do, but there must be one."
    graph = grimp.build_graph('paranmt_lab', cache_dir=None)
    for package in LAYERS['layers']:
        modules = graph.find_children(f'paranmt_lab.{package}')
        imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
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


def test_no_private_name_leaves_its_module():
    "A name that another module needs is public: it has a description."
    found = [(path.name, name.name) for path in (ROOT / 'paranmt_lab').rglob('*.py')
             for node in ast.walk(ast.parse(path.read_text(encoding='utf-8')))
             if isinstance(node, ast.ImportFrom) and (node.level or (node.module or '').startswith('paranmt_lab'))
             for name in node.names if name.name.startswith('_') and name.name != '__version__']
    assert found == []
