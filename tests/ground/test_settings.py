"""The settings file in other encodings, and temporary files that killed processes leave."""
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from paranmt_lab.corpora.derive import merge, sample_corpus
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import SettingsError, atomic, find_settings, load_settings, settings, whole_folder

INI = '[paranmt]\nworkspace = práce\nport = 9000\n'


def test_settings_with_a_byte_order_mark(tmp_path):
    file = tmp_path / 'settings.ini'
    file.write_text(INI, encoding='utf-8-sig')
    assert load_settings(file, {}).port == 9000 and load_settings(file, {}).workspace == tmp_path / 'práce'
    assert find_settings(tmp_path) == file


@pytest.mark.parametrize('encoding', ['latin-1', 'utf-16', 'utf-16-le'])
def test_settings_in_another_encoding_are_found_and_refused(tmp_path, encoding):
    file = tmp_path / 'settings.ini'
    file.write_text(INI, encoding=encoding)
    assert find_settings(tmp_path) == file, 'a file that cannot be read is not passed over in silence'
    with pytest.raises(SettingsError, match=r'settings\.ini.*UTF-8'): load_settings(file, {})


DIE = '''import os, signal, sys
from pathlib import Path
def die(*a): os.kill(os.getpid(), signal.SIGKILL)
'''


def kill_at(line, *arguments):
    "Run a program up to a call that kills it."
    command = [sys.executable, '-c', DIE + line, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def hidden(folder): return sorted(p.name for p in folder.rglob('.*'))


def test_the_next_writer_removes_a_killed_ones_file(tmp_path):
    file = tmp_path / 'a.txt'
    kill_at("from paranmt_lab.ground.settings import atomic\nos.replace = die\nwith atomic(Path(sys.argv[1])) as part: "
            "part.write_text('half'); part.with_name(part.name + '.wal').write_text('log')", file)
    assert len(hidden(tmp_path)) == 2 and not file.exists()
    with atomic(tmp_path / 'b.txt') as part: part.write_text('another')
    assert len(hidden(tmp_path)) == 2, 'files of another name are not touched'
    with atomic(file) as part: part.write_text('whole')
    assert hidden(tmp_path) == [] and file.read_text() == 'whole'


def test_the_file_of_a_process_at_work_is_left_alone(tmp_path):
    file = tmp_path / 'a.txt'
    program = ("import sys; from pathlib import Path; from paranmt_lab.ground.settings import atomic\n"
               "with atomic(Path(sys.argv[1])) as part:\n    part.write_text('first')\n"
               "    print('ready', flush=True)\n    sys.stdin.read()")
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    worker = subprocess.Popen([sys.executable, '-c', program, file], **pipes)
    assert worker.stdout.readline() == 'ready\n'
    ago = time.time() - 100_000
    for left in tmp_path.glob('.*'): os.utime(left, (ago, ago))
    with atomic(file) as part: part.write_text('second')
    assert len(hidden(tmp_path)) == 1 and file.read_text() == 'second'
    worker.communicate('')
    assert worker.returncode == 0 and hidden(tmp_path) == [] and file.read_text() == 'first'


def test_the_file_of_another_machine_is_left_alone_for_a_day(tmp_path):
    left = tmp_path / '.a.txt.0000ffff-1-1.part'
    left.touch()
    with atomic(tmp_path / 'a.txt') as part: part.touch()
    assert left.exists()
    ago = time.time() - 100_000
    os.utime(left, (ago, ago))
    with atomic(tmp_path / 'a.txt') as part: part.touch()
    assert not left.exists()


def test_a_folder_that_stepped_aside_for_a_killed_writer_comes_back(tmp_path):
    folder = tmp_path / 'model'
    with whole_folder(folder, bool) as part: (part / 'weights').write_text('old')
    kill_at("from paranmt_lab.ground.settings import whole_folder\nrename = Path.rename\n"
            "Path.rename = lambda a, b: die() if a.suffix == '.part' else rename(a, b)\n"
            "with whole_folder(Path(sys.argv[1]), bool) as part: (part / 'weights').write_text('new')", folder)
    assert not folder.exists() and len([n for n in hidden(tmp_path) if 'model' in n]) == 2
    with pytest.raises(ZeroDivisionError), whole_folder(folder, bool): 1 / 0
    assert hidden(tmp_path) == [] and (folder / 'weights').read_text() == 'old'


@pytest.mark.parametrize('call', ["merge([a, b], 'new', 4, s)", "sample_corpus([a, b], 'new', 11, 0, 4, s)"])
def test_a_merge_and_a_sample_leave_nothing_behind_after_a_kill(tmp_path, call):
    s = replace(settings(), workspace=tmp_path)
    rows = {'reference': [f'sentence {i}' for i in range(9)], 'translation': [f'a sentence {i}' for i in range(9)]}
    a, b = (Corpus.create(name, s) for name in 'ab')
    for corpus in (a, b): corpus.write_pairs(0, rows)
    kill_at("from dataclasses import replace\nfrom paranmt_lab.ground.settings import settings\n"
            "from paranmt_lab.corpora.query import Corpus\n"
            "from paranmt_lab.corpora.derive import merge, sample_corpus\n"
            "s = replace(settings(), workspace=Path(sys.argv[1]))\n"
            "a, b = (Corpus.open(n, s) for n in 'ab')\nmove = os.replace\n"
            f"os.replace = lambda x, y: die() if 'part-00001.parquet' in str(y) else move(x, y)\n{call}", tmp_path)
    new = tmp_path / 'corpora/new'
    assert hidden(new)
    for left in ('.index.duckdb', '.progress.json'): # this work does not write them again
        (new / hidden(new)[0].replace('.part-00001.parquet', left)).touch()
    made = eval(call, dict(merge=merge, sample_corpus=sample_corpus, a=a, b=b, s=s))
    assert hidden(new) == [] and made.check().empty and made.rows in (18, 11)
