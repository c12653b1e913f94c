"""The lexicon: counts against plain Python on real-looking text, a build that is killed anywhere, names, SimLex."""
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation.simlex import measure_simlex, spearman
from paranmt_lab.ground.models import identity_of, models_at_hand, open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.lexicon import building, shards
from paranmt_lab.lexicon.building import build_lexicon
from paranmt_lab.lexicon.model import Lexicon, pair_scores, paraphrases
from paranmt_lab.lexicon.ppdb import import_ppdb
from paranmt_lab.lexicon.shards import Conditions
from paranmt_lab.tokens.text import tokenize
from references import references

count_slowly = references('lexicon.counts').count_slowly
ANY = Conditions(score='', least=1, unit='pair')


@pytest.fixture
def s(tmp_path): return replace(settings(), workspace=tmp_path)


def corpus_of(s, pairs, name='talk', shard_rows=100):
    corpus = Corpus.create(name, s)
    for shard, at in enumerate(range(0, len(pairs), shard_rows)):
        some = pairs[at:at + shard_rows]
        corpus.write_pairs(shard, dict(zip(('reference', 'translation'), zip(*some))))
    return corpus


def sample_pairs(n=300):
    """References of the sample against each other's neighbours: real text, words of every length, contractions."""
    texts = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).reference.dropna().tolist()
    return [(texts[i], texts[(7 * i + 3) % len(texts)]) for i in range(n)]


def counted(folder):
    """Words of each pair, in alphabetical order, to its counts."""
    word = pq.read_table(folder / 'words.parquet')['word'].to_pylist()
    table = pd.concat([pd.read_parquet(path) for path in sorted((folder / 'pairs').glob('*'))])
    assert (table['first'] < table.second).all()
    pairs = [tuple(sorted((word[a], word[b]))) for a, b in zip(table['first'], table.second)]
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, table[['cross', 'references', 'translations']].to_numpy().tolist()))


def slowly(pairs, least=1): return {pair: n for pair, n in count_slowly(pairs).items() if n[0] >= least}


def content(folder): return {p.relative_to(folder): p.read_bytes() for p in folder.rglob('*.parquet')}


@pytest.mark.parametrize('least', [1, 2, 5])
def test_counts_are_those_of_plain_python(s, least, monkeypatch):
    """In three shards, small ranges, and with words left out that cannot meet often enough."""
    monkeypatch.setattr(building, 'range_bounds', lambda paths: shards.range_bounds(paths, 2_000))
    monkeypatch.setitem(shards.RUN_FORMAT, 'row_group_size', 500)
    pairs = sample_pairs()
    facts = build_lexicon(corpus_of(s, pairs), 'words', s, replace(ANY, least=least), show=False)
    kept = [pair for pair in pairs if max(map(len, map(tokenize, pair))) <= 30]
    assert counted(s.models / 'words') == slowly(kept, least) and len(kept) == facts['counts']['kept']
    if least == 1: assert len(list((s.models / 'words/pairs').glob('*'))) > 3
    word = pd.read_parquet(s.models / 'words/words.parquet')
    assert (word['references'] + word.translations).min() >= least


TOKENS = ['a', "don't", 'été', 'x' * 40, '12', '...', 'İ', '中文', 'the', '\U0001F600']
TEXT = st.lists(st.sampled_from(TOKENS), max_size=6).map(' '.join)


@hypothesis_settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=12))
def test_any_text_is_counted_as_plain_python_counts_it(tmp_path_factory, pairs):
    s = replace(settings(), workspace=tmp_path_factory.mktemp('any'))
    build_lexicon(corpus_of(s, pairs, shard_rows=5), 'words', s, ANY, show=False)
    assert counted(s.models / 'words') == slowly(pairs)


@hypothesis_settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), TEXT, TEXT), min_size=1, max_size=12))
def test_a_segment_counts_once_whatever_its_pairs(tmp_path_factory, rows):
    s = replace(settings(), workspace=tmp_path_factory.mktemp('segments'))
    corpus = Corpus.create('talk', s)
    segments, references, translations = zip(*rows)
    corpus.write_pairs(0, dict(segment=segments, reference=references, translation=translations))
    facts = build_lexicon(corpus, 'words', s, Conditions('', least=1), show=False)
    expected = count_slowly(list(zip(references, translations)), segments)
    assert counted(s.models / 'words') == {pair: n for pair, n in expected.items() if n[0]}
    assert facts['counts']['units'] == len(set(segments)) and facts['counts']['kept'] == len(rows)


