"What a notebook cell cannot show of the corpus: arbitrary content, torn writes, other processes, hostile names."
import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

import paranmt_lab.corpora.query as module
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.pairs import SHARD, segment_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import checksum, settings

few = hypothesis_settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(exclude_categories=['Cs']), max_size=20)
# Values on both sides of the edges people ask for, stored as 32-bit floats, and all that is no value.
values = st.sampled_from([-0.1, 0., 0.2, 0.4, 0.6, 0.8, 1., math.nan, math.inf]) | st.floats(-1, 1, width=32)
EDGES = [-0.1, 0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.fixture
def lab(tmp_path): return replace(settings(), workspace=tmp_path)


@pytest.fixture
def corpora(lab):
    "A corpus with a fresh name at each call, for property tests."
    names = (f'c{i}' for i in range(10_000))
    return lambda: Corpus.create(next(names), lab)


def rows(n, start=0):
    return {'reference': [f'Sentence {i}.' for i in range(start, start + n)],
            'translation': [f'Phrase {i}.' for i in range(start, start + n)]}


def filled(corpus, shards):
    "A corpus from lists of values: one shard a list."
    for k, some in enumerate(shards):
        corpus.write_pairs(k, rows(len(some), 1000 * k))
        corpus.write_measure('score', k, some)
    return corpus


def finite(shards):
    "The values as they are compared: 32-bit floats, without what is no value."
    flat = np.array([v for some in shards for v in some], np.float32)
    return flat[np.isfinite(flat)]


# ---- what goes in comes out

@few
@given(pairs=st.lists(st.tuples(texts, texts, st.none() | texts, values), min_size=1, max_size=30))
def test_pairs_come_back_as_they_were(corpora, pairs):
    corpus = corpora()
    source, reference, translation, score = map(list, zip(*pairs))
    corpus.write_pairs(7, dict(source=source, reference=reference, translation=translation, translation_score=score))
    back = pa.Table.from_batches(corpus.batches(size=7))
    assert back['reference'].to_pylist() == reference and back['translation'].to_pylist() == translation
    assert back['pair_id'].to_pylist() == [7 * SHARD + i for i in range(len(pairs))]
    assert back['segment'].to_pylist() == [segment_of(s) for s in source]
    assert back['translation_score'].to_pylist() == [float(np.float32(v)) if math.isfinite(v) else None for v in score]
    assert corpus.frame(['reference']).reference.tolist() == reference


@few
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_two_measures_stand_beside_their_rows(corpora, sizes, seed):
    corpus, rng, expected = corpora(), np.random.default_rng(seed), []
    for k, n in enumerate(sizes):
        corpus.write_pairs(k, rows(n, 1000 * k))
        columns = {m: rng.random(n).astype(np.float32) for m in ('one', 'two@model')}
        for m, v in columns.items(): corpus.write_measure(m, k, v)
        expected.append(
            pd.DataFrame({'pair_id': np.arange(n) + k * SHARD, 'reference': rows(n, 1000 * k)['reference'], **columns}))
    expected, wanted = pd.concat(expected, ignore_index=True), ['pair_id', 'reference', 'one', 'two@model']
    same = lambda found: pd.testing.assert_frame_equal(found.reset_index(drop=True), expected, check_dtype=False)
    same(corpus.frame(wanted))
    same(corpus.query('SELECT pair_id, reference, one, "two@model" FROM pairs'))
    if not len(expected): return
    same(pa.Table.from_batches(corpus.batches(wanted)).to_pandas())
    ids = rng.permutation(expected.pair_id.to_numpy(copy=True))
    found = corpus.pairs_by_id(ids, wanted)
    assert found.pair_id.tolist() == ids.tolist()
    same(found.sort_values('pair_id'))
    assert (corpus.query('SELECT pair_id FROM numbers WHERE one > 0.5').pair_id.tolist()
            == expected.pair_id[expected.one > np.float32(.5)].tolist())


def test_rows_are_found_across_row_groups(corpora):
    corpus = corpora()
    corpus.write_pairs(0, rows(25_000))
    corpus.write_measure('score', 0, np.arange(25_000))
    ids = np.random.default_rng(0).permutation(25_000)[:500]
    found = corpus.pairs_by_id(ids)
    assert found.reference.tolist() == [f'Sentence {i}.' for i in ids] and found.score.tolist() == ids.tolist()


# ---- counting

@few
@given(shards=st.lists(st.lists(values, min_size=1, max_size=30), min_size=1, max_size=3))
def test_ranges_and_the_rest_make_up_the_corpus(corpora, shards):
    corpus, flat = filled(corpora(), shards), finite(shards)
    counts = [corpus.count('score', a, b) for a, b in zip(EDGES, EDGES[1:])]
    assert counts == [int(((flat > np.float32(a)) & (flat <= np.float32(b))).sum()) for a, b in zip(EDGES, EDGES[1:])]
    summary = corpus.summary('score')
    below, above = corpus.count('score', high=EDGES[0]), corpus.count('score', low=EDGES[-1])
    assert sum(counts) + below + above + summary['no_value'] == corpus.rows == summary['pairs']
    assert summary['no_value'] == corpus.rows - len(flat)


@few
@given(shards=st.lists(st.lists(values, min_size=1, max_size=30), min_size=1, max_size=3),
       bins=st.integers(1, 7), limits=st.sampled_from([None, (-0.1, 1.0), (0.2, 0.4), (0., 1.)]))
def test_histogram(corpora, shards, bins, limits):
    corpus, flat = filled(corpora(), shards), finite(shards)
    table = corpus.histogram('score', bins, limits)
    low, high = limits or ((float(flat.min()), float(flat.max())) if len(flat) else (0, 1))
    edges = np.linspace(low, high if high > low else low + 1, bins + 1).astype(np.float32)
    expected = [int(((flat > a) & (flat <= b)).sum() + (i == 0) * (flat == a).sum())
                for i, (a, b) in enumerate(zip(edges, edges[1:]))]
    assert table.pairs.tolist() == expected
    assert (table.pairs.sum() + table.attrs['below'] + table.attrs['above']
            + table.attrs['no_value'] == table.attrs['pairs'] == corpus.rows)


# ---- sampling

@few
@given(shards=st.lists(st.lists(values, min_size=1, max_size=40), min_size=1, max_size=4),
       n=st.integers(0, 50), seed=st.integers(0, 2**63))
def test_samples_are_exact_seeded_and_nested(corpora, shards, n, seed):
    corpus, flat = filled(corpora(), shards), finite(shards)
    there = int(((flat > np.float32(0.2)) & (flat <= np.float32(0.8))).sum())
    found = corpus.sample(n, 'score', 0.2, 0.8, seed=seed)
    assert len(found) == min(n, there) == found.pair_id.nunique()
    assert ((found.score > np.float32(0.2)) & (found.score <= np.float32(0.8))).all()
    assert Corpus(corpus.folder).sample_ids(n, 'score', 0.2, 0.8, seed=seed).tolist() == found.pair_id.tolist()
    assert corpus.sample_ids(n + 5, 'score', 0.2, 0.8, seed=seed)[:n].tolist() == found.pair_id.tolist()


def test_every_pair_is_as_likely(corpora):
    corpus = filled(corpora(), [[0.5] * 100, [0.5] * 100])
    hits = np.zeros(200)
    for seed in range(400):
        ids = corpus.sample_ids(20, seed=seed)
        hits[ids // SHARD * 100 + ids % SHARD] += 1
    chi2 = ((hits - 40) ** 2 / 40).sum() / (1 - 20 / 200)  # drawn without replacement
    assert 140 < chi2 < 270  # 199 degrees of freedom: mean 199, standard deviation 20


# ---- written once, whole or not at all

CRASH = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    import paranmt_lab.ground.settings
    from paranmt_lab.corpora.query import Corpus
    corpus = Corpus(Path(sys.argv[1]))
    os.replace = lambda *_: os.kill(os.getpid(), 9)
    if sys.argv[2] == 'pairs': corpus.write_pairs(1, {'reference': ['One.', 'Two.']})
    else: corpus.write_measure('score', 0, [1, 2, 3])
""")

@pytest.mark.parametrize('what', ['pairs', 'measure'])
def test_killed_between_temporary_file_and_rename(lab, what):
    corpus, twin = Corpus.create('killed', lab), Corpus.create('undisturbed', lab)
    for c in (corpus, twin): c.write_pairs(0, rows(3))
    assert subprocess.run([sys.executable, '-c', CRASH, corpus.folder, what]).returncode == -9
    left = [p for p in corpus.folder.rglob('.*') if p.is_file()]
    assert left, 'the process died before it wrote its temporary file'
    again = Corpus(corpus.folder)
    assert again.rows == 3 and again.measures() == [] and again.missing('score') == [0]
    for c in (again, twin):
        c.write_pairs(1, {'reference': ['One.', 'Two.']})
        for k, v in ((0, [1, 2, 3]), (1, [4, 5])): c.write_measure('score', k, v)
    files = lambda c: {p.relative_to(c.folder): p.read_bytes() for p in c.folder.rglob('part-*.parquet')}
    assert files(again) == files(twin) and len(files(twin)) == 4


def test_a_shard_is_not_overwritten(corpora):
    corpus = filled(corpora(), [[1, 2]])
    before = checksum(corpus.shards[0])
    corpus.write_pairs(0, rows(2))
    with pytest.raises(ValueError, match='written once'): corpus.write_pairs(0, rows(3))
    assert checksum(corpus.shards[0]) == before and corpus.measures() == ['score']


def test_other_pairs_under_a_measure_are_noticed(corpora):
    corpus, other = filled(corpora(), [[1, 2], [3, 4]]), filled(corpora(), [[1, 2], [3, 4]])
    assert corpus.count('score', 0, 9) == 4
    shutil.copy(filled(corpora(), [[1, 2], [1, 2, 3]]).shards[1], corpus.shards[1])
    for seen in (corpus, Corpus(corpus.folder)):
        assert seen.measures() == [] and seen.missing('score') == [1]
        with pytest.raises(ValueError, match='compute .score. again'): list(seen.batches(['score']))
        with pytest.raises(ValueError, match="no column 'score'"): seen.count('score', 0, 9)
    assert 'of other pairs' in corpus.problems()[0]
    assert corpus.check().file.tolist() == ['measures/score/part-00001.parquet']
    shutil.copytree(other.folder / 'measures/score', other.folder / 'measures/renamed')
    assert other.measures() == ['score'], 'a folder renamed by hand holds a column of another name'


def test_damage_is_named(corpora):
    corpus = filled(corpora(), [[1, 2], [3, 4]])
    file = corpus.shards[1]
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r'part-00001.parquet.*restore'): Corpus(corpus.folder).rows
    assert corpus.check().file.tolist()[0] == 'pairs/part-00001.parquet'


# ---- missing, doubled and damaged shards

def made(corpus):
    "A corpus with a measure and the manifest of the stage that made its pairs."
    filled(corpus, [[1, 2], [3, 4], [5, 6]])
    corpus.write_manifest('derive',
                          dict(operation=dict(merge=['a']), inputs={'a': '0'}, pairs=6, checksums=corpus.checksums))
    return corpus


def cut(path): path.write_bytes(path.read_bytes()[:-20])


CHANGES = {
    'deleted': (lambda f: (f / 'pairs/part-00001.parquet').unlink(),
                r'1 of 3 shards missing: pairs/part-00001.parquet.*paranmt corpus merge a c\d+'),
    'the last one deleted': (lambda f: (f / 'pairs/part-00002.parquet').unlink(),
                             '1 of 3 shards missing: pairs/part-00002.parquet'),
    'renamed': (lambda f: (f / 'pairs/part-00001.parquet').rename(f / 'pairs/part-1.parquet'),
                'missing: pairs/part-00001.*not named as a shard, so not read: pairs/part-1'),
    'given a free number': (lambda f: (f / 'pairs/part-00001.parquet').rename(f / 'pairs/part-00009.parquet'),
                            'part-00009.parquet: ids 1,000,000,000'),
    'doubled': (lambda f: shutil.copy(f / 'pairs/part-00000.parquet', f / 'pairs/part-00003.parquet'),
                'part-00003.parquet: ids 0 to 1, expected'),
    'copied over another': (lambda f: shutil.copy(f / 'pairs/part-00000.parquet', f / 'pairs/part-00001.parquet'),
                            'part-00001.parquet: ids 0 to 1, expected'),
    'cut short': (lambda f: cut(f / 'pairs/part-00001.parquet'),
                  'part-00001.parquet: not a readable Parquet file.*restore'),
    'a measure cut short': (lambda f: cut(f / 'measures/score/part-00001.parquet'),
                            'measure score is not whole; damaged: part-00001.parquet'),
    'a measure copied': (
        lambda f: shutil.copy(f / 'measures/score/part-00000.parquet', f / 'measures/score/part-00001.parquet'),
        'score is not whole; of other pairs'),
    'a manifest that is a list': (lambda f: (f / 'manifests/derive.json').write_text('[1]'),
                                  'derive.json: expected an object, found a list')}


@pytest.mark.parametrize('change', CHANGES)
def test_missing_doubled_and_damaged_files_are_named(corpora, change):
    corpus, (act, expected) = made(corpora()), CHANGES[change]
    assert corpus.problems() == []
    act(corpus.folder)
    assert re.search(expected, '; '.join(Corpus(corpus.folder).problems()))
    assert re.search(expected, '; '.join(corpus.problems()))


def test_shards_are_compared_with_what_was_scored_where_the_maker_kept_no_list(corpora):
    corpus = filled(corpora(), [[1, 2], [3, 4], [5, 6]])
    corpus.write_manifest('score-score', dict(status='finished', inputs=corpus.checksums))
    shutil.copy(filled(corpora(), [[1, 2], [7, 8, 9]]).shards[1], corpus.shards[1])
    corpus.shards[2].unlink()
    found = '; '.join(corpus.problems())
    assert 'missing: pairs/part-00002.parquet' in found
    assert 'changed since the manifests were written: pairs/part-00001.parquet' in found


def test_pairs_are_counted_where_no_list_of_shards_was_kept(corpora):
    corpus = filled(corpora(), [[1, 2], [3, 4], [5, 6]])
    corpus.write_manifest('import', dict(status='finished', pairs=6, inputs=[dict(file='talk.tsv')]))
    assert corpus.problems() == []
    corpus.shards[2].unlink()
    assert "4 pairs there, but the manifest 'import' says 6" in corpus.problems()[0]


def test_a_damaged_measure_is_not_called_absent(corpora):
    corpus = made(corpora())
    cut(corpus.folder / 'measures/score/part-00001.parquet')
    with pytest.raises(ValueError, match='score is not whole; damaged: part-00001.parquet'): corpus.count('score', 0, 1)


def test_checking_500_shards_is_quick(corpora):
    corpus = corpora()
    for k in range(500): corpus.write_pairs(k, rows(2, 10 * k)), corpus.write_measure('score', k, [1, 2])
    corpus.write_manifest('derive', dict(operation=dict(merge=['a']), pairs=1000, checksums=corpus.checksums))
    corpus.problems()
    start = time.perf_counter()
    assert Corpus(corpus.folder).problems() == []
    assert time.perf_counter() - start < 1  # 0.03 s on a quiet machine


def test_a_corpus_that_is_not_there(lab):
    for folder in ('nosuch', lab.corpora / 'nosuch'):
        with pytest.raises(FileNotFoundError, match='nosuch is no corpus.*Corpus.create'): Corpus(folder)
    assert not lab.corpora.exists()


# ---- the index and the caches are an economy, never an authority

def index_of(corpus):
    "The native file of DuckDB for the corpus as it is now, which may not be there."
    return corpus.derived('numbers', corpus.measures()) / 'index.duckdb'


def spoil(corpus, how):
    index, cache = index_of(corpus), corpus.folder / 'cache/files.json'
    if how == 'deleted': shutil.rmtree(corpus.folder / 'cache')
    if how == 'empty': index.write_bytes(b''); cache.write_text('')
    if how == 'noise': index.write_bytes(os.urandom(9999)); cache.write_text('[1, 2]')
    if how == 'torn': index.write_bytes(index.read_bytes()[:5000]); cache.write_text('{"pairs/part-00000.parquet": 3')
    if how == 'foreign':
        duckdb_file(index)
        cache.write_text('{"pairs/part-00000.parquet": "x", "measures/score/part-00000.parquet": [[1, 2, 3]]}')


def duckdb_file(path):
    other = path.with_name('other.duckdb')
    with duckdb.connect(str(other)) as con: con.execute('CREATE TABLE numbers AS SELECT 1 AS pair_id')
    os.replace(other, path)


@pytest.mark.parametrize('how', ['deleted', 'empty', 'noise', 'torn', 'foreign'])
def test_spoiled_index_and_cache(corpora, how):
    corpus = filled(corpora(), [[.1, .5], [.5, .9]])
    assert corpus.count('score', .4, .6) == 2
    spoil(corpus, how)
    again = Corpus(corpus.folder)
    assert again.count('score', .4, .6) == 2
    assert again.frame(where='score > 0.6').reference.tolist() == ['Sentence 1001.']


@pytest.mark.parametrize('error', [OSError, duckdb.IOException])
def test_index_cannot_be_written(corpora, monkeypatch, error):
    def fails(self): raise error('no space left on device')
    monkeypatch.setattr(Corpus, 'build_index', fails)
    corpus = filled(corpora(), [[.1, .5], [.5, .9]])
    assert corpus.count('score', .4, .6) == 2 and corpus.sample(1, 'score', .8, 1).score.tolist() == [np.float32(.9)]
    assert not index_of(corpus).exists()


def test_a_large_corpus_still_growing_is_not_indexed(corpora, monkeypatch):
    monkeypatch.setattr(module, 'SETTLED_ROWS', 3)
    corpus = filled(corpora(), [[.1, .5], [.5, .9]])
    assert corpus.count('score', .4, .6) == 2 and not index_of(corpus).exists()
    for p in corpus.folder.rglob('part-*'): os.utime(p, (1e9, 1e9))
    assert corpus.count('score', .4, .6) == 2 and index_of(corpus).exists()


def test_new_measures_and_shards_are_seen_at_once(corpora):
    corpus, reader = filled(corpora(), [[.1, .5]]), None
    reader = Corpus(corpus.folder)
    assert reader.count('score', .4, .6) == 1
    corpus.write_pairs(1, rows(2, 1000))
    assert reader.count() == 4 and reader.measures() == []
    corpus.write_measure('score', 1, [.5, .5])
    assert reader.count('score', .4, .6) == 3
    corpus.write_measure('score', 1, [.9, .9])
    assert reader.count('score', .4, .6) == 1
    corpus.drop_measure('score')
    with pytest.raises(ValueError, match='no column'): reader.count('score')


WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from paranmt_lab.corpora.query import Corpus
    corpus = Corpus(Path(sys.argv[1]))
    for i in range(12):
        corpus.write_measure('other', 0, [i, i]); corpus.write_measure('other', 1, [i, i]); corpus.build_index()
""")

def test_readers_beside_processes_that_rebuild_the_index(corpora):
    corpus = filled(corpora(), [[.1, .5], [.5, .9]])
    writers = [subprocess.Popen([sys.executable, '-c', WRITER, corpus.folder], stderr=subprocess.PIPE)
               for _ in range(2)]
    asked = 0
    while any(w.poll() is None for w in writers):
        assert Corpus(corpus.folder).count('score', .4, .6) == 2 and corpus.count('score', .4, .6) == 2
        asked += 1
    assert asked > 3 and [w.communicate()[1] for w in writers if w.returncode] == []
    assert corpus.count('other', 10, 11) == 4


def test_threads_share_a_corpus(corpora):
    corpus = filled(corpora(), [[.1, .5], [.5, .9]])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: (corpus if i % 2 else Corpus(corpus.folder)).count('score', .4, .6), range(80)))
    assert found == [2] * 80


