"""The command line as people meet it: start-up time, helps, tables, errors."""
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from command import paranmt as run_command
from paranmt_lab import __version__
from paranmt_lab.cli.commands import COMMANDS, NEW_WORDS, PANELS, load_command
from paranmt_lab.cli.script import ancestors, command_for, script_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.settings import settings, write_json
from paranmt_lab.jobs.progress import Progress
from paranmt_lab.project.lineage import Lineage, Thing

HEAVY = ('torch', 'numba', 'scipy', 'sqlalchemy', 'transformers', 'ctranslate2', 'sentencepiece',
         'sklearn', 'umap', 'altair', 'streamlit', 'ray')


@pytest.fixture
def paranmt(tmp_path):
    """Runs a command in a workspace of its own."""
    def run(line, **variables):
        return run_command(line, **dict(PARANMT_WORKSPACE=str(tmp_path / 'data'), COLUMNS='80') | variables)
    return run


@pytest.fixture
def started(tmp_path):
    """Runs a command in a workspace of its own, in a process of its own."""
    def run(line, **variables):
        environment = os.environ | dict(PARANMT_WORKSPACE=str(tmp_path / 'data'), COLUMNS='80') | variables
        words = [sys.executable, '-m', 'paranmt_lab', *shlex.split(line)]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    return run


@pytest.mark.parametrize('line, absent', [('--help', (*HEAVY, 'pandas', 'duckdb')),
                                          ('corpus --help', (*HEAVY, 'pandas', 'duckdb')),
                                          ('import --help', HEAVY),
                                          ('select --help', HEAVY), ('train --help', HEAVY),
                                          ('model train translation --options', HEAVY), ('workspace list', HEAVY)])