def test_ten_meetings_in_one_segment_show_no_paraphrase(s):
    corpus = Corpus.create('talk', s)
    hypotheses = [f'They {word} about it.' for word in 'joked spoke wrote sang talked cried knew heard read'.split()]
    corpus.write_pairs(0, dict(segment=[7] * 9, reference=['They laughed about it.'] * 9, translation=hypotheses))
    for unit, least, expected in (('segment', 2, 0), ('pair', 9, 3)):
        build_lexicon(corpus, unit, s, Conditions('', least=1, unit=unit), show=False)
        assert len(paraphrases(open_model(f'lexicon:{unit}', s), 'laughed', least=least)) == expected


def test_scores_and_lengths_decide_which_pairs_count(s):
    pairs = [('a b', 'c d'), ('a b', 'c d'), ('a ' * 31, 'c'), ('a ' * 30, 'c'), ('a', 'e')]
    corpus = corpus_of(s, pairs, shard_rows=2)
    with pytest.raises(ValueError, match='lacks the measure .* `paranmt score talk paraphrase_score`'):
        build_lexicon(corpus, 'words', s, show=False)
    with pytest.raises(ValueError, match='--model x`'):
        build_lexicon(corpus, 'words', s, Conditions('paraphrase_score@x'))
    for shard, values in enumerate(([.35, .34], [.9, .9], [np.nan])):
        corpus.write_measure('paraphrase_score@tiny', shard, np.float32(values))
    facts = build_lexicon(corpus, 'words', s, Conditions(least=1), show=False)
    assert facts['counts'] == dict(read=5, kept=2, one_sided=0, low_score=2, too_long=1, units=2)
    assert facts['request']['score'] == 'paraphrase_score@tiny'
    assert counted(s.models / 'words') == slowly([pairs[0], pairs[3]])
    corpus.write_measure('paraphrase_score@tiny', 2, [.9])  # other scores are another request
    with pytest.raises(FileExistsError, match='exists already'):
        build_lexicon(corpus, 'words', s, Conditions(least=1), show=False)
    assert build_lexicon(corpus, 'words', s, Conditions(least=1), force=True, show=False)['counts']['kept'] == 3


def in_child(work):
    """Run a function in a forked process that may kill itself; its exit status."""
    pid = os.fork()
    if not pid:
        try: work()
        except BaseException: os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_build_killed_at_any_of_its_writes_continues_without_a_lost_or_doubled_count(s, monkeypatch):
    """SIGKILL before and after each rename, one after the other; in the end all files are those of a quiet build."""
    corpus = corpus_of(s, sample_pairs(90), shard_rows=30)
    build_lexicon(corpus, 'quiet', s, ANY, show=False)
    rename, removals = os.replace, building.shutil.rmtree

    def killed_at(n):
        left = [n]
        def die_or(act, *args, **options):
            for moment in (lambda: None, lambda: act(*args, **options)):
                moment()
                if not left[0]: os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
        monkeypatch.setattr(os, 'replace', lambda *a, **o: die_or(rename, *a, **o))
        monkeypatch.setattr(building.shutil, 'rmtree', lambda *a, **o: die_or(removals, *a, **o))
        build_lexicon(corpus, 'killed', s, ANY, show=False)

    kills = 0
    while (status := in_child(lambda: killed_at(3 + kills % 6))) == -signal.SIGKILL and kills < 200: kills += 1
    monkeypatch.undo()
    assert status == 0 and kills > 5
    facts = build_lexicon(corpus, 'killed', s, ANY, show=False)
    assert content(s.models / 'killed') == content(s.models / 'quiet')
    assert not (s.models / 'killed/building').exists() and facts['counts']['kept'] == 90


