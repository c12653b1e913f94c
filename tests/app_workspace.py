"""A small workspace for the app's tests, made from the sample through the same functions as any other.

As a program it makes one to look at:
    python tests/app_workspace.py FOLDER && PARANMT_WORKSPACE=FOLDER streamlit run app.py"""
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from paranmt_lab.bitext.importing import import_bitext
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation.results import record_results
from paranmt_lab.evaluation.tasks import BASELINES, evaluate
from paranmt_lab.filters.scoring import score
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.training import ship_generator, train_generator
from paranmt_lab.ground.settings import Settings, settings
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.jobs.run import Run
from paranmt_lab.lexicon.building import build_lexicon
from paranmt_lab.lexicon.shards import Conditions
from paranmt_lab.selection import Selection, select
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train

ROOT = Path(__file__).resolve().parents[1]
SHORT = {"n't": ' not', "'m": ' am', "'re": ' are', "'ll": ' will', "'ve": ' have', "'s": ' is'}
HOSTILE = [
    '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">',
    '[click](javascript:window.hacked=1) ![see](http://198.51.100.7/pixel.png) '
    '<iframe src="http://198.51.100.7/"></iframe>',
    'right to left: שלום עולם مرحبا, and turned \u202etxt.exe\u202c back',
    'a NUL \x00, a bell \x07, a tab\tand\na line end',
    '🐎🧵👩‍👩‍👧‍👦 ' + 'emoji ' * 3,
    'very long ' * 1000,
    '$E = mc^2$ :material/delete: **bold** `code` {{ 7 * 7 }}',
    "Robert'); DROP TABLE pairs;--"]


def reworded(sentence: str, way: int) -> str:
    "A rewording by rule, standing in for a translation: opened contractions, a word less, another order."
    words = sentence.split()
    if way == 0:
        for short, full in SHORT.items(): sentence = sentence.replace(short, full)
        return sentence
    if way == 1: return ' '.join(w for i, w in enumerate(words) if i != len(words) // 2)
    half = len(words) // 2
    return ' '.join([*words[half:], *words[:half]]).lower()


def back_translated(bitext: Corpus, s: Settings) -> Corpus:
    "Three renderings of each sentence; every ninth belongs to another sentence, as in a misaligned file."
    pairs = bitext.frame(['source', 'reference', 'corpus', 'segment'])
    rows = [
        dict(source=p.source, reference=p.reference, corpus=p.corpus,
             segment=p.segment, source_lang='cs', system='rules', rank=way + 1,
             translation=reworded(pairs.reference[(i + 300) % len(pairs)] if (i + way) % 9 == 0 else p.reference, way),
             log_probability=-(1. + way) * (2 + i % 5), translation_score=-(1. + way) / (2 + i % 5))
        for i, p in enumerate(pairs.itertuples()) for way in range(3)]
    corpus = Corpus.create('talk-reworded', s)
    for shard, start in enumerate(range(0, len(rows), 2000)):
        corpus.write_pairs(shard, pd.DataFrame(rows[start:start + 2000]))
    corpus.write_manifest('translate', dict(engine='three rules of tests/app_workspace.py',
                                            beam_size=3, pairs=len(rows), finished=provenance()))
    return corpus


def evaluated(name: str, s: Settings):
    "A baseline as a run that has results and nothing else."
    results = evaluate(BASELINES[name], graded_file=s.sample / 'graded.tsv', s=s)
    record_results(Run.create(s.runs, name, dict(system=name)), name, results)


def build(folder: Path) -> Settings:
    "Import, reword, train, score, select, train, evaluate."
    s = replace(settings(), workspace=Path(folder).resolve())
    bitext = import_bitext(s.sample / 'bitext.cs-en.tsv', 'sample', s, licence='CC0-1.0')
    corpus = back_translated(bitext, s)
    small = dict(corpus=corpus.name, dim=48, batch_size=50, epochs=4, learning_rate=0.01, probes=8)
    first = train(train_config('trigram-m1', model='TRIGRAM', megabatch=1, **small), s, show=False)
    score(corpus, models={'encoder:trigram-m1': first.folder / 'encoder'}, show=False)
    select(corpus, Selection('strong', ranges=(('paraphrase_score@trigram-m1', 0.6, 1.0),),
                             reason='Pairs that the first encoder finds alike.'))
    train(train_config('word-trigram-m20', model='WORD,TRIGRAM', selection='strong', megabatch=20, **small),
          s, show=False)
    evaluated('token-overlap', s)
    build_lexicon(corpus, 'words', s, Conditions(score=''), show=False)
    make_generator(s)
    hostile = Corpus.create('hostile', s)
    hostile.write_pairs(
        0, pd.DataFrame({'reference': HOSTILE, 'translation': HOSTILE[::-1], 'corpus': ['<b>web</b>'] * len(HOSTILE)}))
    score(hostile, models={'encoder:trigram-m1': first.folder / 'encoder'}, show=False)
    return s


def make_generator(s):
    "A generator of a few training steps; its run lies elsewhere, so that it is in no list of runs."
    pairs = pd.read_csv(s.sample / 'graded.tsv', sep='\t', quoting=3).query('score >= 4')
    pairs = pairs.set_axis(['reference', 'translation', 'score'], axis=1).assign(corpus='talk')
    config = GeneratorConfig('tiny', pieces=300, dim=16, hidden=16, steps=4, evaluate_every=0, development=0)
    with TemporaryDirectory() as elsewhere:
        run = train_generator(config, pairs, replace(s, workspace=Path(elsewhere), device='cpu'), show=False)
        ship_generator(run, s, 'by hand')


def free_port() -> int:
    "A port that nobody listens on."
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def wait_for(port: int, log: Path):
    "Wait until an app answers, at most two minutes."
    for _ in range(240):
        try: return urllib.request.urlopen(f'http://127.0.0.1:{port}/_stcore/health', timeout=5)
        except OSError: time.sleep(0.5)
    raise TimeoutError(log.read_text()[-2000:])


@contextmanager
def serving(workspace: Path, *options: str, port: int = 0, script: Path = ROOT / 'app.py', **variables: str):
    "The app on a workspace while the block lasts: its address and process. Then its log must not hold a traceback."
    port, log = port or free_port(), Path(workspace) / 'app.log'
    with log.open('wb') as out:
        server = subprocess.Popen(
            [sys.executable, '-m', 'streamlit', 'run', str(script), '--server.port', str(port), '--server.address',
             '127.0.0.1', '--server.headless', 'true', '--server.fileWatcherType', 'none', *options],
            env=os.environ | {'PARANMT_WORKSPACE': str(workspace), 'OMP_NUM_THREADS': '1'} | variables,
            cwd=ROOT, stdout=out, stderr=out)
        try:
            wait_for(port, log)
            yield f'http://127.0.0.1:{port}', server
        finally:
            server.terminate()
            server.wait(30)
    assert 'Traceback' not in log.read_text(errors='replace'), log.read_text(errors='replace')[-3000:]


if __name__ == '__main__': build(Path(sys.argv[1]))
