"""Benchmarks say in one line what they lack, before they measure."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / 'benchmarks'
# A module that is not installed, in a process that finds this file
HIDDEN = "import sys\nfor name in {!r}: sys.modules[name] = None\n"


def said(script, folder, *words, without=(), **variables):
    "What a benchmark says in an environment without some modules."
    (folder / 'sitecustomize.py').write_text(HIDDEN.format(list(without)))
    paths = os.pathsep.join([str(folder), str(FOLDER.parents[1])])
    done = subprocess.run([sys.executable, FOLDER / script, *words], capture_output=True, text=True, timeout=120,
                          env=os.environ | dict(PYTHONPATH=paths) | variables)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.strip()


def soak(*values): return pytest.param(*values, marks=pytest.mark.soak)


@pytest.mark.parametrize('script, words, lacking, remedy', [
    ('measures.py', [], ['polars'], ".[bench]"),
    soak('training.py', ['peers'], ['datasets'], '.[bench]'),
    soak('training.py', ['peers'], ['datasets', 'sentence_transformers'], '.[bench,peers]'),
    ('encoding.py', [], ['model2vec'], '.[peers]'),
    soak('generation.py', [], ['ctranslate2'], '.[translate]'),
    ('language.py', [], ['lingua'], 'lingua-language-detector'),
    ('language_models.py', [], ['kenlm'], '.[judge]'),
    soak('annotation_page.py', [], ['playwright'], '.[dev]'),
])
def test_a_missing_package_is_named_with_its_command(tmp_path, script, words, lacking, remedy):
    line = said(script, tmp_path, *words, without=lacking)
    assert '\n' not in line and all(name in line for name in lacking) and remedy in line, line


@pytest.mark.parametrize('script', [soak('app.py'), 'lexicon.py', 'selection.py', 'turns.py'])
def test_a_missing_argument_is_named_with_its_command(tmp_path, script):
    line = said(script, tmp_path)
    assert '\n' not in line and f'python tests/benchmarks/{script}' in line, line


@pytest.mark.parametrize('script, words', [('measures.py', ['corpus']), ('selection.py', ['folder']),
                                           ('language_models.py', [])])
def test_a_missing_resource_is_named_with_its_setting(tmp_path, script, words):
    line = said(script, tmp_path, *words, PARANMT_RESOURCES=str(tmp_path))
    assert '\n' not in line and 'PARANMT_RESOURCES' in line, line
