"""Every compiled measure against its slow definition, on real pairs, on awkward ones, and on text that is made up.

The slow path cuts with `tokenize` and counts Python strings; nothing of the compiled path is in it."""
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings as how, strategies as st

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.zoo import word_vectors
from paranmt_lab.filters.alignment import _aligned, word_alignment
from paranmt_lab.filters.characters import character_column
from paranmt_lab.filters.measures import ngram_overlap
from paranmt_lab.filters.scoring import BatchArguments, score, score_batch
from paranmt_lab.filters.table import MEASURES, characters, model_kind, tokens
from paranmt_lab.filters.tokens import TokenColumn, token_column, token_columns
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.tokens.text import tokenize
from references import references

CHARACTERS, WORDS = references('filters.characters'), references('filters.words')
overlap_slowly = references('filters.measures').overlap_slowly
alignment_slowly = references('filters.alignment').alignment_slowly
NONE = float('nan')
TINY = {'sentence_bleu': 1e-38} # a BLEU may be as small as that; an evenness of 0 has the rounding of a logarithm


def bleu(reference, translation):
    "Smoothed as in Nakov et al. 2012, written without a look at the package: counts in dictionaries, a product."
    def count(tokens, n):
        found = {}
        for i in range(len(tokens)):
            gram = ' '.join(tokens[i:i + n])
            if i + n <= len(tokens): found[gram] = found.get(gram, 0) + 1
        return found
    product = 1.
    for n in (1, 2, 3, 4):
        theirs, ours = count(reference, n), count(translation, n)
        matches = sum(min(times, theirs.get(gram, 0)) for gram, times in ours.items())
        product *= (matches + 1) / (sum(ours.values()) + 1)
    too_short = len(translation) < len(reference) + 1
    return product ** .25 * (math.e ** (1 - (len(reference) + 1) / len(translation)) if too_short else 1)


def ratio(r, t): return max(len(r), len(t)) / min(len(r), len(t))


OF_TOKENS = {
    'length_ratio': ratio, 'sentence_bleu': bleu,
    'unigram_overlap': lambda r, t: overlap_slowly(r, t, 1), 'bigram_overlap': lambda r, t: overlap_slowly(r, t, 2),
    'trigram_overlap': lambda r, t: overlap_slowly(r, t, 3),
    'near_identity': lambda r, t: 1 - CHARACTERS.distance_slowly(r, t) / max(len(r), len(t))}
OF_TEXTS = {'identity': CHARACTERS.identical_slowly, 'character_trigram_overlap': CHARACTERS.character_overlap_slowly}
OF_ONE = {'length': len, 'unigram_repetition': lambda t: WORDS.repetition_slowly(t, 1),
          'trigram_repetition': lambda t: WORDS.repetition_slowly(t, 3), 'word_evenness': WORDS.evenness_slowly}


def slowly(source, reference, translation):
    "All measures of one pair by their definitions."
    s, r, t = (None if text is None else tokenize(text) for text in (source, reference, translation))
    found = {f'{side}_{name}': f(x) if x else NONE
             for side, x in (('reference', r), ('translation', t)) for name, f in OF_ONE.items()}
    found |= {name: f(r, t) if r and t else NONE for name, f in OF_TOKENS.items()}
    found |= {name: f(reference, translation) if r and t else NONE for name, f in OF_TEXTS.items()}
    return found | {'copied_source': WORDS.copied_slowly(s, t) if s and t else NONE}


# Measures with a slow definition; one in plain Python is its own
LEXICAL = list(slowly('a', 'a', 'a'))


def batch_of(rows):
    names = 'source', 'reference', 'translation'
    return pa.record_batch([pa.array(column, pa.string()) for column in zip(*rows)], names=names)