def test_a_command_does_not_load_libraries_that_it_does_not_use(line, absent, tmp_path):
    program = f'''
import sys
from paranmt_lab.cli.main import app
app({line.split()}, standalone_mode=False)
print('loaded:', [name for name in {absent} if name in sys.modules])'''
    environment = os.environ | dict(PARANMT_WORKSPACE=str(tmp_path))
    done = subprocess.run([sys.executable, '-c', program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == 'loaded: []', done.stdout + done.stderr


@pytest.mark.parametrize('line, seconds', [('--help', .5), ('workspace list', 1.5)])
def test_start_up_is_quick(tmp_path, line, seconds):
    """CPU seconds, the best of three; on a quiet machine 0.25 and 0.9."""
    def once():
        words, environment = [sys.executable, '-m', 'paranmt_lab', *line.split()], os.environ | dict(
            PARANMT_WORKSPACE=str(tmp_path))
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        return used.ru_utime + used.ru_stime
    assert min(once() for _ in range(3)) < seconds


@pytest.mark.parametrize('words', COMMANDS)
def test_each_help_is_short_and_ends_with_an_example_that_is_understood(words, paranmt):
    shown = paranmt(f'{words} --help').stdout
    assert len(shown.splitlines()) <= 45, 'show fewer options of the config, or shorten a comment'
    assert shown.rstrip().endswith(COMMANDS[words].example)
    command = load_command(words)
    assert [p.name for p in command.params if not p.help] == []
    command.make_context(words, shlex.split(COMMANDS[words].example)[1 + len(words.split()):])


def test_the_first_help_fits_on_a_screen(paranmt):
    shown = paranmt('--help').stdout
    assert len(shown.splitlines()) <= 30 and max(map(len, shown.splitlines())) <= 80
    assert re.findall('╭─ (.*?) ─', shown) == ['Options', *PANELS]
    assert len(COMMANDS) <= 38


@pytest.mark.parametrize('line', ['table', 'list', 'corpus import-paranmt p two.txt', 'annotate pause none',
                                  'note r short'])
def test_a_name_of_the_earlier_version_answers_with_the_new_one(paranmt, line):
    said = paranmt(line).stderr.splitlines()[0]
    assert said.startswith('This is now: paranmt '), said


def test_every_renamed_command_leads_to_one_of_today():
    for old, new in NEW_WORDS.items():
        words = new.split()
        assert any(' '.join(words[:n]) in COMMANDS for n in (1, 2)), old
        assert old not in COMMANDS, old


def test_no_message_names_a_command_of_the_earlier_version():
    "The package, the docs and the notebooks with their outputs name commands of today."
    words = '|'.join(sorted(NEW_WORDS, key=len, reverse=True))
    old, root = re.compile(rf'paranmt (?:{words})\b'), Path(__file__).parents[2]
    files = [*root.glob('paranmt_lab/**/*.py'), *root.glob('docs/**/*.md'), *root.glob('nbs/**/*.ipynb'),
             root / 'README.md', root / 'app.py']
    table = ('commands.py', '03_commands.ipynb') # that translates them
    assert not [(file.name, match[0]) for file in files if file.name not in table
                for match in old.finditer(file.read_text(encoding='utf-8'))]


def test_settings_come_from_a_file_then_set_then_options(paranmt, tmp_path):
    rows = ''.join(f'Sentence {i} is here.\tHere is sentence {i}.\n' for i in range(30))
    (tmp_path / 'talk.tsv').write_text('reference\ttranslation\n' + rows, encoding='utf-8')
    assert paranmt(f'import {tmp_path}/talk.tsv talk').returncode == 0
    (tmp_path / 'small.toml').write_text('[encoder]\ndim = 7\n[optimizer]\nepochs = 1\nbatch_size = 10\n'
                                         '[run]\nprobes = 0\n', encoding='utf-8')
    done = paranmt(f'train talk word --config {tmp_path}/small.toml --set dim=8 --set optimizer.epochs=3 --epochs 2')
    assert done.returncode == 0, done.stderr
    kept = tmp_path / 'data/runs/word/config.toml'
    config = tomllib.loads(kept.read_text(encoding='utf-8'))
    assert (config['encoder']['dim'], config['optimizer']['epochs'], config['optimizer']['batch_size']) == (8, 2, 10)
    assert 'epochs = 2' in done.stderr  # what was given is printed
    again = paranmt(f'train talk again --config {kept} --seed 5')  # the whole run, with another seed
    other = tomllib.loads((tmp_path / 'data/runs/again/config.toml').read_text(encoding='utf-8'))
    assert again.returncode == 0 and other['run'] | dict(seed=0, name='word') == config['run']
    assert {k: v for k, v in other.items() if k != 'run'} == {k: v for k, v in config.items() if k != 'run'}


MISTAKES = {  # a command line to what it is answered, with code 2
    'train talk word --epochs 0': 'epochs = 0, expected 1 to 100000',
    'train talk word --epochs many': "epochs = 'many', expected int",
    'train talk word --set epoch=3': 'did you mean optimizer.epochs',
    'train talk word --set encoder.epochs=3': 'did you mean optimizer.epochs',
    'train talk word --set epochs': "'epochs' is not NAME=VALUE",
    'train talk word --set name=x': 'name is given by an argument or option of its own',
    'generate tiny word --set beam_size=3': 'beam_size is given by an argument or option of its own',
    'model train classifier talk mine --force': 'a classifier has a run, which is never replaced',
    'train talk word --config none.toml': 'none.toml',
    'train talk word --vary seed=1,2 --seed 3': 'seed is given as an option too',
    'train talk': "Missing argument 'NAME'",
    'select talk few --range trigram_overlap': 'is not MEASURE=LOW:HIGH',
    'select talk few --quota talk=1 --quota talk=2': 'a name is given twice',
    'select talk few --max-length nine': "max_length = 'nine', expected int",
    'model train scorer talk mine': 'expected translation, shortlist, generator',
    'model train shortlist talk mine --set each=0': 'each = 0, expected 1',
    'model train calibration talk mine': 'expected ratings from one place',
    'corpus sample word talk': 'the source comes first',
    'score': 'name a corpus',
    'results table paranmt.1 --format html': 'is not one of text',
    'workspace show corpus:talk --note short': 'notes are kept with runs',
    'lst': "No such command 'lst'",
}

@pytest.mark.parametrize('line', MISTAKES)
def test_a_typical_mistake_is_not_begun_and_is_told(paranmt, tmp_path, line):
    talk = Corpus.create('talk', replace(settings(), workspace=tmp_path / 'data'))
    talk.write_pairs(0, dict(reference=['It rains.']))
    things = lambda: sorted(path for path in (tmp_path / 'data').rglob('*') if 'cache' not in path.parts)
    before = things()
    done = paranmt(line, COLUMNS='200')
    assert done.returncode == 2 and MISTAKES[line] in ' '.join(done.stderr.split()), done.stderr
    assert 'Traceback' not in done.stderr and things() == before


def test_a_flag_of_the_earlier_version_is_a_setting(paranmt, tmp_path):
    talk = Corpus.create('talk', replace(settings(), workspace=tmp_path / 'data'))
    talk.write_pairs(0, dict(reference=['It rains.']))
    done = paranmt('train talk word --peepholes --clip 0 --no-quirks --dropout=2')
    assert done.returncode == 2 and 'dropout = 2.0, expected 0 to 0.99' in ' '.join(done.stderr.split())
    assert [line for line in done.stderr.splitlines() if ' is now: ' in line] == [
        '--peepholes is now: --set peepholes=yes', '--clip is now: --set clip=0', '--no-quirks is now: --set quirks=no',
        '--dropout is now: --set dropout=2']


def test_ctrl_c_ends_a_command_with_130(tmp_path):
    program = """
import sys
from paranmt_lab.cli import main, workspace
def interrupted(): raise KeyboardInterrupt
workspace.list_ = interrupted
sys.argv = ['paranmt', 'workspace', 'list']
main.main()"""
    (tmp_path / 'interrupted.py').write_text(program, encoding='utf-8')  # comments of parameters are read from a file
    command = [sys.executable, tmp_path / 'interrupted.py']
    done = subprocess.run(command, env=os.environ | dict(PARANMT_WORKSPACE=str(tmp_path)), capture_output=True)
    assert done.returncode == 130, done.stderr


def test_a_field_that_another_option_gives_is_not_dropped_from_a_file(paranmt, tmp_path):
    (tmp_path / 'plan.toml').write_text('n = 3\nguidelines = "Rate it."\n', encoding='utf-8')
    done = paranmt(f'annotate new talk first --config {tmp_path}/plan.toml')
    assert done.returncode == 2 and 'guidelines is given by an argument or option' in ' '.join(done.stderr.split())


def test_things_made_of_one_another_have_no_script():
    things = {key: Thing(key, 'run', key, '') for key in ('run:a', 'run:b')}
    graph = Lineage(things, [('run:a', 'run:b'), ('run:b', 'run:a')])
    with pytest.raises(ValueError, match='made of one another'): ancestors(graph, 'run:a')


def test_imported_values_are_not_scored_by_a_script(tmp_path):
    s = replace(settings(), workspace=tmp_path)
    corpus = Corpus.create('talk', s)
    corpus.write_pairs(0, dict(reference=['It rains.'], translation=['Rain.']))
    corpus.write_measure('chrf', 0, [.5])
    assert command_for(s, 'measures:talk@') == '' and '# needs corpus:talk' in script_of(s, 'measures:talk@')


def test_the_script_of_a_run_makes_it_again(paranmt, tmp_path):
    rows = ''.join(f'Sentence {i} is here.\tHere is sentence {i}.\n' for i in range(30))
    (tmp_path / 'talk.tsv').write_text('reference\ttranslation\n' + rows, encoding='utf-8')
    lines = [f'import {tmp_path}/talk.tsv talk', 'score talk lengths',
             'select talk short --max-length 5 --seed 1 --n 20',
             'train talk word --selection short --set dim=8 --epochs 1 --set batch_size=10 --set probes=0']
    for line in lines: assert paranmt(line).returncode == 0
    script = paranmt('workspace script word').stdout.splitlines()
    elsewhere = dict(PARANMT_WORKSPACE=str(tmp_path / 'again'))
    for line in script[3:]: assert paranmt(line.removeprefix('paranmt '), **elsewhere).returncode == 0, line
    first, second = (tmp_path / folder / 'runs/word/encoder/weights.safetensors' for folder in ('data', 'again'))
    assert first.read_bytes() == second.read_bytes()


def test_short_flags_version_and_completion(started, paranmt):
    assert started('--version').stdout == f'paranmt {__version__}\n'
    assert paranmt('-h').stdout == paranmt('--help').stdout
    assert paranmt('select -h').returncode == 0
    completed = started('', _PARANMT_COMPLETE='complete_bash', COMP_WORDS='paranmt corpus ', COMP_CWORD='2')
    assert completed.stdout.split() == [words.split()[1] for words in COMMANDS if words.startswith('corpus ')]


def one_line(done, code=1):
    """What a refused command says: one line, and no traceback."""
    assert done.returncode == code and 'Traceback' not in done.stderr, done.stderr
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize('where', ['rnk = 1', 'rank =', 'rank = one', 'reference > 3', 'rank = 1; DROP TABLE pairs',
                                   "rank = 'x", '1 = 1) OR (1'])
def test_a_mistake_in_sql_is_one_line_with_what_to_do(paranmt, tmp_path, where):
    bitext = tmp_path / 'talk.tsv'
    bitext.write_text('reference\ttranslation\nThe tram is late.\tThe tram came late.\n', encoding='utf-8')
    assert paranmt(f'import {bitext} talk').returncode == 0
    said = one_line(paranmt(f'annotate new talk first --measure none --where {shlex.quote(where)}'))
    assert repr(where) in said and 'columns are pair_id, segment' in said


@pytest.mark.parametrize('port', ['70000', '-1', '0x50', 'http'])
def test_a_port_out_of_range_is_refused_before_the_app_starts(paranmt, port):
    done = paranmt(f'app --port {port}')
    assert done.returncode == 2 and 'Invalid value for --port' in done.stderr.replace("'", '')


@pytest.mark.parametrize('words, mine', [([], True), (['--share'], False)])
def test_the_app_listens_on_this_machine_alone_unless_shared(words, mine, tmp_path):
    """Asks the operating system on which addresses the app's process listens."""
    psutil = pytest.importorskip('psutil')
    environment = os.environ | dict(PARANMT_WORKSPACE=str(tmp_path), COLUMNS='200')
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    command = [sys.executable, '-m', 'paranmt_lab', 'app', '--port', str(port), *words]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with subprocess.Popen(command, env=environment, **pipes) as app_process:
        try:
            found, end = set(), time.time() + 60
            while not found and time.time() < end and app_process.poll() is None:
                time.sleep(0.2)
                open_ports = psutil.Process(app_process.pid).net_connections()
                found = {c.laddr.ip for c in open_ports if c.status == 'LISTEN' and c.laddr.port == port}
        finally: app_process.terminate()
        output = app_process.stdout.read()
    assert found, output
    assert (found <= {'127.0.0.1', '::1'}) == mine
    assert ('there is no login' in output) != mine


def test_streamlit_run_listens_on_this_machine_alone():
    config = tomllib.loads((Path(__file__).parents[2] / '.streamlit/config.toml').read_text(encoding='utf-8'))
    assert config['server']['address'] == 'localhost'


def test_an_error_that_was_not_foreseen_keeps_its_traceback_in_a_file(paranmt, tmp_path):
    program = """
import sys
from paranmt_lab.cli import main
main.app.command('broken')(lambda: {}['fluency'])
sys.argv = ['paranmt', *sys.argv[1:], 'broken']
main.main()"""
    def run(*words, **more):
        command = [sys.executable, '-c', program, *words]
        return subprocess.run(command, env=os.environ | more, capture_output=True, text=True)

    done = run()
    first, second = done.stderr.splitlines()
    file = Path(re.search(r'(/\S+\.txt)', second)[1])
    assert done.returncode == 1 and first == "KeyError: 'fluency'" and 'Traceback' in file.read_text()
    file.unlink()
    for shown in (run('--debug'), run(PARANMT_DEBUG='1')):
        assert 'Traceback' in shown.stderr and '.txt' not in shown.stderr


def test_progress_is_a_line_every_ten_seconds_where_there_is_no_terminal(capfd, monkeypatch):
    now = [1_000.]
    monkeypatch.setattr('paranmt_lab.jobs.progress.time.time', lambda: now[0])
    with Progress(400, 'pairs') as progress:
        for _ in range(40):
            now[0] += 1
            progress.advance(10, loss=.25)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4 and lines[0] == '100 of 400 pairs, 10.0 pairs/s, 10 s, 30 s left, loss 0.25'
    with Progress(400, 'pairs') as quick: quick.advance(400)
    with Progress(400, 'pairs', show=False) as quiet:
        now[0] += 20
        quiet.advance(400)
    assert capfd.readouterr().err == ''


NAME = 'tram-and-bus-talk-of-june-2026'


@pytest.fixture(scope='module')
def scored_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp('scored')
    s = replace(settings(), workspace=folder)
    corpus = Corpus.create(NAME, s)
    corpus.write_pairs(0, pd.DataFrame(dict(
        reference=['The tram is late again.'] * 1234, translation='The tram came late.')))
    score(corpus, ['reference_length', 'translation_length', 'unigram_overlap', 'trigram_overlap'], workers=1)
    return folder


@pytest.fixture
def scored(scored_once, tmp_path):
    """A workspace with a scored corpus."""
    return shutil.copytree(scored_once, tmp_path / 'data')


@pytest.mark.parametrize('columns', ['40', '80', '200'])
def test_names_and_numbers_are_whole_at_any_width(paranmt, scored, columns):
    listed = paranmt('workspace list', COLUMNS=columns)
    assert listed.returncode == 0
    assert re.search(f'{NAME} +1,234 +1 ', listed.stdout)
    shown = paranmt(f'score {NAME}  reference_length trigram_overlap', COLUMNS=columns)
    assert re.search(r'reference_length +1,234 +0 +6\.000 +6\.000 +6\.000 +0\.000', shown.stdout)
    drawn = paranmt(f'corpus sample {NAME} few-{columns} --n 5', COLUMNS=columns)
    assert re.search(rf'few-{columns} +5 +1 ', drawn.stdout)
    assert '…' not in listed.stdout + shown.stdout + drawn.stdout


def test_a_corpus_that_cannot_be_read_is_listed_and_the_others_too(paranmt, scored):
    shutil.copytree(scored / f'corpora/{NAME}', scored / 'corpora/torn')
    next((scored / 'corpora/torn/pairs').glob('*.parquet')).write_bytes(b'PAR1')
    shutil.copytree(scored / f'corpora/{NAME}', scored / 'corpora/half-written')
    (scored / 'corpora/half-written/manifests/score-trigram_overlap.json').write_text('[1, 2]')
    (scored / 'corpora/elsewhere').symlink_to(scored / f'corpora/{NAME}')
    done = paranmt('workspace list', COLUMNS='300')
    assert done.returncode == 0 and re.search(f'{NAME} +1,234 ', done.stdout)
    reasons = {'torn': 'Parquet', 'half-written': 'score-trigram_overlap.json', 'elsewhere': 'a link to'}
    for name, why in reasons.items():
        assert re.search(f'^{name} cannot be read: .*({why})', done.stdout, re.M), done.stdout


def test_a_stopped_job_is_listed_with_the_command_that_goes_on(paranmt, scored):
    folder = scored / 'runs/first'
    folder.mkdir(parents=True)
    write_json(folder / 'config.json', dict(name='first', corpus=NAME, model='WORD'))
    command = f'paranmt train {NAME} first --epochs 3'
    write_json(folder / 'progress.json', dict(status='stopped', what='pairs', done=400, total=4996, command=command))
    shown = paranmt('workspace list', COLUMNS='300').stdout
    assert f'runs/first: stopped at 400 of 4,996 pairs; to resume: {command}' in shown


@pytest.mark.parametrize('line, remedy', [
    ('evaluate token-overlp --tasks STS17', 'the baselines are token-overlap, organisers-overlap, bleu'),
    ('select few short --max-length 9', 'give `paranmt score few reference_length translation_length` first')])
def test_an_error_names_what_to_do_instead(paranmt, tmp_path, line, remedy):
    s = replace(settings(), workspace=tmp_path / 'data')
    Corpus.create('few', s).write_pairs(0, dict(reference=['It rains.'], translation=['Rain.']))
    assert remedy in one_line(paranmt(line))


def test_without_a_figure_there_is_no_empty_table(paranmt, tmp_path):
    done = paranmt('evaluate token-overlap --tasks STS17 --protocols --no-paper', PARANMT_RESOURCES=str(tmp_path))
    assert 'Ours:' not in done.stdout and 'not available, not available' not in ' '.join(done.stdout.split())
    assert 'no table of protocols' in done.stdout and 'Not available here: STS17' in done.stdout


def test_graded_pairs_that_are_not_there_are_an_error(paranmt):
    done = paranmt('evaluate token-overlap --tasks SICK --graded nosuch.tsv')
    assert done.returncode == 1 and 'nosuch.tsv' in one_line(done)
