"""The index of a corpus for the app: interrupted, outdated and damaged, it never changes an answer."""
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paranmt_lab.browsing import index, orders, search
from paranmt_lab.browsing.distributions import PairFilter, text_condition, text_ids
from paranmt_lab.browsing.index import Browsing, index_corpus, is_indexed, missing_parts
from paranmt_lab.browsing.rows import blocks_path
from paranmt_lab.browsing.search import MOST, blocks_with, contain, lower_text, search_pairs, words_path
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings


@pytest.fixture
def corpus(tmp_path):
    "Three shards and two measures, one of them with gaps and equal values."
    made, rng = Corpus.create('made', replace(settings(), workspace=tmp_path)), np.random.default_rng(0)
    for shard, n in enumerate((700, 700, 30)):
        made.write_pairs(shard, dict(reference=[f'Reference {i} of {shard}.' for i in range(n)],
                                     translation=[f'Translation {i % 50}.' for i in range(n)]))
        made.write_measure('trigram_overlap', shard, rng.random(n))
        made.write_measure('reference_length', shard, np.where(rng.random(n) < .2, np.nan, rng.integers(0, 4, n)))
    return made


def same_answers(corpus):
    "Whether the pages see what the files hold."
    fast, slow = Browsing(corpus.folder), Corpus(corpus.folder)
    for m, low, high in (('trigram_overlap', .1, .7), ('reference_length', 0, 2), ('reference_length', None, None)):
        assert fast.count(m, low, high) == slow.count(m, low, high)
        assert fast.histogram(m, 9).equals(slow.histogram(m, 9))
        assert fast.sample(30, m, low, high, 3).equals(slow.sample(30, m, low, high, 3))
        for top in (False, True):
            assert fast.ordered(m, low, high, 40, 250, top).equals(slow.ordered(m, low, high, 40, 250, top))
    texts = slow.frame(['pair_id', 'reference'])
    hits = texts.pair_id[texts.reference.str.contains('69')].tolist()
    assert sorted(np.concatenate([ids for ids, _ in fast.search('69', ['reference'])])) == sorted(hits)


def test_an_interrupted_index_is_resumed(corpus, monkeypatch):
    "What was done before the end stays; the next call does the rest alone."
    built, real = [], orders.build_order
    def build(corpus, measure):
        if built: raise KeyboardInterrupt
        built.append(measure)
        return real(corpus, measure)
    monkeypatch.setattr(index, 'build_order', build)
    with pytest.raises(KeyboardInterrupt): index_corpus(corpus, show=False)
    assert missing_parts(corpus) == ([], ['trigram_overlap']) and built == ['reference_length']
    same_answers(corpus)
    monkeypatch.setattr(index, 'build_order', real)
    assert index_corpus(corpus, show=False) and is_indexed(corpus)
    same_answers(corpus)


def test_an_outdated_or_damaged_index_is_not_used(corpus):
    "A measure written anew, a shard that came later, and files that were cut short."
    index_corpus(corpus, show=False)
    corpus.write_measure('trigram_overlap', 1, np.zeros(700))
    assert missing_parts(corpus) == ([], ['trigram_overlap'])
    same_answers(corpus)
    corpus.write_pairs(3, dict(reference=['One more.'], translation=['Another.']))
    for m in ('trigram_overlap', 'reference_length'): corpus.write_measure(m, 3, [1])
    assert missing_parts(corpus) == ([3], ['reference_length', 'trigram_overlap'])
    same_answers(corpus)
    index_corpus(corpus, show=False)
    same_answers(corpus)
    for path in (blocks_path(corpus, 0), words_path(corpus, 1),
                 orders.order_folder(corpus, 'trigram_overlap') / 'order.npy'):
        path.write_bytes(path.read_bytes()[:-300])
    assert missing_parts(corpus) == ([0, 1], ['trigram_overlap'])
    same_answers(corpus)


def test_an_id_that_is_not_there_is_named(corpus):
    index_corpus(corpus, show=False)
    with pytest.raises(ValueError, match='no pair 2000000030: shard 2 has 30 rows'):
        Browsing(corpus.folder).pairs_by_id([2_000_000_030])


PIECES = [*'abAü', 'Ü', ' ', ' ', ' ', '-', 'ab', 'abba', 'İ', 'i', 'straße', 'ẞ', 'ſ', 's', 'K', '\u212a', 'k', 'Σ',
          'σ', 'ς', 'ﬁ', 'fi', 'é', 'É', 'e\u0301', 'E\u0301', '🦆', 'Ǆ', 'ǆ', '%', '_', "'", '"', '\\', '\n', '\u00a0']
