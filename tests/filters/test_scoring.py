"""Scoring asks the table of measures what each takes.

It is killed and resumed, stopped by the app, and leaves older corpora as they are.
"""
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest

from command import paranmt
from paranmt_lab.components.links import at_work
from paranmt_lab.corpora.layout import Shard
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters import scoring
from paranmt_lab.filters.scoring import score
from paranmt_lab.filters.table import MEASURES, Measure, column, model, model_kind, other_measure, tokens
from paranmt_lab.ground.settings import settings, write_json
from paranmt_lab.jobs.progress import ask_to_stop, read_progress

OVERLAPS = [name for name, m in MEASURES.items() if m.function and not model_kind(name)]


@pytest.fixture
def corpora(tmp_path):
    lab = replace(settings(), workspace=tmp_path)
    names = (f'c{i}' for i in range(10_000))
    return lambda: Corpus.create(next(names), lab)


@pytest.fixture
def table(monkeypatch):
    "Adds throw-away rows to the table of measures."
    def add(name, function, *takes, **more):
        row = Measure(name, function, takes, (-9., 99.), 'a test', 'for a test', **more)
        monkeypatch.setitem(MEASURES, name, row)
        return name
    return add


class Encoder:
    "Counts how often it is asked; `stop` is called at each time."
    def __init__(self, stop=lambda: None): self.calls, self.stop = 0, stop
    def similarity_pairwise(self, first, second):
        self.calls += 1
        self.stop()
        return np.array([len(a) / (len(a) + len(b)) for a, b in zip(first, second)], np.float32)


def talk(corpus, shards=12, n=400):
    rng = np.random.default_rng(0)
    words = np.array('the a dog cat sees hears some bird here there now and then'.split())
    say = lambda: [' '.join(rng.choice(words, rng.integers(3, 40))) + '.' for _ in range(n)]
    for k in range(shards): corpus.write_pairs(k, dict(reference=say(), translation=say(), source=say()))
    return corpus


def files(corpus):
    paths = corpus.folder.rglob('measures/*/part-*.parquet')
    return {p.relative_to(corpus.folder): p.read_bytes() for p in paths}


def watch(monkeypatch, name):
    "Arguments of each call of a method of `Shard` or `Corpus`, or of a function of `scoring`."
    owner, calls = next(owner for owner in (Shard, Corpus, scoring) if hasattr(owner, name)), []
    true = getattr(owner, name)
    def watched(*args, **options):
        calls.append(args)
        return true(*args, **options)
    monkeypatch.setattr(owner, name, watched)
    return calls


# ---- a measure says what it takes

def test_a_measure_of_the_source(corpora, table):
    corpus = talk(corpora(), 2, 30)
    table('source_length', lambda source: np.array(list(map(len, source)), np.float32), tokens('source'))
    same = lambda source, reference: np.array([s[0] == r[0] for s, r in zip(source, reference)], np.float32)
    table('same_letter', same, column('source'), column('reference'))
    score(corpus, ['source_length', 'same_letter'], show=False)
    frame = corpus.frame(['source', 'reference', 'source_length', 'same_letter'])
    assert frame.source_length.tolist() == [len(t.split()) + 1 for t in frame.source]  # and the full stop
    assert frame.same_letter.tolist() == [s[0] == r[0] for s, r in zip(frame.source, frame.reference)]


def test_only_columns_that_are_taken_are_read_and_each_is_cut_once(corpora, monkeypatch):
    corpus = talk(corpora(), 1, 20)
    read, cut = watch(monkeypatch, 'batches'), watch(monkeypatch, 'token_column')
    score(corpus, ['reference_length'], show=False)
    assert [args[1] for args in read] == [['reference']] and len(cut) == 1
    score(corpus, OVERLAPS, show=False)
    assert read[1][1] == ['translation', 'reference', 'source', 'translation_score']
    assert len(cut) == 4  # the length of the reference was there, its tokens were not


@pytest.mark.parametrize('asked', [['gap'], ['gap', 'trigram_overlap'], ['trigram_overlap', 'gap']])
def test_a_measure_of_other_measures_comes_after_them(corpora, table, monkeypatch, asked):
    corpus, calls = talk(corpora(), 2, 30), []
    row = MEASURES['trigram_overlap']
    counted = replace(row, function=lambda *sides: calls.append(1) or row.function(*sides))
    monkeypatch.setitem(MEASURES, 'trigram_overlap', counted)
    table('gap', lambda three, one: one - three, other_measure('trigram_overlap'), other_measure('unigram_overlap'))
    found = score(corpus, asked, show=False)
    assert set(found.measure) == {'gap', 'trigram_overlap', 'unigram_overlap'} and len(calls) == 2  # once a shard
    frame = corpus.frame(['gap', 'trigram_overlap', 'unigram_overlap'])
    np.testing.assert_allclose(frame.gap, frame.unigram_overlap - frame.trigram_overlap, rtol=1e-6)


