"""A corpus as frames of Polars, as a stream of `datasets`, and as HTML."""
import pickle
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paranmt_lab import Corpus
from paranmt_lab.corpora.pairs import SHARD
from paranmt_lab.ground.settings import settings


@pytest.fixture
def corpus(tmp_path):
    "Five pairs in two shards, with a measure that one pair lacks."
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path))
    for shard, n in enumerate((3, 2)):
        corpus.write_pairs(shard, dict(reference=[f'Sentence {shard}.{i} <b>' for i in range(n)],
                                       translation=[f'Other words {shard}.{i}' for i in range(n)], corpus=['web'] * n))
        corpus.write_measure('words', shard, [None, *range(n - 1)])
    return corpus


def test_length_and_truth(corpus, tmp_path):
    empty = Corpus.create('empty', replace(settings(), workspace=tmp_path))
    assert (len(corpus), len(empty)) == (5, 0) and corpus and empty


def test_html_shows_the_first_pairs_and_no_tags_of_texts(corpus):
    page = corpus._repr_html_()
    assert "Corpus(&#x27;talk&#x27;: 5 pairs in 2 shards)" in page and 'Sentence 0.2 &lt;b&gt;' in page
    assert 'Sentence 1.0' not in page and 'source_lang' not in page, 'a column without values'


@pytest.mark.parametrize('bytes_', [None, b'PAR1 not a file of Parquet'])
def test_html_of_an_empty_or_damaged_corpus(tmp_path, bytes_):
    corpus = Corpus.create('empty', replace(settings(), workspace=tmp_path))
    if bytes_:
        corpus.write_pairs(0, dict(reference=['a']))
        corpus.write_pairs(1, dict(reference=['b']))
        whole = corpus.shard_path(0).read_bytes()
        corpus.shard_path(0).write_bytes(whole[:4] + bytes(40) + whole[44:])
    page = corpus._repr_html_()
    assert page.startswith('<p>Corpus(') and 'table' not in page


def test_polars_has_the_rows_of_pandas(corpus):
    pytest.importorskip('polars', reason='extra `frames`')
    for question in (dict(), dict(columns=['translation', 'words'], where='words >= ?', params=[0], limit=2),
                     dict(columns=['words', 'pair_id'], order='words DESC'), dict(where='false')):
        ours, theirs = corpus.frame(**question), corpus.polars(**question)
        assert theirs.columns == list(ours) and theirs.rows() == [
            tuple(None if pd.isna(x) else x for x in row) for row in ours.itertuples(index=False, name=None)]


def test_a_stream_has_all_pairs_with_their_measures(corpus):
    pytest.importorskip('datasets', reason='extra `frames`')
    before = sorted(corpus.folder.rglob('*'))
    stream = corpus.dataset()
    rows, frame = list(stream), corpus.frame()
    assert stream.num_shards == 2 and stream.column_names == list(frame) == list(rows[0])
    assert [row['pair_id'] for row in rows] == [0, 1, 2, SHARD, SHARD + 1]
    assert [row['words'] for row in rows] == [None if np.isnan(x) else x for x in frame.words]
    assert [row['reference'] for row in rows] == frame.reference.tolist()
    tables = list(corpus.dataset(['translation', 'words']).with_format('arrow').iter(2))
    assert [t.column_names for t in tables] == [['translation', 'words']] * len(tables)
    assert sum(map(len, tables)) == 5
    assert list(pickle.loads(pickle.dumps(stream))) == rows, 'worker processes get it pickled'
    assert [p for p in sorted(corpus.folder.rglob('*')) if 'cache' not in p.parts] == [
        p for p in before if 'cache' not in p.parts], 'nothing is written'
    with pytest.raises(ValueError, match='no column'): corpus.dataset(['nonesuch'])


@pytest.mark.parametrize('library, method', [('polars', 'polars'), ('datasets', 'dataset')])
def test_a_missing_library_is_named_with_its_extra(corpus, monkeypatch, library, method):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{library} is not installed: pip install 'paranmt-lab\[frames\]'"):
        getattr(corpus, method)()