@pytest.mark.soak
def test_a_build_killed_at_random_moments(s):
    corpus = corpus_of(s, sample_pairs() * 20, shard_rows=500)
    build_lexicon(corpus, 'quiet', s, ANY, workers=2, show=False)
    program = f'''
from dataclasses import replace
from pathlib import Path
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.lexicon.building import *
s = replace(settings(), workspace=Path({str(s.workspace)!r}))
print('ready', flush=True)
build_lexicon(Corpus.open('talk', s), 'killed', s, Conditions(score='', least=1), show=False)'''
    chance = random.Random(0)
    for _ in range(200):
        with subprocess.Popen([sys.executable, '-c', program], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            try: process.wait(chance.random() * 3)
            except subprocess.TimeoutExpired: process.kill()
        if process.returncode == 0: break
    assert content(s.models / 'killed') == content(s.models / 'quiet')


def test_two_builds_of_one_name_do_not_meet(s):
    corpus = corpus_of(s, sample_pairs(30))
    with building.locked(s.models, s.models / '.words.lock'):
        with pytest.raises(RuntimeError, match='another process is working'): build_lexicon(corpus, 'words', s, ANY)


def test_names_identities_and_damage(s):
    corpus = corpus_of(s, sample_pairs(50))
    build_lexicon(corpus, 'words', s, ANY, show=False)
    assert models_at_hand(s, 'Lexicon')['lexicon:words'] == s.models / 'words' # the checkout may have others
    by_path = open_model(f"lexicon:{s.models / 'words'}:cross", s, 'Lexicon')
    assert by_path.identity == identity_of('lexicon:words:cross', s) != identity_of('lexicon:words', s)
    again = replace(s, workspace=s.workspace / 'again')
    build_lexicon(corpus, 'words', again, ANY, show=False)  # the date differs, the identity does not
    assert identity_of('lexicon:words', again) == identity_of('lexicon:words', s)
    with pytest.raises(ValueError, match='gives|expected'): open_model('lexicon:words', s, 'Encoder')
    with pytest.raises(ValueError, match='cannot name a model'): open_model('lexicon:words:best', s)
    (s.models / 'words/lexicon.json').write_text('{}')
    with pytest.raises(ValueError, match='no key .* --force'): open_model('lexicon:words', s)


def test_scores_follow_the_formulas(s):
    """By hand: 4 pairs, so 8 sentences; u is in 3 references and 1 translation, v in 1 and 3, together in one."""
    pairs = [('u x', 'v y'), ('u', 'v'), ('u v', 'u v'), ('z', 'z')]
    build_lexicon(corpus_of(s, pairs), 'words', s, ANY, show=False)
    row = pair_scores(Lexicon(s.models / 'words'), ['U', 'v', 'u'], ['v', 'u', 'never']).iloc[0]
    assert (row['cross'], row['references'], row.translations) == (4, 1, 1)
    cross, within = np.log(4 * 8 / (4 * 4)), np.log(2 * 4 / (3 * 1))
    assert np.allclose([row.pmi_cross, row.pmi, row.adjusted], [cross, within, cross - within])


def test_looking_up_words(s):
    build_lexicon(corpus_of(s, [('a car', 'an automobile')] * 12 + [('a car', 'the car')] * 3), 'words', s, show=False,
                  conditions=Conditions('', unit='pair'))
    lexicon = Lexicon(s.models / 'words')
    assert 'automobile' in paraphrases(lexicon, ' Car ').word.tolist()[:2]
    assert 'the' not in paraphrases(lexicon, 'car').word.tolist()  # three meetings, and ten are asked for
    assert 'the' in paraphrases(lexicon, 'car', least=1).word.tolist()
    for bad in ('%', "'; DROP TABLE pairs", ''):
        with pytest.raises(ValueError, match='has no word'): paraphrases(lexicon, bad)


def test_ppdb_first_part_of_speech_both_orders_and_damage(s):
    path = s.workspace / 'ppdb.gz'
    line = '[{}] ||| {} ||| {} ||| PPDB2.0Score={} Other=1 ||| 0-0 ||| Equivalence\n'
    with gzip.open(path, 'wt') as file:
        for i in range(3000): file.write(line.format('X', f'w{i}', f'v{i}', i))
        file.write(line.format('NN', 'a', 'b', 2) + line.format('VB', 'a', 'b', 9) + line.format('NN', 'b', 'a', 4))
    import_ppdb(path, 'ppdb', s)
    ppdb = open_model('lexicon:ppdb', s, 'Lexicon')
    assert ppdb.word_similarity(['a', 'v7', 'a'], ['b', 'w7', 'c']).tolist()[:2] == [3., 7.]
    assert np.isnan(ppdb.word_similarity(['a'], ['c']))[0] and identity_of('lexicon:ppdb', s) == ppdb.identity
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match='ppdb.gz: .*, after line [0-9,]+; copy or download it again'):
        import_ppdb(path, 'cut', s)
    assert not (s.models / 'cut').exists()