def test_a_measure_of_another_reads_what_is_on_disk(corpora, table):
    corpus = talk(corpora(), 3, 20)
    table('double', lambda overlap: 2 * overlap, other_measure('trigram_overlap'))
    score(corpus, ['trigram_overlap'], show=False)
    corpus.write_measure('trigram_overlap', 1, np.full(20, .125))  # values that nobody would compute
    (corpus.folder / 'measures/trigram_overlap/part-00002.parquet').unlink()
    score(corpus, ['double'], show=False)
    shards = [corpus.frame(['double', 'trigram_overlap'], where=f'pair_id // 1000000000 = {k}') for k in range(3)]
    assert set(shards[1].double) == {.25}
    for shard in shards: np.testing.assert_array_equal(shard.double, 2 * shard.trigram_overlap)


def test_a_measure_of_another_version_of_a_measure_is_computed_again(corpora, table, monkeypatch):
    corpus = talk(corpora(), 1, 20)
    table('double', lambda overlap: 2 * overlap, other_measure('trigram_overlap'))
    score(corpus, ['double'], show=False)
    later = replace(MEASURES['trigram_overlap'], function=lambda r, t: np.full(len(r), .5, np.float32), version=9)
    monkeypatch.setitem(MEASURES, 'trigram_overlap', later)
    score(corpus, ['double'], show=False)
    assert set(corpus.frame(['double']).double) == {1.}
    assert corpus.manifest('score-double')['takes'] == {'trigram_overlap': 9}


def test_a_model_is_opened_once_and_gives_the_column_its_name(corpora, table, monkeypatch):
    corpus = talk(corpora(), 3, 20)
    unknown = lambda texts, words: np.array([len(set(t.split()) - words) for t in texts], np.float32)
    table('surprise', unknown, column('translation'), model('words'))
    table('kept', np.subtract, other_measure('paraphrase_score'), other_measure('reference_length'))
    opened, encoder = watch(monkeypatch, '_open'), Encoder()
    score(corpus, ['surprise', 'kept'], {'words:few': {'the', 'a'}, 'encoder:mine': encoder}, show=False)
    assert corpus.measures() == ['kept@mine', 'paraphrase_score@mine', 'reference_length', 'surprise@few']
    assert sorted(args[0].name for args in opened) == ['few', 'mine'] and encoder.calls == 3
    assert corpus.manifest('score-surprise@few')['words'] == {'name': 'few'}
    assert corpus.manifest('score-kept@mine')['encoder'] == {'name': 'mine'}
    score(corpus, ['surprise'], {'words:few': {'the', 'a'}}, show=False)
    assert len(opened) == 2  # nothing to do, so nothing is opened


def test_what_is_missing_names_itself(corpora, table):
    corpus = talk(corpora(), 1, 5)
    table('wants_column', len, column('sauce'))
    table('wants_model', len, column('source'), model('words'))
    table('wants_measure', len, other_measure('lost'))
    table('wants_both', len, other_measure('wants_column'))
    for name, why in dict(wants_column="wants_column takes the column 'sauce'; pairs have pair_id, segment",
                          wants_model="wants_model takes a model of the kind 'words': name one, as words:NAME",
                          wants_measure="wants_measure takes 'lost', which is not in the table",
                          wants_both="wants_column takes the column 'sauce'",
                          lost="no measure 'lost'; there are: reference_length").items():
        with pytest.raises(ValueError, match=why): score(corpus, [name], show=False)
    with pytest.raises(FileNotFoundError, match="no model 'nonesuch'"):
        score(corpus, ['paraphrase_score'], ['nonesuch'], show=False)
    assert {p.name for p in corpus.folder.iterdir()} <= {'pairs', 'cache', '.lock'}


# ---- nothing is written before all is checked, and older corpora stay as they are

class CannotOpen(Exception): pass


def test_a_model_that_cannot_be_opened_leaves_nothing(corpora, monkeypatch):
    corpus = talk(corpora(), 2, 5)
    def fail(model, s): raise CannotOpen
    monkeypatch.setattr(scoring, '_open', fail)
    with pytest.raises(CannotOpen): score(corpus, models={'encoder:mine': Encoder()}, show=False)
    assert not corpus.manifests() and read_progress(corpus.folder) is None and not files(corpus)