def compare(rows):
    "Compiled against slow, all rows and measures; returns how many values there were."
    fast, slow = score_batch(batch_of(rows), LEXICAL), [slowly(*row) for row in rows]
    for name in LEXICAL:
        wanted = np.array([row[name] for row in slow])
        assert fast[name].dtype == np.float32
        if name == 'sentence_bleu' or 'evenness' in name:
            np.testing.assert_allclose(fast[name], wanted, 2e-6, TINY.get(name, 1e-6), err_msg=name)
        else: np.testing.assert_array_equal(fast[name], wanted.astype(np.float32), err_msg=name)
    return sum(np.isfinite(fast[name]).sum() for name in LEXICAL)


AWKWARD = ['', ' ', None, '!', 'a', 'Word', 'no no no no', "don't n't 'll", 'İstanbul ΟΔΟΣ ΟΔΟΣ.',
           '東京都は日本語。', '👍🏽 ok', 'cafe\u0301 café', 'x\0y \0', '\u2028\x1c\xa0\u200b',
           'sentences ' * 300, 'ß' * 5000, '\ufffd \U0010ffff',
           "The quick brown fox doesn't jump over 13 lazy dogs; it's resting."]


def test_every_slow_definition_is_of_a_measure_of_texts():
    kinds = {name: {a.kind for a in MEASURES[name].takes} for name in LEXICAL}
    assert len(kinds) >= 17 and all(of and of <= {'tokens', 'characters'} for of in kinds.values()), kinds


def test_awkward_pairs():
    compare([(AWKWARD[(i + k) % len(AWKWARD)], a, b) for i, a in enumerate(AWKWARD) for k, b in enumerate(AWKWARD)])


