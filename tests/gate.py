"""Checks before a commit, on files as they are, committed or not.

    python tests/gate.py check    # files renewed and compared; ruff; wording and spelling; imports run downward
    python tests/gate.py quick    # the same, then notebooks and tests of what was changed, for a minute
"""
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
MINUTE = 60  # seconds that `quick` may take

RENEWALS = {
    'list of notebooks on the first page': [sys.executable, 'tests/test_notebooks.py'],
    'slim pictures': [sys.executable, 'tests/pictures.py'],
    'clean notebooks': [BIN / 'nbdev_clean'],
    'library as the notebooks export it': [BIN / 'nbdev_export'],
    'page of the command line': [sys.executable, 'docs/command_line.py'],
}


def generated():
    "Files that a renewal may write, with their digests."
    files = [ROOT / 'pyproject.toml', ROOT / 'docs/command-line.md', *(ROOT / 'nbs').rglob('*.ipynb'),
             *(ROOT / 'paranmt_lab').rglob('*.py')]
    return {str(f.relative_to(ROOT)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


GRACE = 10  # Seconds that a command has to end in when it is stopped


def run(title, command, seconds=None):
    "Run a command on this checkout; print its name and time, and its output where it fails. None: its time was over."
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, text=True, env=os.environ | {'PYTHONPATH': str(ROOT)},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # a test stops the servers that it started
        try: process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:  # a process of a background job may ignore the signal
            process.kill()
            process.communicate()
        return None
    print(f'{time.perf_counter() - start:5.1f} s  {title}', flush=True)
    if process.returncode: print(output)
    return process.returncode == 0


def keep_time(path, seconds, text):
    "Give a file that was written anew with the same text its time back: `make` installs again after a younger one."
    if path.read_bytes() == text: os.utime(path, (seconds, seconds))


def check():
    "Remedies for what is not in order."
    remedies, before = [], generated()
    project = ROOT / 'pyproject.toml'
    written, text = project.stat().st_mtime, project.read_bytes()
    for title, command in RENEWALS.items():
        if not run(title, command): remedies.append(f'mend the notebook that is named above: {title}')
    keep_time(project, written, text)  # nbdev_export writes it every time
    after = generated()
    if changed := sorted(f for f in before | after if before.get(f) != after.get(f)):
        files = ''.join(f'\n    {f}' for f in changed)
        remedies.append(f'renewed just now; look at them with `git diff` and commit them with the notebooks:{files}')
    if not run('ruff', [BIN / 'ruff', 'check', '--output-format', 'concise', '.']):
        remedies.append('mend what ruff names; it sorts imports itself: .venv/bin/ruff check --fix --select I .')
    if not run('wording and spelling', [sys.executable, 'tests/wording.py']):
        remedies.append('rewrite the places named above; docs/style.md has examples')
    if not run('types', [BIN / 'mypy']):
        remedies.append('mend what mypy names')
    if not run('imports run downward', [BIN / 'lint-imports']):
        remedies.append('move what is imported to a lower floor, or the notebook that needs it to a higher one')
    return remedies


def git(*words, check=True):
    "Lines that git prints."
    process = subprocess.run(['git', *words], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=check)
    return process.stdout.splitlines()


def changed_files():
    "Files that differ from the remote main branch, or from the last commit; where none do, those of the last commit."
    base = git('rev-parse', '--verify', '--quiet', 'origin/main', check=False)
    own = git('merge-base', base[0], 'HEAD') if base else ['HEAD']
    files = {*git('diff', '--name-only', own[0]), *git('ls-files', '--others', '--exclude-standard')}
    files = files or set(git('diff', '--name-only', 'HEAD~1'))
    return sorted(f for f in files if (ROOT / f).exists())


def modules_of(notebooks):
    "Modules that the notebooks export."
    texts = [(ROOT / f).read_text(encoding='utf-8') for f in notebooks]
    return [f'paranmt_lab.{match[1]}' for text in texts if (match := re.search(r'#\| *default_exp ([\w.]+)', text))]


def tests_of(files):
    "Commands for what was changed: tests that were edited, notebooks, and tests that import the notebooks' modules."
    tests = [f for f in files if re.fullmatch(r'tests/(?:\w+/)?test_\w+\.py', f)]
    notebooks = [f for f in files if re.fullmatch(r'nbs/\d_\w+/\w+/\d\d_\w+\.ipynb', f)]
    named = '|'.join(re.escape(module) for module in modules_of(notebooks))
    for path in sorted((ROOT / 'tests').rglob('test_*.py')) if named else []:
        test = str(path.relative_to(ROOT))
        if test not in tests and re.search(rf'\b({named})\b', path.read_text(encoding='utf-8')): tests.append(test)
    yield from ((f, [BIN / 'nbdev_test', f, '--n-workers', '0']) for f in notebooks)
    yield from ((f, [BIN / 'pytest', '-x', f]) for f in tests)


def quick():
    "Check, then test what was changed for a minute; what had no time is named."
    remedies, unfinished = check(), []
    end = time.perf_counter() + MINUTE
    for title, command in tests_of(changed_files()):
        left = end - time.perf_counter()
        passed = run(title, command, left) if left > 1 else None
        if passed is None: unfinished.append(title)
        elif not passed: remedies.append(f'mend {title}')
    return remedies, unfinished


if __name__ == '__main__':
    start = time.perf_counter()
    remedies, unfinished = quick() if sys.argv[1:] == ['quick'] else (check(), [])
    for remedy in remedies: print(f'NOT IN ORDER: {remedy}')
    untested = f"; not tested within {MINUTE} s: {', '.join(unfinished)} (`make test` runs all)" if unfinished else ''
    print(f"{'not ' * bool(remedies)}in order, {time.perf_counter() - start:.0f} s{untested}")
    sys.exit(bool(remedies))