# ---- names and text cannot lead out

@pytest.mark.parametrize('name', ['../out', '/etc', '..', '.',
                                  '', 'a/b', 'a\\b', 'a\0b', '.hidden', 'x' * 200, 'a b', "a'; DROP", '*'])
def test_names_stay_inside(lab, name):
    corpus = filled(Corpus.create('safe', lab), [[1, 2]])
    for call in (lambda: Corpus.create(name, lab),
                 lambda: Corpus.open(name, lab), lambda: corpus.write_measure(name, 0, [1, 2]),
                 lambda: corpus.drop_measure(name), lambda: corpus.missing(name),
                 lambda: corpus.write_manifest(name, {}), lambda: corpus.manifest(name)):
        with pytest.raises(ValueError): call()
    assert list_corpora(lab) == ['safe'] and corpus.rows == 2


def test_a_link_out_of_the_workspace_is_refused(lab, tmp_path_factory):
    outside = tmp_path_factory.mktemp('outside')
    (outside / 'pairs').mkdir()
    lab.corpora.mkdir(parents=True, exist_ok=True)
    (lab.corpora / 'linked').symlink_to(outside)
    with pytest.raises(ValueError, match='outside'): Corpus.open('linked', lab)


@pytest.mark.parametrize('sql', ["SELECT * FROM read_text('/etc/hostname')",
                                 "SELECT * FROM read_csv('{out}/secret.csv')", "COPY (SELECT 1) TO '{out}/made.csv'",
                                 "ATTACH '{out}/x.duckdb'", "SET enable_external_access = true", "INSTALL httpfs"])
