"""`make check` and `make quick`: files as they are are compared, and what was changed is tested."""
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

import gate
import wording


def test_a_file_that_is_renewed_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, 'ROOT', tmp_path)
    notebook = tmp_path / 'nbs/0_ground/tokens/01_text.ipynb'
    notebook.parent.mkdir(parents=True)
    notebook.write_text('a')
    project = tmp_path / 'pyproject.toml'
    project.write_text('')
    page = tmp_path / 'docs/command-line.md'
    page.parent.mkdir()
    page.write_text('')
    os.utime(project, (1e9, 1e9))
    monkeypatch.setattr(gate, 'run', lambda title, command: 'library' not in title or not project.touch())
    assert gate.check() == [] and project.stat().st_mtime == 1e9, 'make would install again'
    monkeypatch.setattr(gate, 'run', lambda title, command: notebook.write_text('b') if 'notebooks' in title else True)
    assert [r for r in gate.check() if 'git diff' in r and 'nbs/0_ground/tokens/01_text.ipynb' in r]
    monkeypatch.setattr(gate, 'run', lambda title, command: title != 'ruff')
    assert 'ruff names' in gate.check()[0]


def test_a_changed_notebook_is_tested_with_the_tests_of_its_module():
    notebook, test = 'nbs/0_ground/tokens/01_text.ipynb', 'tests/evaluation/test_sts.py'
    titles = [title for title, _ in gate.tests_of([notebook, test, 'README.md'])]
    assert titles[:2] == [notebook, test] and 'tests/tokens/test_text.py' in titles
    assert 'tests/annotation/test_agreement.py' not in titles


def test_a_command_is_stopped_when_the_time_is_over(capsys, monkeypatch):
    "Also one that ignores the signal to stop."
    monkeypatch.setattr(gate, 'GRACE', .5)
    deaf, start = 'import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)', time.monotonic()
    assert gate.run('sleeps', [sys.executable, '-c', deaf], .5) is None
    assert time.monotonic() - start < 30
    assert gate.run('fails', [sys.executable, '-c', 'print("reason"); raise SystemExit(1)']) is False
    assert 'reason' in capsys.readouterr().out


def test_the_environment_of_another_checkout_is_left_as_it_is(tmp_path):
    """Installing there would make the other checkout's commands run the code of this one."""
    for name in ('Makefile', 'pyproject.toml', 'constraints.txt'): shutil.copy(gate.ROOT / name, tmp_path)
    (tmp_path / 'other/bin').mkdir(parents=True)
    python = tmp_path / 'other/bin/python'
    python.write_text('#!/bin/sh\nexit 1\n')
    python.chmod(0o755)
    (tmp_path / '.venv').symlink_to('other')
    setup = lambda: subprocess.run(['make', 'setup'], cwd=tmp_path, capture_output=True, text=True)
    assert setup().returncode == 0 and not (tmp_path / 'other/.ready').exists()
    (tmp_path / '.venv').unlink()
    (tmp_path / 'other').rename(tmp_path / '.venv')
    assert setup().returncode != 0, 'an environment of its own is installed into'


def test_each_target_installs_once_and_only_what_it_needs(tmp_path):
    """`make demo` installs the packages of users, `make check` those of tests as well, in either order."""
    for name in ('Makefile', 'pyproject.toml', 'constraints.txt'): shutil.copy(gate.ROOT / name, tmp_path)
    log = tmp_path / 'log'
    for program in ('python', 'paranmt'):
        file = tmp_path / '.venv/bin' / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'#!/bin/sh\necho "{program} $*" >> {log}\n')
        file.chmod(0o755)

    def extras(*targets):
        "Extras of each installation that some targets begin."
        log.unlink(missing_ok=True)
        subprocess.run(['make', 'APP=0', *targets], cwd=tmp_path, check=True, capture_output=True)
        return re.findall(r'pip install .*\.\[(\S*)\]', log.read_text())

    users, everything = 'all', 'all,dev,peers'
    assert extras('demo') == [users] and extras('demo') == []
    assert extras('check') == [everything] and extras('check', 'demo') == []
    (tmp_path / '.venv/.ready').unlink()
    (tmp_path / '.venv/.complete').unlink()
    assert extras('check') == [users, everything] and extras('demo', 'check') == []
    project = tmp_path / 'pyproject.toml'
    project.write_text(project.read_text() + '\n# a comment changes no requirement\n')
    assert extras('demo', 'check') == []
    (tmp_path / 'constraints.txt').write_text('torch==2.13.0\n')
    assert extras('demo', 'check') == [users, everything]
    (tmp_path / '.venv/bin/python').write_text('#!/bin/sh\nexit 1\n')
    (tmp_path / 'constraints.txt').write_text('torch==2.12.0\n')
    for _ in range(2):  # a failed installation is tried again
        assert subprocess.run(['make', 'APP=0', 'demo'], cwd=tmp_path, capture_output=True).returncode


@pytest.mark.parametrize('text, found', [
    ('What is no negative.', ['a statement that begins with "What"', '"is no negative"']),
    ('It works. What remains is time.', ['a statement that begins with "What"']),
    ('What is a negative? A sentence.', []),
    ('Whoever reads it should know.', ['"whoever"']),
    ('The sign stands for a sum.', []),
    ('The row stands beside it.', ['"stands"']),
    ('A row a pair, written once.', ['"a row a pair"']),
    ('A killed build goes on with the next shard.', ['"goes on with", for a resumed run']),
])
def test_patterns_of_the_style_are_seen(text, found):
    assert [name for name, _ in wording.patterns_in(text)] == found


def test_misspellings_are_seen_in_prose_and_docstrings_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(wording, 'ROOT', tmp_path)
    page, script = tmp_path / 'page.md', tmp_path / 'script.py'
    page.write_text('We recieve `recieve` twice.')  # codespell:ignore
    script.write_text('def f():\n    "Seperate."\n    return "recieve"  # whole\n')  # codespell:ignore
    lines = wording.misspellings({path: list(wording.prose(path)) for path in (page, script)})
    assert sorted(line.partition(':')[0] for line in lines) == ['page.md', 'script.py']


def test_participles_are_seen_as_names_of_values_alone(tmp_path):
    module = tmp_path / 'module.py'
    module.write_text('def f(told, is_told, packed):\n    found = [told for _kept in packed]\n'
                      '    held_out = found.seen\n'
                      'class C:\n    done: int\n    def __init__(self, made): self.taken = made\n')
    assert sorted(wording.names_in(module)) == [(1, 'told'), (2, '_kept'), (2, 'found')]