def test_an_older_corpus_is_not_scored_again(corpora):
    """What was written while a manifest said `encoder` for every measure, and progress lay in the cache."""
    corpus = talk(corpora(), 2, 20)
    names = ['trigram_overlap', 'paraphrase_score']
    score(corpus, names, {'mine': Encoder()}, show=False)
    before, said = files(corpus), corpus.manifests()
    for stage, facts in said.items(): corpus.write_manifest(stage, {'encoder': None} | facts)
    write_json(corpus.folder / 'cache/progress.json', dict(status='finished', what='pairs', done=80, total=80))
    encoder = Encoder()
    score(corpus, names, {'mine': encoder}, show=False)
    assert files(corpus) == before and encoder.calls == 0
    assert {k: v['made'] for k, v in corpus.manifests().items()} == {k: v['made'] for k, v in said.items()}
    stage = 'score-paraphrase_score@mine'
    corpus.write_manifest(stage, said[stage] | dict(encoder=dict(name='mine', checksum='0' * 16)))
    with pytest.raises(ValueError, match='give this encoder another name, or delete'):
        score(corpus, names, {'mine': encoder}, show=False)


def test_the_command_says_when_all_values_were_there(corpora):
    corpus = talk(corpora(), 1, 20)
    line, place = f'score {corpus.name} trigram_overlap', dict(PARANMT_WORKSPACE=str(corpus.folder.parents[1]))
    first, second = paranmt(line, **place), paranmt(line, **place)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert 'Nothing was computed' not in first.stdout and 'Nothing was computed: all values were there' in second.stdout


# ---- killed, stopped, by several processes

SCORE = textwrap.dedent("""
    import sys
    from pathlib import Path
    from paranmt_lab.corpora.query import Corpus
    from paranmt_lab.filters.scoring import score
    if __name__ == '__main__': score(Corpus(Path(sys.argv[1])), sys.argv[3:], workers=int(sys.argv[2]))
""")


@pytest.mark.parametrize('moments', [(5,), pytest.param((1, 20), marks=pytest.mark.soak)], ids=['once', 'twice'])
def test_scoring_killed_and_gone_on_with(corpora, tmp_path, moments):
    script = tmp_path / 'score.py'
    script.write_text(SCORE)
    corpus, twin = talk(corpora()), talk(corpora())
    score(twin, OVERLAPS, show=False)
    killed = 0
    for more in moments:  # kill when so many files more are there
        have, process = len(files(corpus)), subprocess.Popen([sys.executable, script, corpus.folder, '1', *OVERLAPS])
        while process.poll() is None and len(files(corpus)) < have + more: time.sleep(0.002)
        if process.poll() is None: process.send_signal(signal.SIGKILL); killed += 1
        process.wait()
        assert Corpus(corpus.folder).measures() == [] or len(files(corpus)) == len(files(twin))
    assert killed
    score(corpus, OVERLAPS, show=False)
    assert files(corpus) == files(twin) and corpus.check().empty
    assert corpus.manifest('score-trigram_overlap')['status'] == 'finished'


def test_workers_write_the_same_files(corpora, tmp_path):
    script = tmp_path / 'score.py'
    script.write_text(SCORE)
    corpus, twin = talk(corpora(), 4, 50), talk(corpora(), 4, 50)
    score(twin, ['trigram_overlap'], show=False)
    subprocess.run([sys.executable, script, corpus.folder, '2', 'trigram_overlap'], check=True)
    assert files(corpus) == files(twin) and len(files(twin)) == 4


def test_the_app_shows_a_scoring_and_stops_it(corpora):
    corpus, seen = talk(corpora(), 3, 20), []

    def click():
        seen.append(at_work(corpus.folder.parent))
        assert ask_to_stop(corpus.folder)

    assert score(corpus, ['paraphrase_score'], {'stopper': Encoder(click)}, show=False).empty
    assert corpus.missing('paraphrase_score@stopper') == [1, 2]
    assert corpus.manifest('score-paraphrase_score@stopper')['status'] == 'running'
    assert [(p['what'], p['total']) for p in seen[0].values()] == [('pairs', 60)] and list(seen[0]) == [corpus.name]
    assert {k: read_progress(corpus.folder)[k] for k in ('status', 'done')} == dict(status='stopped', done=20)
    with pytest.raises(ValueError, match='cannot be computed with other'):
        score(corpus, ['paraphrase_score@stopper'], {'other': Encoder()})
    assert len(score(corpus, ['paraphrase_score'], {'stopper': Encoder()}, show=False)) == 1
    assert not at_work(corpus.folder.parent) and read_progress(corpus.folder)['status'] == 'finished'