def real_pairs(n):
    "Pairs of WMT 2021 to 2023, some sides of which are made empty, missing or one word."
    file = settings().resources / 'train/paraphrase/wmt21-23.parquet'
    if not file.exists(): pytest.skip(f'{file} is absent')
    columns = pq.read_table(file, columns=['source', 'reference', 'hypothesis'])
    rng = np.random.default_rng(0)
    rows = [list(row.values()) for row in columns.take(rng.choice(len(columns), n, replace=False)).to_pylist()]
    for i in rng.choice(n, n // 20, replace=False):
        side = rng.integers(3)
        rows[i][side] = [None, '', '  ', rows[i][side].split()[:1][0], '東京', 'ΟΔΟΣ', "n't"][rng.integers(7)]
    return rows


@pytest.mark.parametrize('n', [2_000, pytest.param(200_000, marks=pytest.mark.soak)])
def test_real_pairs(n):
    rows, values = real_pairs(n), 0
    for a in range(0, n, 20_000): values += compare(rows[a:a + 20_000])
    assert values > 13 * n


def test_the_sample():
    lines = (settings().sample / 'bitext.cs-en.tsv').read_text(encoding='utf-8').splitlines()[1:]
    rows = [line.split('\t')[:2] for line in lines]
    compare([(a, b, rows[i - 1][1]) for i, (a, b) in enumerate(rows)] + [(a, b, b) for a, b in rows[:50]])


letters = st.sampled_from("aAbnN'’tsTé\u0301Σσς İßж日1_-. \t\0👍")
made = st.none() | st.text(letters, max_size=40) | st.text(st.characters(exclude_categories=['Cs']), max_size=30)


@how(max_examples=300, deadline=None)
@given(st.lists(st.tuples(made, made, made), min_size=1, max_size=8))
@example([('n', "N'", "n'T"), ('', 'Σ', "aΣ'"), (None, '\0', '\0\0')])
def test_text_that_is_made_up(rows): compare(rows)


few = st.lists(st.sampled_from(['a', 'b', 'c', 'sentence', 'sentences', 'ä', '', '\0', '\0a']), max_size=9)


@how(max_examples=200, deadline=None)
@given(st.lists(st.tuples(few, few), min_size=1, max_size=5), st.integers(1, 5))
def test_lists_of_any_tokens(pairs, n):
    wanted = [overlap_slowly(r, t, n) if r and t else NONE for r, t in pairs]
    np.testing.assert_array_equal(ngram_overlap(*zip(*pairs), n), np.array(wanted, np.float32))


# ---- columns

def test_a_column_is_cut_once_and_all_sides_alike():
    arguments = BatchArguments(batch_of([('Nachbarschaft!', 'Neighbourhoods', 'The neighbourhoods')]))
    r, t, s = (arguments.get(tokens(side)) for side in ('reference', 'translation', 'source'))
    assert r.types is t.types is s.types and r.keys[0] == t.keys[1] != s.keys[0]
    assert arguments.get(tokens('reference')) is r
    assert list(arguments.get(characters('source'))) == ['nachbarschaft!']


def test_a_column_is_a_sequence():
    column = token_column(pa.array(['It’s late', None, '']))
    assert list(column) == [['it', "'s", 'late'], None, []] and column[2] == []
    assert isinstance(column, TokenColumn) and len(column) == 3
    with pytest.raises(IndexError, match='row 3 of 3'): column[3]


@pytest.mark.parametrize('make', [
    lambda texts: pa.array(texts), lambda texts: pa.array(texts, pa.large_string()),
    lambda texts: pa.chunked_array([texts]),
    lambda texts: pa.array(texts).dictionary_encode(), lambda texts: pa.array(['before', *texts, 'after'])[1:-1]])
def test_any_column_of_texts(make):
    texts = ['Late, late neighbourhoods', None, '', 'Žluťoučký kůň']
    assert list(token_column(make(texts))) == [None if t is None else tokenize(t) for t in texts]
    assert list(character_column(make(texts))) == [None if t is None else t.lower() for t in texts]


def test_no_rows_and_only_nulls():
    for column in pa.array([], pa.string()), pa.nulls(3), pa.nulls(3, pa.string()):
        assert list(token_column(column)) == [None] * len(column) == list(character_column(column))
    empty = batch_of([('a', 'b', 'c')]).slice(0, 0)
    assert all(values.shape == (0,) for values in score_batch(empty, LEXICAL).values())


def test_bytes_that_are_not_utf8_are_refused():
    buffers = None, pa.py_buffer(np.array([0, 2, 3], np.int32)), pa.py_buffer(b'ab\xf0')
    damaged = pa.Array.from_buffers(pa.string(), 2, list(buffers))
    for make in token_column, character_column:
        with pytest.raises(pa.ArrowInvalid, match='(?i)invalid utf8.*1'): make(damaged)


def test_sides_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match='numbered apart'):
        ngram_overlap(token_column(pa.array(['neighbourhoods'])), token_column(pa.array(['neighbourhoods'])))
    with pytest.raises(ValueError, match='sides of 1, 2 texts'): token_columns(['a'], ['a', 'b'])
    with pytest.raises(TypeError, match='expected a column of texts, found double'): token_column(pa.array([.5]))


def test_words_have_three_characters():
    assert WORDS.words_slowly(tokenize("They'll say n't to 're of café cafés 東京都 1,250 €5000")) == [
        'they', 'say', 'café', 'cafés', '東京都', '250', '5000']


# ---- words aligned by their vectors

def test_alignment_is_its_definition_on_awkward_and_real_pairs():
    vectors = word_vectors(open_model('paraphrase-scorer'))
    short = [text for text in AWKWARD if text is None or len(text) < 200]
    file = settings().resources / 'train/paraphrase/wmt21-23.parquet'
    some = pq.read_table(file, columns=['reference', 'hypothesis']).slice(0, 60) if file.exists() else None
    pairs = [(a, b) for a in short for b in short] + (list(zip(*some.to_pydict().values())) if some else [])
    fast = _aligned(*zip(*pairs), vectors)
    slow = [[NONE] * 3 if None in pair else alignment_slowly(*map(tokenize, pair), vectors) for pair in pairs]
    np.testing.assert_allclose(fast, slow, atol=1e-4)
    other = _aligned(*zip(*[(b, a) for a, b in pairs]), vectors)
    np.testing.assert_allclose(other[:, [0, 2, 1]], fast, atol=1e-4)
    assert word_alignment([], [], vectors).shape == (0,)