HOSTILE = ["') OR ('1' = '1", '%', '_', '\\', '"', "'", ' ', '  ', 'a ', ' a', 'a  b', '?', '$1', '\x00', '\ud800',
           'Ångström', 'a b ab abba', 'x' * 200, 'é', 'É', '\u0301', 'zz']


def lower(text):
    "The lower case of each character by itself; of İ it is i, without the dot that Python keeps."
    return ''.join('i' if c == 'İ' else c.lower() for c in text)


@pytest.fixture(scope='module')
def letters(tmp_path_factory):
    "A corpus of hard letters with an index of words, its two sides, and a function that draws texts."
    rng = np.random.default_rng(0)
    made = lambda most: ''.join(rng.choice(PIECES, rng.integers(1, most)))
    corpus = Corpus.create('made', replace(settings(), workspace=tmp_path_factory.mktemp('letters')))
    sides = [[made(7) if rng.random() < share else None for _ in range(3000)] for share in (1, .98)]
    corpus.write_pairs(0, dict(reference=sides[0], translation=sides[1]))
    corpus.write_pairs(1, dict(reference=[]))  # a shard may be empty
    index_corpus(corpus, show=False)
    return corpus, sides, made


def texts_of(letters):
    "Drawn texts, parts of sentences and hostile texts."
    _, sides, made = letters
    rng, there = np.random.default_rng(1), [text for text in sides[0] if text]
    parts = [text[a:a + rng.integers(1, 9)] for text in there[:80] for a in [rng.integers(len(text))]]
    return sorted({made(8) for _ in range(80)} | set(parts) | {lower(part) for part in parts} | set(HOSTILE))


def test_the_index_of_words_finds_what_reading_all_texts_finds(letters):
    "Letters in the middle of words, over spaces, at both ends, in any case and of any alphabet."
    corpus, sides, _ = letters
    ways = []
    for words in texts_of(letters):
        fold = lower if words == lower(words) else str
        hits = [i for i, texts in enumerate(zip(*sides)) if any(words in fold(text) for text in texts if text)]
        assert np.concatenate([ids for ids, _ in search_pairs(corpus, words)]).tolist() == hits, words
        ways.append(blocks_with(corpus, 0, words).mean() <= MOST)
    assert 20 < sum(ways) < len(ways) - 20  # both by blocks and by row groups


def test_a_text_of_the_filter_is_found_by_the_index_as_by_reading_all_texts(letters, monkeypatch):
    "The ids of a text are those of DuckDB and of the mask in memory, with an index and without."
    corpus, sides, _ = letters
    rows = dict(reference=np.array(sides[0], object), translation=np.array(sides[1], object))
    texts = [text for text in texts_of(letters) if text != '\ud800'][::4] + HOSTILE  # UTF-8 has no half characters
    texts.remove('\ud800')
    for text in texts:
        pass_ids = sorted(corpus.frame(['pair_id'], text_condition('?', text), [text] * 2).pair_id)
        assert np.flatnonzero(PairFilter(text=text).mask(rows)).tolist() == pass_ids, text
        assert pq.read_table(text_ids(corpus, text))['pair_id'].to_pylist() == pass_ids, text
        text_ids(corpus, text).unlink()
    monkeypatch.setattr(search, 'has_words', lambda *_: False)
    for text in ('ab', 'É', ' ', "') OR ('1' = '1"):
        pass_ids = sorted(corpus.frame(['pair_id'], text_condition('?', text), [text] * 2).pair_id)
        assert pq.read_table(text_ids(corpus, text))['pair_id'].to_pylist() == pass_ids, text


def test_duckdb_and_the_search_agree_on_every_character():
    "The condition of a saved selection keeps the pairs that the search finds, whatever their letters."
    every = [chr(i) for i in range(1, 0x110000) if not 0xd800 <= i < 0xe000]
    with duckdb.connect(':memory:') as con:
        con.register('characters', pa.table(dict(c=every)))
        low = con.sql('SELECT lower(c) AS low FROM characters').fetchnumpy()['low'].tolist()
    found_in = lambda text, words: contain(pa.chunked_array([pa.array([text])]), words)[0]
    letters = [(upper, lower) for upper, lower in zip(every, low) if upper != lower]
    assert len(letters) > 1000 and all(found_in(upper, lower) for upper, lower in letters)
    assert not any(found_in(lower, upper) for upper, lower in letters), 'an upper-case letter is found as it is'
    assert low == [*lower_text(''.join(every))]
