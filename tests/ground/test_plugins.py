"""Packages that add measures, engines, encoders, tasks and pages, as pip installs them."""
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings

ROOT = Path(__file__).parents[2]
# A package that adds one of each kind but a measure; the tests of the engine and of the encoder use them by name.
ALL_KINDS = '''
from types import SimpleNamespace
import numpy as np
from paranmt_lab.engines.protocol import Hypothesis
from paranmt_lab.evaluation.tasks import Task
from paranmt_lab.ground.models import Kind
from paranmt_lab.pages.plugins import Page

class Shouting:
    "Translates by capital letters."
    methods, source_lang = ('beam',), ''
    def __init__(self, name): self.identity = dict(engine='shouting', model=name)
    def translate(self, sources, decoding=None, advance=None):
        return [[Hypothesis(text.upper(), -1., len(text.split()) + 1)] for text in sources]

class Lengths:
    "Vectors of one number, that of the words."
    dim = 1
    def __init__(self, name): self.identity = dict(name=name)
    def encode(self, sentences): return np.array([[len(s.split())] for s in sentences], np.float32)
    def similarity_pairwise(self, first, second): return np.exp(-np.abs(self.encode(first) - self.encode(second))[:, 0])

def copies(system, s):
    [value] = system.similarity_pairwise(['A'], ['A'])
    return [dict(task='copies', dataset='one', metric='similarity', n=1, value=float(value))]

def draw():
    import streamlit as st
    st.write('Hello from a plug-in.')

ENGINE = Kind(('Translator',), lambda name, s, **options: Shouting(name))
ENCODER = Kind(('Encoder',), lambda name, s: Lengths(name.partition(':')[2]))
TASK = Task('copies', 'graded pairs', ('similarity_pairwise',), copies)
PAGE = Page(draw, 'Hello', 'waving_hand')
'''
ENTRIES = {'engines': 'shout = paranmt_kinds:ENGINE', 'encoders': 'lengths = paranmt_kinds:ENCODER',
           'tasks': 'copies = paranmt_kinds:TASK', 'pages': 'hello = paranmt_kinds:PAGE'}


def install(folder, package, code, entries, version='1.0'):
    "Write a package and its metadata as pip leaves them."
    module = package.replace('-', '_')
    (folder / f'{module}.py').write_text(code)
    metadata = folder / f'{module}-{version}.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n')
    groups = [f'[paranmt_lab.{group}]\n{entry}\n' for group, entry in entries.items()]
    (metadata / 'entry_points.txt').write_text('\n'.join(groups))


@pytest.fixture(scope='module')
def example(tmp_path_factory):
    "The package of docs/plugin-example, installed by pip into a folder of its own."
    folder = tmp_path_factory.mktemp('site')
    source = shutil.copytree(ROOT / 'docs/plugin-example', folder / 'source')  # pip builds it there
    subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--target', folder / 'packages',
                    source], check=True)
    return folder / 'packages'


@pytest.fixture
def call(tmp_path):
    "Runs a program with packages on its path and a corpus `two` in its workspace; gives its output."
    def call(packages, *words, code=0):
        path = os.pathsep.join([str(packages), str(ROOT)])
        variables = dict(PYTHONPATH=path, PARANMT_WORKSPACE=str(tmp_path), PARANMT_WORKERS='1', COLUMNS='200')
        done = subprocess.run([*map(str, words)], cwd=tmp_path, env=os.environ | variables, capture_output=True,
                              text=True)
        assert done.returncode == code, done.stderr[-3000:]
        return done.stdout + done.stderr
    pairs = pd.DataFrame({'segment': ['1', '2'], 'reference': ['Is it raining ?', 'It rains .'],
                          'translation': ['It is raining .', 'It is raining .']})
    Corpus.create('two', replace(settings(), workspace=tmp_path)).write_pairs(0, pairs)
    return call


PARANMT = Path(sys.executable).parent / 'paranmt'


def manifest(folder): return json.loads((folder / 'corpora/two/manifests/score-question_marks.json').read_text())


def test_the_example_is_small():
    lines = [path.read_text().splitlines() for path in (ROOT / 'docs/plugin-example').iterdir() if path.is_file()]
    assert sum(map(len, lines)) <= 35