def test_an_encoder_without_words_is_refused_and_passed_over(tmp_path):
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path))
    corpus.write_pairs(0, dict(reference=['Where is it?', 'Yes.', ''], translation=['Where?', None, 'No.']))
    trigrams = {'trigrams': open_model('paraphrase-scorer').remodelled('TRIGRAM')}
    with pytest.raises(ValueError, match='encoder:trigrams has none: name one that reads words'):
        score(corpus, ['word_alignment'], trigrams, show=False)
    assert corpus.measures() == []
    score(corpus, (), trigrams, show=False)
    assert 'paraphrase_score@trigrams' in corpus.measures() and 'word_alignment@trigrams' not in corpus.measures()
    score(corpus, ['word_alignment'], ['paraphrase-scorer'], show=False)
    found = corpus.frame(['word_alignment@paraphrase-scorer']).iloc[:, 0]
    assert found.isna().tolist() == [False, True, True] and .5 < found[0] < 1


# ---- in a corpus

def test_an_empty_side_is_null_and_in_no_range(tmp_path):
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path))
    corpus.write_pairs(0, dict(source=['Kde?', ' ', None, 'Ano.'], reference=['Where?', 'Where?', 'Where?', ''],
                               translation=['Where is it?', '?', '', 'Yes.'], translation_score=[-.5, 0., 0., -.1]))
    names = [name for name, m in MEASURES.items() if m.function and not model_kind(name)]
    score(corpus, names, show=False)
    score(corpus, ['paraphrase_score', 'word_alignment'], ['paraphrase-scorer'], show=False)
    frame = corpus.frame([*names, 'paraphrase_score@paraphrase-scorer', 'word_alignment@paraphrase-scorer'])
    for name in ('paraphrase_score', 'word_alignment'): # two empty sides have one vector, and would be a perfect pair
        assert frame[f'{name}@paraphrase-scorer'].isna().tolist() == [False, False, True, True]
    assert frame.translation_cost.isna().tolist() == [False, True, True, False] and frame.translation_cost[0] == .5
    for name in LEXICAL:
        if len(MEASURES[name].takes) == 2 and name != 'copied_source':
            assert frame[name].isna().tolist() == [False, False, True, True], name
            assert corpus.count(name, -1, 99) == 2, name
    assert frame.copied_source.isna().tolist() == [False, True, True, False]


def test_a_measure_without_any_value_says_which_column_is_missing(tmp_path):
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path))
    corpus.write_pairs(0, dict(reference=['Where?', 'Yes.'], translation=['Where is it?', 'No.']))
    notes = score(corpus, ['copied_source', 'unigram_overlap'], show=False).attrs['notes']
    assert notes == ['copied_source has no value in any of the 2 pairs of corpus talk: no pair has a source']
    assert score(corpus, show=False).attrs['notes'] == []  # nobody asked for it by name


def test_values_of_an_earlier_version_are_computed_again(tmp_path):
    corpus = Corpus.create('talk', replace(settings(), workspace=tmp_path))
    corpus.write_pairs(0, dict(reference=['Where?', ''], translation=['Where is it?', '?']))
    score(corpus, ['trigram_overlap'], show=False)
    corpus.write_manifest('score-trigram_overlap', corpus.manifest('score-trigram_overlap') | dict(version=1))
    corpus.write_measure('trigram_overlap', 0, np.array([0, 0], np.float32)) # as version 1 had it
    score(corpus, ['trigram_overlap'], show=False)
    assert corpus.frame(['trigram_overlap']).trigram_overlap.isna().tolist() == [False, True]
