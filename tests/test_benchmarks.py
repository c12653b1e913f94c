"""Benchmarks say in one line what they lack, before they measure; the one for cards runs without a card."""
import json
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


@pytest.mark.soak
def test_the_benchmark_for_cards_has_every_figure_or_says_why_not(tmp_path):
    "Tiny sizes on the processor, which runs all that a card would."
    out = tmp_path / 'gpu.json'
    done = subprocess.run([sys.executable, FOLDER / 'gpu.py', '--quick', '--output', out], capture_output=True,
                          text=True, timeout=500, env=os.environ | dict(PARANMT_RESOURCES=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    facts = json.loads(out.read_text())
    rows = {(row['part'], row['what'], row['device']): row for row in facts['rows']}
    assert len(rows) == len(facts['rows']) and {'card', 'commit', 'cores', 'date', 'processor', 'torch'} <= set(facts)
    rates = 'pairs_per_second', 'sentences_per_second', 'same'
    for row in rows.values(): assert row.get('not measured') or any(row.get(rate, -1) >= 0 for rate in rates), row
    for (*_, device), row in rows.items():
        if device == 'cpu': assert row.get('not measured', 'install ').startswith('install '), row
        if not facts['card'] and device == 'cuda': assert row['not measured'] == 'no card here'
    for what in ('WORD, compiled', 'TRIGRAM, resident', 'BLSTM, autograd', 'GRAN, autograd'):
        row = rows['training', what, 'cpu']
        assert row['pairs'] >= 100 and ('pairs_to_goal' in row or row['note']), row
    assert facts['card'] or 'no card here' in done.stdout
