"""Neighbours: what is kept of all cosines, vectors whose making was killed, damaged files, and the index beside all."""
import importlib.util
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings
from paranmt_lab.neighbours import index as of_index, vectors as of_vectors
from paranmt_lab.neighbours.index import EDGES, nearest, neighbours
from paranmt_lab.neighbours.vectors import build_vectors, open_vectors, unit_rows

needs_faiss = pytest.mark.skipif(importlib.util.find_spec('faiss') is None,
                                 reason='NO INDEX: pip install faiss-cpu (extra `neighbours`)')


class Numbers:
    "Encodes `sentence 17` by a random vector of its number; remembers what it was asked, and fails when told to."
    dim, identity = 16, dict(name='numbers', checksum='1')
    def __init__(self, fails_after=10**9): self.asked, self.left = [], fails_after
    def encode(self, sentences):
        self.left -= 1
        if self.left < 0: raise KeyboardInterrupt
        self.asked += sentences
        return np.array([np.random.default_rng(int(s.split()[-1])).normal(size=16) for s in sentences])


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    "250 distinct sentences in 500 pairs of three shards, and blocks of 60 vectors."
    monkeypatch.setattr(of_vectors, 'BLOCK', 60)
    corpus = Corpus.create('numbers', replace(settings(), workspace=tmp_path))
    texts = [f'sentence {k % 250}' for k in range(500)]
    for shard, start in enumerate((0, 130, 260)):
        end = (130, 260, 500)[shard]
        corpus.write_pairs(shard, dict(reference=texts[start:end], translation=[None] * (end - start)))
    return corpus


@hypothesis_settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 12))
def test_blocks_of_any_size_find_what_sorting_finds(values, block, k):
    "Many cosines are equal; of those the first rows are taken, whatever the blocks are."
    x = np.array(values, np.float32)[:, None] / 50
    q = np.ones(1, np.float32)
    found = nearest([(i, x[i:i + block]) for i in range(0, len(x), block)], q, k)
    every = (x @ q).astype(np.float32)
    assert found.rows.tolist() == sorted(range(len(x)), key=lambda i: (-every[i], i))[:k]
    assert found.counts.sum() == len(x)
    inside = [np.count_nonzero((every >= low) & (every < high)) for low, high in ((-1, 0), (0, 1.1))]
    assert [found.counts[:50].sum(), found.counts[50:].sum()] == inside


def test_a_killed_build_goes_on_with_the_same_vectors(corpus):
    killed = Numbers(fails_after=2)
    with pytest.raises(KeyboardInterrupt): build_vectors(corpus, killed, show=False)
    assert open_vectors(corpus, killed.identity) is None and len(killed.asked) == 120
    again = Numbers()
    vectors = build_vectors(corpus, again, show=False)
    assert sorted(killed.asked + again.asked) == sorted(f'sentence {k}' for k in range(250))  # none twice
    assert vectors.sentences(range(250)) == [f'sentence {k}' for k in range(250)]
    np.testing.assert_allclose(vectors.rows(range(250)), unit_rows(Numbers().encode(vectors.sentences(range(250)))))
    assert not list(vectors.folder.glob('.*part*'))
    assert build_vectors(corpus, Numbers(fails_after=0), show=False).facts == vectors.facts  # it is there already


def test_a_build_stops_on_request_between_blocks(corpus):
    encoder = Numbers()
    folder = of_vectors.vectors_folder(corpus, encoder.identity, 'reference')
    encode = encoder.encode
    encoder.encode = lambda texts: ((folder / 'stop').touch(), encode(texts))[1]
    assert build_vectors(corpus, encoder, show=False) is None and len(encoder.asked) == 60
    encoder.encode = encode
    assert len(build_vectors(corpus, encoder, show=False)) == 250 and len(encoder.asked) == 250


@pytest.mark.parametrize('damage', [lambda p: p.write_bytes(p.read_bytes()[:-100]), lambda p: p.unlink(),
                                    lambda p: p.write_bytes(b''), lambda p: np.save(p, np.zeros((3, 16), np.float32))])
def test_a_damaged_file_of_vectors_is_named(corpus, damage):
    encoder = Numbers()
    vectors = build_vectors(corpus, encoder, show=False)
    damage(vectors.folder / 'vectors-00002.npy')
    with pytest.raises(ValueError, match=r'vectors-00002.npy: .*; delete the folder \w+ and make the vectors again'):
        neighbours(vectors, encoder, 'sentence 3')


def test_neighbours_are_other_sentences_and_their_cosines_exact(corpus):
    encoder = Numbers()
    vectors = build_vectors(corpus, encoder, show=False)
    x = unit_rows(encoder.encode([f'sentence {k}' for k in range(250)]))
    for asked, own in (('sentence 7', 7), ('another sentence 7', None)):
        found = neighbours(vectors, encoder, asked, 5)
        cosines = x @ x[7]
        expected = [k for k in np.argsort(-cosines) if k != own][:5]
        assert found.table.sentence.tolist() == [f'sentence {k}' for k in expected]
        np.testing.assert_allclose(found.table.cosine, cosines[expected], rtol=1e-5)
        assert found.table.pair_id.tolist() == vectors.ids[expected].tolist()
        counts = np.histogram(cosines.clip(-1, 1).astype(float), EDGES)[0]
        assert found.distribution.sentences.tolist() == counts.tolist()
    assert len(neighbours(vectors, encoder, 'sentence 7', 1000).table) == 249


def test_vectors_follow_the_corpus_the_encoder_and_the_column(corpus):
    first, other = Numbers(), Numbers()
    other.identity = dict(name='numbers', checksum='2')
    vectors, beside = (build_vectors(corpus, e, show=False) for e in (first, other))
    assert vectors.folder != beside.folder
    corpus.write_pairs(3, dict(reference=['sentence 900'], translation=['sentence 5']))
    grown = build_vectors(corpus, first, show=False)
    assert len(grown) == 251 and not vectors.folder.exists() and beside.folder.exists()
    assert build_vectors(corpus, first, 'translation', show=False).sentences([0]) == ['sentence 5']
    with pytest.raises(ValueError, match="no sentence in its column 'source'"):
        build_vectors(corpus, first, 'source', show=False)


@needs_faiss
def test_an_index_goes_on_and_finds_what_comparing_with_all_finds(corpus, monkeypatch):
    encoder = Numbers()
    vectors = build_vectors(corpus, encoder, show=False)
    monkeypatch.setattr(of_index, 'WRITE_EVERY', 1)
    write = of_index._write
    def dies(index, path):
        write(index, path)
        raise KeyboardInterrupt
    monkeypatch.setattr(of_index, '_write', dies)
    with pytest.raises(KeyboardInterrupt): of_index.build_index(vectors, show=False)
    monkeypatch.setattr(of_index, '_write', write)
    assert of_index.open_index(vectors) is None
    index = of_index.build_index(vectors, show=False)
    assert index.ntotal == 250
    assert of_index.recall(index, vectors, range(0, 250, 10), probes=index.nlist) > .98
    monkeypatch.setattr(of_index, 'EXACT', 100)
    by_index, by_all = (find(vectors, encoder, 'sentence 7', 3) for find in (of_index.find_neighbours, neighbours))
    known = by_all.table.set_index('sentence').cosine
    assert by_index.compared == 84 and by_all.compared == 250  # every third sentence
    for row in by_index.table.itertuples():
        if row.sentence in known: assert row.cosine == pytest.approx(known[row.sentence], rel=1e-6)