def test_a_query_sees_nothing_but_the_corpus(corpora, tmp_path_factory, sql):
    out = tmp_path_factory.mktemp('out')
    (out / 'secret.csv').write_text('a\n1\n')
    corpus = filled(corpora(), [[1, 2]])
    with pytest.raises(ValueError): corpus.query(sql.format(out=out))
    assert sorted(p.name for p in out.iterdir()) == ['secret.csv']


@pytest.mark.parametrize('sql', ["COPY (SELECT 1) TO '{shard}'", "WITH x AS (COPY (SELECT 1) TO '{shard}') FROM x",
                                 "SELECT 1; COPY (SELECT 1) TO '{shard}'", 'DROP VIEW pairs',
                                 "CREATE TABLE t AS SELECT 1", "UPDATE numbers SET one = 0"])
def test_a_query_changes_nothing(corpora, sql):
    """The corpus's own folder is within the connection's reach, so the query itself must be one that only asks."""
    corpus = filled(corpora(), [[1, 2]])
    before, sql = corpus.checksums, sql.format(shard=corpus.shards[0])
    with pytest.raises(ValueError): corpus.query(sql)
    with pytest.raises(ValueError): corpus.count(where=f'true; {sql}')
    assert corpus.checksums == before and corpus.check().empty and len(corpus.query('FROM pairs')) == 2


@pytest.mark.parametrize('folder', ["it's [odd]*", 'a "quoted" one', 'naïve ☃', 'semi;colon {brace}'])
def test_odd_folders(tmp_path, folder):
    lab = replace(settings(), workspace=tmp_path / folder)
    corpus = filled(Corpus.create('c', lab), [[.1, .5], [.5, .9]])
    for _ in range(2):
        assert corpus.count('score', .4, .6) == 2
        assert len(corpus.sample(3, where="reference LIKE 'Sent%' OR reference = '{0}'")) == 3
        corpus = Corpus(corpus.folder)