def test_one_stage_at_a_time_fills_a_corpus(corpora):
    corpus = talk(corpora(), 1, 5)
    again = lambda: score(Corpus(corpus.folder), ['reference_length'], show=False)
    with pytest.raises(RuntimeError, match='another process is working in'):
        score(corpus, ['paraphrase_score'], {'mine': Encoder(again)}, show=False)
    assert read_progress(corpus.folder)['status'] == 'failed'


# ---- on the command line

def cli(corpus, *words):
    "Start `paranmt` in the workspace of a corpus."
    workspace = str(corpus.folder.parent.parent)
    environment = os.environ | dict(PARANMT_WORKSPACE=workspace, PARANMT_WORKERS='1', COLUMNS='200')
    command = [sys.executable, '-m', 'paranmt_lab', *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


@pytest.mark.soak
def test_a_stopped_scoring_exits_with_130(corpora):
    corpus = talk(corpora(), 30, 400)
    process = cli(corpus, 'score', corpus.name, *OVERLAPS)
    while process.poll() is None and not files(corpus): time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    left = {m: 400 * len(corpus.missing(m)) for m in OVERLAPS}
    assert process.returncode == 130 and all(left.values()), said
    said = ' '.join(said.split())
    for m, pairs in left.items(): assert f'{m} {pairs:,}' in said
    assert 'The same command resumes' in said
    again = paranmt(['score', corpus.name, *OVERLAPS], PARANMT_WORKSPACE=str(corpus.folder.parent.parent))
    assert again.returncode == 0 and corpus.measures() == sorted(OVERLAPS), again.stderr


def test_a_damaged_column_names_the_command_with_its_model(corpora, table):
    corpus = talk(corpora(), 1, 5)
    table('surprise', lambda texts, words: np.zeros(len(texts), np.float32), column('translation'), model('words'))
    score(corpus, ['surprise', 'paraphrase_score'], {'words:few': {'a'}, 'mine': Encoder()}, show=False)
    for path in corpus.folder.glob('measures/*/*.parquet'): path.write_bytes(b'PAR1')
    said = ' '.join(corpus.problems())
    assert f'`paranmt score {corpus.name} surprise --model words:few`' in said
    assert f'`paranmt score {corpus.name} paraphrase_score --encoder mine`' in said


def test_a_stored_name_is_scored_by_its_own_model(corpora):
    """`paranmt score NAME p_strong@people`, and columns of two encoders at once."""
    corpus = talk(corpora(), 1, 5)
    corpus.write_measure('paraphrase_score@published', 0, np.arange(5) / 5)
    names = ['p_strong@people', *(f'paraphrase_score@{m}' for m in ('paraphrase-scorer', 'paraphrase-scorer-2',
                                                                      'published'))]
    command = lambda *words: paranmt(['score', corpus.name, *words], COLUMNS='200',
                                     PARANMT_WORKSPACE=str(corpus.folder.parent.parent))
    said = command(*names)
    assert said.returncode == 0 and all(name in said.stdout for name in names), said.stderr
    assert not any(map(corpus.missing, names))
    assert corpus.frame(names)[names[-1]].tolist()[1] == np.float32(.2)
    refused = command('p_strong@nonesuch')
    assert refused.returncode == 1 and 'nonesuch' in refused.stderr and 'Traceback' not in refused.stderr


def test_models_of_two_kinds_may_have_one_name(corpora, table, monkeypatch):
    "A run and a language model, both called `mine`: each column brings the model of its own kind."
    opened = {kind: scoring.NamedModel('mine', f'{kind}:mine') for kind in ('encoder', 'words')}
    monkeypatch.setattr(scoring, 'named_models', lambda names: {name.partition(':')[0]: opened[name.partition(':')[0]]
                                                                for name in names})
    table('surprise', lambda texts, words: np.ones(len(texts), np.float32), column('translation'), model('words'))
    names = ['paraphrase_score@mine', 'surprise@mine']
    groups = scoring._by_model(talk(corpora(), 1, 5), names, {})
    assert groups == [(names[:1], {'encoder': opened['encoder']}), (names[1:], {'words': opened['words']})]