def test_simlex_of_made_up_systems(tmp_path):
    rng = np.random.default_rng(0)
    grades = rng.random(50)
    lines = [f'a{i}\tb{i}\tN\t{g}' for i, g in enumerate(grades)]
    path = tmp_path / 'simlex.tsv'
    path.write_text('\n'.join(['word1\tword2\tPOS\tSimLex999', *lines]) + '\n')
    rows = measure_simlex(lambda a, b: np.where(np.arange(50) < 40, grades, np.nan), path)
    assert [row['n'] for row in rows] == [50, 40, 50]
    assert rows[1]['value'] == pytest.approx(1) and rows[2]['value'] == .8
    assert rows[0]['value'] < 1 and rows[0]['low'] < rows[0]['value'] < rows[0]['high']
    nothing = measure_simlex(lambda a, b: np.full(50, np.nan), path)
    assert nothing[1]['status'].startswith('undefined') and nothing[2]['value'] == 0


def test_the_interval_of_spearman_covers_the_truth():
    """95 % intervals of 200 samples of normal pairs with a known rank correlation hold it in 90 to 99 % of them."""
    rng, r = np.random.default_rng(1), .6
    truth = 6 / np.pi * np.arcsin(r / 2)
    found = [spearman(a, r * a + np.sqrt(1 - r * r) * rng.normal(size=120), 200) for a in rng.normal(size=(200, 120))]
    assert .9 <= np.mean([f['low'] <= truth <= f['high'] for f in found]) <= .99


@pytest.mark.skipif(not (settings().resources / 'eval/simlex/simlex999.tsv').exists(), reason='SimLex-999 is not here')
def test_simlex_of_the_shipped_scorer():
    scorer = open_model('paraphrase-scorer')
    rows = measure_simlex(scorer.word_similarity, settings().resources / 'eval/simlex/simlex999.tsv')
    assert rows[2]['value'] > .95 and .2 < rows[0]['value'] < .8


@pytest.mark.parametrize('damage, error', [
    (lambda folder: (folder / 'words.parquet').unlink(), 'words.parquet is missing; build the lexicon again'),
    (lambda folder: (folder / 'words.parquet').write_bytes(b'PAR1'), 'its tables are not those that were counted'),
    (lambda folder: next(folder.glob('pairs/*')).unlink(), 'its tables are not those that were counted'),
    (lambda folder: next(folder.glob('pairs/*')).write_bytes(b''), 'its tables are not those that were counted'),
    (lambda folder: (folder / 'pairs/part-00009.parquet').write_bytes(b'x'), 'its tables are not those'),
])
def test_a_damaged_lexicon_gives_no_answer(s, damage, error):
    build_lexicon(corpus_of(s, sample_pairs(20)), 'words', s, ANY, show=False)
    open_model('lexicon:words', s)
    damage(s.models / 'words')
    with pytest.raises(ValueError, match=error): open_model('lexicon:words', s)


@pytest.mark.parametrize('facts, error', [
    (dict(kind='dictionary'), "kind is 'dictionary', expected counts or ppdb"),
    (dict(counts=dict(read=1)), 'counts: kept is None, expected a number'),
    (dict(counts=dict(read=1, kept='all')), "counts: kept is 'all', expected a number"),
    (dict(kind='ppdb'), 'counts: pairs is None, expected a number'),
    (dict(content=7), 'content is a number, expected'),
])
def test_facts_of_a_lexicon_are_checked(s, facts, error):
    build_lexicon(corpus_of(s, sample_pairs(20)), 'words', s, ANY, show=False)
    path = s.models / 'words/lexicon.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    with pytest.raises(ValueError, match=f'lexicon.json: {error}.*build the lexicon again'):
        open_model('lexicon:words', s)
