"""The README's five lines and the example of each command run in one workspace; the commands of the docs are parsed."""
import os
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from command import paranmt as run_command
from paranmt_lab.cli.commands import COMMANDS, load_command, renamed
from paranmt_lab.cli.options import given_fields
from paranmt_lab.ground.settings import settings

ROOT = Path(__file__).parents[2]
PAGES = ['README.md', *sorted(f'docs/{page.name}' for page in (ROOT / 'docs').glob('*.md'))]
ELSEWHERE = {  # Examples that others run: they take minutes (`make soak`), never end, or need a network
    'demo': 'tests/test_wheel.py', 'app': 'tests/cli/test_cli.py',
    'workspace fetch': 'nbs/7_command/cli/14_workspace.ipynb'}


def lines_of(page):
    "The commands of a page's shell blocks."
    blocks = re.findall(r'```sh\n(.*?)```', (ROOT / page).read_text(encoding='utf-8'), re.S)
    lines = [line.partition(' #')[0] for block in blocks for line in block.splitlines()]
    return [part.strip() for line in lines for part in line.split('&&') if part.strip().startswith('paranmt ')]


@pytest.mark.parametrize('page', PAGES)
def test_the_commands_of_the_docs_are_those_of_today(page):
    for line in lines_of(page):
        words = shlex.split(line.replace('...', ''))[1:]
        assert renamed(words) is None, f'{page}: {line}'
        name = next((key for key in (' '.join(words[:2]), words[0]) if key in COMMANDS), None)
        if words[-1] == '--help' and not name: continue  # of the program, or of a group
        assert name, f'{page}: {line}'
        command = load_command(name)
        context = command.make_context(name, words[len(name.split()):])
        if command.takes and context.params['set_']:
            kind = command.takes.kind_of(words[len(name.split()):])
            given_fields(kind, None, context.params['set_'], {}, command.takes.but)


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    "A folder with the files that the examples read, and resources with two small sets of STS."
    folder = tmp_path_factory.mktemp('examples')
    rows = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3)
    rows.head(300).to_csv(folder / 'corpus.tsv', sep='\t', index=False)
    (folder / 'sentences.txt').write_text('The tram is late.\nIt rains.\n', encoding='utf-8')
    graded = pd.read_csv(settings().sample / 'graded.tsv', sep='\t', quoting=3)
    for path in ('2012/MSRpar.tsv', '2017/en-en.tsv'):
        (file := folder / 'resources/eval/sts' / path).parent.mkdir(parents=True)
        graded.to_csv(file, sep='\t', index=False)
    answers = graded.head(4).rename(columns=dict(sentence1='reference', sentence2='translation'))
    answers.assign(worker='ada', strength=[1, 2, 3, 3], fluency=3).drop(columns='score').to_csv(
        folder / 'theirs.csv', index=False)
    return folder


@pytest.fixture(scope='module')
def run(place):
    "Runs a command line in that folder."
    def run(line):
        here = Path.cwd()
        os.chdir(place)
        try:
            return run_command(line.removeprefix('paranmt '), PARANMT_WORKSPACE=str(place / 'data'), COLUMNS='100',
                               PARANMT_RESOURCES=str(place / 'resources'), PARANMT_WORKERS='1', PARANMT_DEVICE='cpu')
        finally: os.chdir(here)
    return run


@pytest.fixture(scope='module')
def five(run):
    "The README's five lines, run."
    lines = lines_of('README.md')
    assert [line.split()[1] for line in lines] == ['import', 'translate', 'score', 'select', 'train', 'evaluate']
    return {line: run(line) for line in lines}


def test_the_five_lines_of_the_readme_work(five):
    for line, done in five.items(): assert done.returncode == 0, f'{line}\n{done.stderr[-2000:]}'
    assert "Ours: Pearson's r x 100" in five[list(five)[-1]].stdout


def test_each_example_of_the_page_runs(five, run, place):
    for name in ('talk', 'news'): assert run(f'import corpus.tsv {name} --source-lang cs --limit 40').returncode == 0
    assert set(ELSEWHERE) < set(COMMANDS) and all((ROOT / file).is_file() for file in ELSEWHERE.values())
    last = ('workspace rename', 'workspace remove')  # the others need what these take away
    for words in [w for w in COMMANDS if w not in (*ELSEWHERE, *last)] + list(last):
        done = run(COMMANDS[words].example)
        assert done.returncode == 0, f'{COMMANDS[words].example}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}'
    assert (place / 'vectors.npy').is_file() and (place / 'word-for-others/README.md').is_file()
    assert (place / 'data/corpora/less').is_dir() and not (place / 'data/corpora/clean').exists()