def test_the_measure_of_the_example_is_scored_and_shown(example, call, tmp_path):
    assert 'question marks on one side alone' in call(example, PARANMT, 'score', '--list')
    call(example, PARANMT, 'score', 'two', 'question_marks')
    assert manifest(tmp_path)['version'] == 'paranmt-questions 0.1.0, 1'
    shown = call(example, sys.executable, '-c', '''
from streamlit.testing.v1 import AppTest
from paranmt_lab import Corpus
print(Corpus.open('two').frame(['question_marks']).question_marks.tolist())
at = AppTest.from_string('from paranmt_lab.pages.pairs import page\\npage()', default_timeout=120).run()
assert not at.exception
print([box.key for box in at.number_input], [line.help for line in at.markdown])''')
    assert '[1.0, 0.0]' in shown and "'from_question_marks'" in shown
    assert 'question marks on one side alone' in shown.replace('\\', '')


@pytest.mark.soak
def test_values_of_another_version_of_the_package_are_computed_again(example, call, tmp_path):
    call(example, PARANMT, 'score', 'two', 'question_marks')
    assert 'Nothing was computed' in call(example, PARANMT, 'score', 'two', 'question_marks')
    newer = shutil.copytree(example, tmp_path / 'newer')
    [metadata] = newer.glob('paranmt_questions-*.dist-info/METADATA')
    metadata.write_text(metadata.read_text().replace('Version: 0.1.0', 'Version: 0.2.0'))
    assert 'Nothing was computed' not in call(newer, PARANMT, 'score', 'two', 'question_marks')
    assert manifest(tmp_path)['version'] == 'paranmt-questions 0.2.0, 1'
    assert "no measure 'question_marks'" in call(ROOT, PARANMT, 'score', 'two', 'question_marks', code=1)


def test_a_package_adds_an_engine_an_encoder_a_task_and_a_page(call, tmp_path):
    packages = tmp_path / 'packages'
    packages.mkdir()
    install(packages, 'paranmt-kinds', ALL_KINDS, ENTRIES)
    call(packages, sys.executable, '-c', '''
from paranmt_lab.evaluation.tasks import evaluate
from paranmt_lab.ground.models import identity_of, open_model, served_kind
engine = open_model('shout:loud', gives='Translator', threads=2)
assert engine.translate(['Ahoj!'])[0][0].text == 'AHOJ!' and engine.identity['plugin'] == 'paranmt-kinds 1.0'
encoder = open_model('lengths:any', gives='Encoder')
assert identity_of('lengths:any') == encoder.identity == dict(name='any', plugin='paranmt-kinds 1.0')
assert served_kind('lengths:any') == 'encoder'
[row] = evaluate(encoder, ['copies']).to_dict('records')
assert row['value'] == 1 and row['protocol'] == 'paranmt-kinds 1.0'
from streamlit.testing.v1 import AppTest
at = AppTest.from_file('APP', default_timeout=120).run()
assert not at.exception and not at.error
from paranmt_lab.pages.plugins import PLUGIN_PAGES
assert PLUGIN_PAGES['hello'].title == 'Hello'
'''.replace('APP', str(ROOT / 'app.py')))
    table = call(packages, PARANMT, 'score', 'two', 'paraphrase_score', '--encoder', 'lengths:any')
    assert 'paraphrase_score@any' in table
    facts = json.loads((tmp_path / 'corpora/two/manifests/score-paraphrase_score@any.json').read_text())
    assert facts['encoder']['plugin'] == 'paranmt-kinds 1.0'


@pytest.mark.soak
def test_a_broken_package_is_named_and_does_no_harm(call, tmp_path):
    packages = tmp_path / 'packages'
    packages.mkdir()
    install(packages, 'paranmt-broken', 'import no_such_package', dict(measures='broken = paranmt_broken:MEASURE'))
    assert 'paranmt-broken' not in call(packages, PARANMT, 'score', 'two', 'trigram_overlap')  # our own measure
    said = call(packages, PARANMT, 'score', '--list')
    assert "Note: the package paranmt-broken 1.0 cannot add 'broken' to the measures: ModuleNotFoundError" in said
    assert said.count('paranmt-broken 1.0') == 1 and 'pip uninstall paranmt-broken' in said
    frame = call(packages, sys.executable, '-c', '''
from paranmt_lab import Corpus
print(Corpus.open('two').frame(['trigram_overlap']).trigram_overlap.notna().all())''')
    assert 'True' in frame


def test_nothing_is_loaded_for_our_own_names(call, tmp_path):
    packages = tmp_path / 'packages'
    packages.mkdir()
    install(packages, 'paranmt-slow', 'raise SystemExit(7)', dict(measures='slow = paranmt_slow:MEASURE',
                                                                  encoders='slow = paranmt_slow:KIND'))
    said = call(packages, PARANMT, 'workspace', 'list') + call(packages, PARANMT, '--help')
    assert 'cannot add' not in said and 'paranmt-slow 1.0' in said
