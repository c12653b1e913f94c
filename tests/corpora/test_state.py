"""A corpus that is half made, or lost a shard, is not taken for a whole one: by the library, and by each command that
reads a corpus."""
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from command import paranmt
from paranmt_lab.annotation.campaigns import Campaign, create_campaign
from paranmt_lab.annotation.store import EventLog
from paranmt_lab.bitext.importing import import_bitext
from paranmt_lab.corpora.derive import deduplicate, merge, sample_corpus
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.corpora.state import state_of
from paranmt_lab.ground.settings import settings, write_json
from paranmt_lab.selection import Selection, select
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.translate.driver import translate_corpus


@pytest.fixture
def lab(tmp_path): return replace(settings(), workspace=tmp_path)


@pytest.fixture
def talk(tmp_path):
    "A file of 40 pairs."
    file = tmp_path / 'talk.cs-en.tsv'
    file.write_text(''.join(f'Věta číslo {i}.\tSentence number {i}.\n' for i in range(40)), encoding='utf-8')
    return file


@pytest.fixture
def imported(lab, talk): return import_bitext(talk, 'talk', lab, shard_rows=10)


@pytest.fixture
def half(imported):
    "The corpus as a killed import leaves it: two of four shards, a manifest that says running, a process that is gone."
    for path in imported.shards[2:]: path.unlink()
    facts = {k: v for k, v in imported.manifest('import').items() if k not in ('pairs', 'shards', 'checksums')}
    imported.write_manifest('import', facts | dict(status='running', pid=2**22 + 1))
    write_json(imported.folder / 'progress.json',
               dict(status='running', what='bytes', done=700, total=1400, pid=2**22 + 1, updated=time.time()))
    return imported


@pytest.fixture
def lost(imported):
    imported.shards[1].unlink()
    return imported


DERIVING = {
    'translate': lambda c, s: translate_corpus(c, 'new', 'ct2:marian-cs-en-tiny', s),
    'select': lambda c, s: select(c, Selection('new')), 'merge': lambda c, s: merge([c], 'new', s=s),
    'deduplicate': lambda c, s: deduplicate([c], 'new', s=s), 'sample': lambda c, s: sample_corpus([c], 'new', 5, s=s),
    'train': lambda c, s: train(train_config('new', c.name), s, show=False),
    'campaign': lambda c, s: create_campaign(EventLog(s.annotations),
                                             Campaign('new', corpus=c.name, measure='', ranges=()), s)}


@pytest.mark.parametrize('what', DERIVING)
def test_nothing_is_derived_from_a_half_imported_corpus(half, lab, what):
    with pytest.raises(ValueError, match='talk.* is not whole: import stopped at 700 of 1,400 bytes, 20 pairs so far; '
                       '.*paranmt import .* talk.*finishes it'):
        DERIVING[what](half, lab)
    assert not (lab.corpora / 'new').exists() and not (lab.runs / 'new').exists()
    assert not list(half.folder.glob('selections/*'))


@pytest.mark.parametrize('what', DERIVING)
def test_nothing_is_derived_from_a_corpus_that_lost_a_shard(lost, lab, what):
    with pytest.raises(ValueError, match='talk.* is damaged: 1 of 4 shards missing: pairs/part-00001.parquet'):
        DERIVING[what](lost, lab)
    assert not (lab.corpora / 'new').exists() and not (lab.runs / 'new').exists()


def test_states(lab, half, talk):
    assert state_of(Corpus.create('new', lab)).status == 'empty' and state_of(half).status == 'stopped'
    half.write_manifest('import', half.manifest('import') | dict(pid=os.getpid()))
    assert state_of(half).status == 'running' and 'wait for it' in state_of(half).notes[0]
    half.write_manifest('import', half.manifest('import') | dict(pid=None))
    write_json(half.folder / 'progress.json',
               dict(status='failed', what='bytes', done=700, total=1400, error='OSError: disk full'))
    assert state_of(half).status == 'failed' and 'disk full' in state_of(half).notes[0]
    again = import_bitext(talk, 'talk', lab, shard_rows=10)
    assert again.rows == 40 and state_of(again) == ('finished', [])


def test_the_same_import_writes_the_shards_that_were_lost(imported, lab, talk):
    before, shards = imported.checksums, imported.shards
    shards[1].unlink()
    shards[2].write_bytes(b'PAR1')
    assert state_of(imported).status == 'damaged'
    shards[2].unlink()  # as its note says
    assert import_bitext(talk, 'talk', lab, shard_rows=10).checksums == before
    assert state_of(imported).status == 'finished'


def test_the_same_merge_writes_the_shards_that_were_lost(imported, lab):
    made = merge([imported], 'made', 10, lab)
    before = made.checksums
    made.shards[1].unlink()
    assert state_of(made).status == 'damaged' and merge([imported], 'made', 10, lab).checksums == before


SLOW = '''
import sys, time
from pathlib import Path
from paranmt_lab.bitext import importing
from paranmt_lab.ground.settings import settings
flush = importing.ShardWriter.flush
def slow(self): flush(self); self.shard == 2 and time.sleep(60)
importing.ShardWriter.flush = slow
importing.import_bitext(Path(sys.argv[1]), 'talk', settings(), shard_rows=10)
'''


def test_a_killed_import(lab, talk, tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    job = subprocess.Popen([sys.executable, '-c', SLOW, talk], stderr=subprocess.DEVNULL)
    while not len(list(tmp_path.glob('corpora/talk/pairs/part-*.parquet'))) == 2:
        assert job.poll() is None
        time.sleep(.05)
    corpus = Corpus.open('talk', lab)
    assert state_of(corpus).status == 'running'
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert state_of(corpus).status == 'stopped' and '20 pairs so far' in state_of(corpus).notes[0]


def run_command(workspace, *words):
    "Exit code, standard output and standard error of a command."
    done = paranmt(words, PARANMT_WORKSPACE=str(workspace))
    return done.returncode, done.stdout, ' '.join(done.stderr.split())


@pytest.mark.parametrize('words',
                         [['score', 'talk', 'reference_length'], ['select', 'talk', 'all'],
                          ['corpus', 'sample', 'talk', 'few', '--n', '3'], ['corpus', 'export', 'talk', 'talk.jsonl']])
def test_commands_say_what_is_wrong_with_a_corpus(lost, lab, words):
    code, _, errors = run_command(lab.workspace, *words)
    assert ('talk: 1 of 4 shards missing: pairs/part-00001.parquet; restore from a copy, or give `paranmt import '
            in errors)
    assert code == (0 if words[0] == 'score' else 1)
