"""`import paranmt_lab`: the names one starts with, loaded when they are asked for, and the example of docs."""
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import paranmt_lab

ROOT = Path(__file__).parents[1]


def python(program, **variables):
    "Standard output of a program in a process of its own."
    done = subprocess.run([sys.executable, '-c', program], cwd=ROOT,
                          env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_are_those_of_their_modules():
    assert len(paranmt_lab.__all__) >= 12 and set(paranmt_lab.__all__) <= set(dir(paranmt_lab))
    for name, home in paranmt_lab._HOMES.items():
        module = importlib.import_module(f'paranmt_lab.{home}')
        assert getattr(paranmt_lab, name) is getattr(module, name)
        assert name in module.__all__, 'a name for users, defined there'


def test_no_name_hides_a_module():
    modules = {path.stem for path in (ROOT / 'paranmt_lab').iterdir()}
    assert not modules & set(paranmt_lab.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match='nonesuch'): paranmt_lab.nonesuch
    with pytest.raises(ImportError):
        from paranmt_lab import nonesuch  # noqa: F401


def test_nothing_is_loaded_before_it_is_asked_for():
    loaded = python("import sys, paranmt_lab; paranmt_lab.__version__; dir(paranmt_lab)\n"
                    "print([m for m in ('numpy', 'pandas', 'torch', 'duckdb', 'pyarrow') if m in sys.modules])\n"
                    "from paranmt_lab import list_corpora; print('torch' in sys.modules)")
    assert loaded.split('\n')[:2] == ['[]', 'False']


def test_the_example_in_readme_runs(tmp_path):
    example = re.search(r'```python\n(.*?)```', (ROOT / 'docs/python.md').read_text(encoding='utf-8'), re.S)[1]
    said = python(example, PARANMT_WORKSPACE=str(tmp_path), PARANMT_WORKERS='1')
    assert re.search(r'\d\.\d', said.splitlines()[-1])


def test_the_core_needs_no_package_of_an_extra():
    "Training, scoring and measuring work with `pip install paranmt-lab` alone."
    extras = 'altair anywidget ctranslate2 faiss kenlm nltk sentencepiece sklearn streamlit transformers umap wordfreq'
    modules = ('training.loop', 'filters.scoring', 'evaluation.tasks', 'encoders.export', 'engines.protocol',
               'annotation.exports', 'calibration.model', 'exchange.files', 'components.rating', 'cli.main')
    python(f'''
import sys
from importlib import import_module
sys.modules |= dict.fromkeys({extras.split()})  # an import of them is an error
for module in {modules}: import_module('paranmt_lab.' + module)''')
