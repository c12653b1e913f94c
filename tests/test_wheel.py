"""The package as people install it: a wheel in an environment of its own, without the checkout."""
import os
import re
import subprocess
import sys
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
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp('wheel')
    run(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--wheel-dir', folder, ROOT, cwd=folder)
    return next(folder.glob('paranmt_lab-*.whl'))


@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    "Folder of the programs of an environment that has the wheel and what the demonstration and the app need."
    folder = tmp_path_factory.mktemp('environment')
    run(sys.executable, '-m', 'venv', folder, cwd=folder)
    run(folder / 'bin/pip', 'install', '--quiet', '-c', ROOT / 'constraints.txt', f'{wheel}[app,translate]', cwd=folder)
    return folder / 'bin'


def test_the_wheel_has_what_ships_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    home = {name.removeprefix('paranmt_lab/home/') for name in names if name.startswith('paranmt_lab/home/')}
    shipped = run('git', 'ls-files', 'data', 'app.py', '.streamlit', cwd=ROOT)
    assert home == set(shipped.split())
    assert {name.split('/')[0] for name in names} == {'paranmt_lab', names[-1].split('/')[0]}
    assert not [name for name in names if re.search(r'test|nbs/|\.ipynb', name)]
    assert 'paranmt_lab/py.typed' in names
    assert not [name for name in names if re.search('harness|simulation|gleu', name)]  # of notebooks and tests alone


def test_the_demonstration_and_the_app_run_from_the_wheel(installed, tmp_path):
    said = run(installed / 'paranmt', 'demo', '--app', '0', cwd=tmp_path, OMP_NUM_THREADS='1')
    assert 'sample-scorer' in said and (tmp_path / 'data/corpora/sample-pairs').is_dir()
    listed = run(installed / 'paranmt', 'list', cwd=tmp_path, COLUMNS='200')
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
