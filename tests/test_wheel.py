"""The package as people install it: a wheel in an environment of its own, without the checkout."""
import ast
import email
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from app_workspace import free_port, wait_for
from raters import CHROMIUM

ROOT = Path(__file__).parents[1]
# Without the variables that lead to the checkout or to its settings
PLAIN = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH' and not k.startswith(('PARANMT_', 'STREAMLIT_'))}


def run(*words, cwd, **variables):
    "Standard output of a program that ends well."
    done = subprocess.run([*map(str, words)], cwd=cwd, env=PLAIN | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "Folder with the source distribution, and with the wheel that is built from it."
    folder = tmp_path_factory.mktemp('build')
    run(sys.executable, '-m', 'venv', folder / 'env', cwd=folder)
    run(folder / 'env/bin/pip', 'install', '--quiet', 'build', cwd=folder)
    run(folder / 'env/bin/python', '-W', 'error::UserWarning', '-m', 'build', '--outdir', folder / 'dist', ROOT,
        cwd=folder)
    return folder / 'dist'


@pytest.fixture(scope='module')
def wheel(built): return next(built.glob('paranmt_lab-*.whl'))


@pytest.fixture(scope='module')
def light(wheel, tmp_path_factory):
    "Folder of the programs of an environment that has the wheel alone."
    folder = tmp_path_factory.mktemp('environment')
    run(sys.executable, '-m', 'venv', folder, cwd=folder)
    run(folder / 'bin/pip', 'install', '--quiet', '-c', ROOT / 'constraints.txt', wheel, cwd=folder)
    return folder / 'bin'


@pytest.fixture(scope='module')
def installed(wheel, light):
    "The same environment, with what the demonstration and the app need; it comes after the tests of `light`."
    run(light / 'pip', 'install', '--quiet', '-c', ROOT / 'constraints.txt', f'{wheel}[app,translate]', cwd=light)
    return light


def test_the_wheel_has_what_ships_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    home = {name.removeprefix('paranmt_lab/home/') for name in names if name.startswith('paranmt_lab/home/')}
    shipped = run('git', 'ls-files', 'data', 'app.py', '.streamlit', cwd=ROOT)
    assert home == set(shipped.split())
    assert {name.split('/')[0] for name in names} == {'paranmt_lab', names[-1].split('/')[0]}
    assert not [name for name in names if re.search(r'test|nbs/|\.ipynb', name)]
    assert 'paranmt_lab/py.typed' in names
    assert not [name for name in names if re.search('harness|simulation|gleu', name)]  # of notebooks and tests alone


def test_no_module_of_the_wheel_imports_a_package_of_tests(wheel):
    testing = {'pytest', 'hypothesis', 'playwright', 'krippendorff', 'psutil', 'nbdev', 'unittest', 'conftest'}
    with zipfile.ZipFile(wheel) as archive:
        trees = {name: ast.parse(archive.read(name)) for name in archive.namelist() if name.endswith('.py')}
    for name, tree in trees.items():
        imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imports |= {node.module or '' for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {module.partition('.')[0] for module in imports} & testing, name
        assert not {module for module in imports if module.startswith(('fastcore.test', 'streamlit.testing'))}, name


def test_the_metadata_say_what_an_index_shows(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [file] = [name for name in archive.namelist() if name.endswith('.dist-info/METADATA')]
        facts = email.message_from_bytes(archive.read(file))
    assert facts['License-Expression'] == 'MIT' and facts['Summary'] and facts['Description-Content-Type']
    assert {'Typing :: Typed', 'Programming Language :: Python :: 3.11'} <= set(facts.get_all('Classifier'))
    assert facts.get_all('Project-URL') and {'app', 'translate', 'all'} <= set(facts.get_all('Provides-Extra'))


def test_the_source_distribution_has_the_notebooks_and_only_our_files(built):
    with tarfile.open(next(built.glob('paranmt_lab-*.tar.gz'))) as archive:
        sizes = {member.name.partition('/')[2]: member.size for member in archive.getmembers() if member.isfile()}
    ours = set(run('git', '-c', 'core.quotepath=off', 'ls-files', '-co', '--exclude-standard', cwd=ROOT).split('\n'))
    assert set(sizes) - ours == {'PKG-INFO'}
    assert {file for file in ours if file.startswith(('nbs/', 'tests/', 'docs/'))} <= set(sizes)
    assert max(sizes.values()) < 20e6 and sum(sizes.values()) < 100e6


@pytest.mark.soak
def test_the_light_installation_encodes_scores_and_evaluates(light, tmp_path):
    names = {row['name'].lower() for row in json.loads(run(light / 'pip', 'list', '--format', 'json', cwd=tmp_path))}
    absent = 'streamlit ctranslate2 jupyterlab transformers scikit-learn altair pytest nbdev'.split()
    assert not names & set(absent) and len(names) < 60
    said = run(light / 'python', '-c', '''
from paranmt_lab import open_model
encoder = open_model('paraphrase-scorer')
print(*encoder.similarity_pairwise(['The tram is late.'] * 2, ['The tram has a delay.', 'The soup is cold.']))

import pandas as pd
from paranmt_lab import Corpus
from paranmt_lab.encoders.files import encode_file
Corpus.create('two').write_pairs(0, pd.DataFrame({
    'segment': ['1', '2'], 'reference': ['Is it raining ?', 'It rains .'], 'translation': ['Does it rain ?', 'No .']}))
open('lines.txt', 'w').write('The tram is late.\\n')
assert encode_file(encoder, 'lines.txt', 'vectors.parquet') == 1''', cwd=tmp_path, OMP_NUM_THREADS='1')
    near, far = map(float, said.split())
    assert far < .5 < near < 1
    run(light / 'paranmt', 'encode', 'lines.txt', 'vectors.npy', cwd=tmp_path)
    assert (tmp_path / 'vectors.npy').is_file()
    said = subprocess.run([light / 'paranmt', 'app'], cwd=tmp_path, env=PLAIN, capture_output=True, text=True).stderr
    assert "pip install 'paranmt-lab[app]'" in said
    measures = run(light / 'paranmt', 'score', 'two', 'trigram_overlap', 'paraphrase_score', cwd=tmp_path,
                   COLUMNS='200')
    assert 'paraphrase_score@paraphrase-scorer' in measures
    graded = light.parent.glob('lib/*/site-packages/paranmt_lab/home/data/sample/graded.tsv')
    figures = run(light / 'paranmt', 'evaluate', 'paraphrase-scorer', 'token-overlap', '--graded', *graded,
                  cwd=tmp_path, COLUMNS='200')
    assert re.search(r'paraphrase-scorer .*\d\d', figures) and re.search(r'token-overlap .*\d\d', figures)


@pytest.mark.soak  # installs 400 MB more and runs the whole pipeline, which `make demo` does on a checkout too
def test_the_demonstration_and_the_app_run_from_the_wheel(installed, tmp_path):
    said = run(installed / 'paranmt', 'demo', '--app', '0', cwd=tmp_path, OMP_NUM_THREADS='1')
    assert 'sample-scorer' in said and (tmp_path / 'data/corpora/sample-pairs').is_dir()
    status = run(installed / 'paranmt', 'annotate', 'status', 'sample', cwd=tmp_path, COLUMNS='200')
    assert re.search(r'sample +open +sample-pairs +40 +2 ', status)
    assert len(list((tmp_path / 'data/corpora/sample-pairs/cache/maps').glob('*.parquet'))) == 1
    listed = run(installed / 'paranmt', 'workspace', 'list', cwd=tmp_path, COLUMNS='200')
    assert all(name in listed for name in ('sample-pairs', 'sample-scorer', 'marian-cs-en-tiny', 'paraphrase-scorer'))
    assert str(ROOT) not in listed
    folder = run(installed / 'python', '-c', 'import paranmt_lab; print(paranmt_lab.__file__)', cwd=tmp_path)
    assert Path(folder.strip()).is_relative_to(installed.parent)
    if Path(CHROMIUM).exists(): first_page_loads(installed, tmp_path)


def first_page_loads(installed, workspace):
    from playwright.sync_api import sync_playwright
    port, log = free_port(), workspace / 'app.log'
    with log.open('wb') as out:
        server = subprocess.Popen([installed / 'paranmt', 'app', '--port', str(port)], cwd=workspace, env=PLAIN,
                                  stdout=out, stderr=out)
    try:
        wait_for(port, log)
        with sync_playwright() as play:
            tab = play.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox']).new_page()
            tab.goto(f'http://127.0.0.1:{port}')
            tab.get_by_text('sample-pairs').first.wait_for(timeout=120_000)
            assert not tab.locator('[data-testid=stException]').count()
    finally:
        server.terminate()
        server.wait(30)
    assert 'Traceback' not in log.read_text(errors='replace')
