"""What the notebook on text cannot show: properties over arbitrary Unicode, and damaged files."""
import gzip
import sys
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings as hypothesis_settings, strategies as st

from paranmt_lab.ground.settings import DataWarning, settings
from paranmt_lab.tokens.lookup import TypeTable, hashed_tokens, rows_of, table_of
from paranmt_lab.tokens.text import (
    FEATURES,
    POLICIES,
    SPLITS,
    TOKEN,
    Packed,
    VectorFileError,
    Vocabulary,
    VocabularyError,
    char_ngrams,
    cut_of,
    gather,
    join,
    ngrams,
    pack,
    read_vectors,
    tokenize,
)
from references import references

# Text dense in what the tokeniser decides on: n't, apostrophes, marks, digits, odd spaces, emoji, lone surrogates.
tokenize_slowly = references('tokens.text').tokenize_slowly
ODD_SPACES = "\t\n\x1c\x1f\x85\u00a0\u3000"
TRICKY = st.text(st.sampled_from(ODD_SPACES + "nNt'’sdmlrevx_09.-  \u0301\u0345\u200b\ufe0fßİΣΑǅ½日👍\0\ud800"),
                 max_size=40)


@hypothesis_settings(max_examples=500, deadline=None)
@given(st.one_of(TRICKY, st.text(max_size=60)))
@example("N'T n't N’T'N'T")
def test_pattern_equals_the_plain_reference(text):
    assert tokenize(text) == tokenize_slowly(text)


@hypothesis_settings(deadline=None)
@given(st.one_of(TRICKY, st.text(max_size=60)))
def test_tokens_lose_only_white_space(text):
    assert ''.join(tokenize(text)) == ''.join(text.lower().replace('’', "'").split())


@hypothesis_settings(deadline=None)
@given(st.text(max_size=60), st.integers(1, 6))
def test_character_ngrams_cover_the_padded_sentence(text, n):
    padded = f' {text.lower()} '
    found = char_ngrams(text, n)
    assert len(found) == max(0, len(padded) - n + 1) and all(len(g) == n for g in found)
    assert found == [''.join(g) for g in ngrams(padded, n)]


def test_word_characters_of_the_pattern_are_those_of_the_reference():
    "One class of `re` against two methods of `str`, over the whole of Unicode but surrogates."
    for point in range(sys.maxunicode + 1):
        c = chr(point)
        if 0xD800 <= point < 0xE000 or c in "'’": continue
        assert bool(TOKEN.fullmatch(c)) == (not c.isspace()), hex(point)
        assert ((len(TOKEN.findall(f'a{c}')) == 1)
                == (c.isalnum() or c == '_' or c.isspace() or '\u0300' <= c <= '\u036f')), hex(point)


def test_long_sentences_take_linear_time():
    for text in ('n' * 200_000, "n't" * 70_000, "'" * 200_000, 'n' * 100_000 + "'", '\u0301' * 200_000):
        assert ''.join(tokenize(text)) == text


@hypothesis_settings(deadline=None)
@given(st.lists(TRICKY, max_size=6), st.sampled_from(POLICIES), st.sampled_from(sorted(FEATURES)), TRICKY)
def test_every_sentence_has_rows_of_the_matrix(sentences, policy, feature, new):
    vocabulary = Vocabulary.build(map(FEATURES[feature], sentences), min_count=2, policy=policy)
    ids = vocabulary.ids(FEATURES[feature](new))
    assert ids and all(0 <= i < len(vocabulary) for i in ids)


def plainly(feature, sentences, vocabulary):
    return pack(map(vocabulary.ids, map(cut_of(feature, vocabulary.split), sentences)))


def same(a, b):
    return ((a.ids.dtype, a.offsets.dtype) == (np.int32, np.int64)
            and np.array_equal(a.ids, b.ids) and np.array_equal(a.offsets, b.offsets))


SENTENCES = st.lists(st.one_of(TRICKY, st.text(max_size=30)), max_size=8)


@hypothesis_settings(max_examples=500, deadline=None)
@given(st.lists(TRICKY, max_size=6), SENTENCES, st.sampled_from(POLICIES), st.sampled_from(sorted(FEATURES)),
       st.sampled_from(SPLITS))
@example(['ΑΣ'], ['ΑΣ ΑΣΑ\ud800', 'İ', "n't"], 'reference', 'word', 'words')
@example(['ΑΣ dog'], ['ΑΣ ΑΣΑ\ud800', 'İ', "n't’s", 'dog, «Dog»\xa0ΑΣ'], 'reference', 'word', 'space')
def test_compiled_rows_are_the_plain_ones(known, sentences, policy, feature, split):
    vocabulary = Vocabulary.build(map(cut_of(feature, split), known), policy=policy, split=split)
    plain = plainly(feature, sentences, vocabulary)
    assert all(same(rows_of(feature, sentences, vocabulary, threads), plain) for threads in (1, 2))
    assert same(join([rows_of(feature, part, vocabulary) for part in (sentences[:3], sentences[3:])]), plain)


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(TRICKY, st.text(max_size=4)), unique=True, max_size=9),
       SENTENCES, st.sampled_from(POLICIES), st.sampled_from(sorted(FEATURES)), st.sampled_from(SPLITS))
def test_a_vocabulary_of_any_strings_finds_what_the_dictionary_finds(tokens, sentences, policy, feature, split):
    vocabulary = Vocabulary(tokens, policy=policy, split=split)
    assert same(rows_of(feature, sentences, vocabulary), plainly(feature, sentences, vocabulary))
    assert table_of(vocabulary).tokens == tokens


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.lists(SENTENCES, max_size=5), st.sampled_from(sorted(FEATURES)), st.sampled_from(SPLITS))
def test_types_are_numbered_as_a_dictionary_would(batches, feature, split):
    types, numbers = TypeTable(feature, split), {}
    for batch in batches:
        sentences = map(cut_of(feature, split), batch)
        expected = pack([numbers.setdefault(t, len(numbers) + 1) for t in tokens] or [0] for tokens in sentences)
        assert same(types.number(batch), expected)
    assert (types.tokens, len(types)) == (list(numbers), len(numbers))


def test_every_character_is_folded_and_cut_as_python_does():
    "Each code point of Unicode, between letters and at the end: a million sentences."
    sentences = [f'a{chr(point)}n{chr(point)}' for point in range(sys.maxunicode + 1)]
    for feature, split in (('word', 'words'), ('word', 'space'), ('trigram', 'words')):
        tokens = hashed_tokens(feature, sentences, split)
        text = tokens.points.tobytes().decode('utf-32-le', 'surrogatepass')
        found = [text[i:j] for i, j in zip(tokens.begins.tolist(), tokens.ends.tolist())]
        assert found == [t for s in sentences for t in cut_of(feature, split)(s)]


def test_long_texts_threads_and_arrow_columns():
    sentences = ['late ' * 60_000, '', 'n' * 250_000, "n't" * 25_000,
                 'Σ' * 12_000, *['It is late.'] * 10_000, '\ud800', *['👍’s'] * 10_000]
    cases = [*zip(sorted(FEATURES), (*POLICIES, 'drop'), ['words'] * 4), ('word', 'reference', 'space')]
    for feature, policy, split in cases:
        known = map(cut_of(feature, split), sentences[:3] + sentences[-2:])
        vocabulary = Vocabulary.build(known, policy=policy, split=split)
        plain = plainly(feature, sentences, vocabulary)
        assert same(rows_of(feature, sentences, vocabulary), plain)
        assert same(rows_of(feature, tuple(sentences), vocabulary, 3), plain)
        whole = [s for s in sentences if '\ud800' not in s]
        plain = plainly(feature, whole, vocabulary)
        for kind in (pa.string(), pa.large_string()):
            column = pa.array(['x', *whole, 'y'], kind)[1:-1]
            assert same(rows_of(feature, column, vocabulary), plain)
            assert same(rows_of(feature, pa.chunked_array([column[:7], column[7:]]), vocabulary, 2), plain)


def first_sentences(path, most):
    "The first texts of each column of a bitext, or the first lines of a file."
    if path.suffix == '.parquet':
        [rows] = islice(pq.ParquetFile(path).iter_batches(most, columns=['source', 'reference']), 1)
        return [rows[c].drop_null().to_pylist() for c in ('source', 'reference')]
    with path.open(encoding='utf-8', errors='surrogateescape', newline='\n') as lines:
        return [[line.removesuffix('\n') for line in islice(lines, most)]]


@pytest.mark.parametrize('words, grams', [(2000, 500), pytest.param(8000, 2000, marks=pytest.mark.soak)])
@pytest.mark.parametrize('feature, split', [
    ('word', 'words'), ('word', 'space'),
    *(pytest.param(feature, 'words', marks=pytest.mark.soak) for feature in FEATURES if feature != 'word')])
def test_compiled_rows_over_the_resources(feature, split, words, grams):
    "Every text column of the bitexts, paraphrases and evaluation sets: the first sentences of each, all languages."
    compared, most = 0, words if feature == 'word' else grams
    for path in (sorted((settings().resources / 'train' / 'bitext').glob('*.parquet'))
                 + sorted((settings().resources / 'eval').rglob('*.*sv'))):
        for sentences in first_sentences(path, most):
            vocabulary = Vocabulary.build(map(cut_of(feature, split), sentences), min_count=2,
                                          max_size=50_000, policy=POLICIES[compared % 3], split=split)
            assert same(rows_of(feature, sentences, vocabulary, 2), plainly(feature, sentences, vocabulary)), path.name
            compared += len(sentences)
    if not compared: pytest.skip('no resources here')
    assert compared > 15 * most, f'{compared:,} sentences compared'


def test_build_does_not_depend_on_the_order_of_sentences():
    sentences = [['b', 'a'], ['c', 'a'], ['b']]
    assert Vocabulary.build(sentences).tokens == Vocabulary.build(sentences[::-1]).tokens == ['a', 'b', 'c']


@hypothesis_settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8), st.data())
def test_gather_is_indexing(sentences, data):
    packed = pack(sentences)
    rows = data.draw(st.lists(st.integers(0, len(sentences) - 1), max_size=12)) if sentences else []
    taken = gather(packed, rows)
    assert [taken[i].tolist() for i in range(len(taken))] == [sentences[r] for r in rows]
    assert (taken.ids.dtype, taken.offsets.dtype) == (np.int32, np.int64)


def test_gather_reads_memory_mapped_arrays(tmp_path):
    packed = pack([[1, 2], [3], [4, 5, 6]])
    for name in ('ids', 'offsets'): np.save(tmp_path / f'{name}.npy', getattr(packed, name))
    mapped = Packed(*(np.load(tmp_path / f'{name}.npy', mmap_mode='r') for name in ('ids', 'offsets')))
    assert gather(mapped, [2, 0]).ids.tolist() == [4, 5, 6, 1, 2]


def test_vocabulary_files(tmp_path):
    path = tmp_path / 'v.parquet'
    vocabulary = Vocabulary(['\0', '\u2028', 'a b', "n't", '👍'], [5, 4, 3, 2, 1], 'drop')
    vocabulary.save(path)
    again = Vocabulary.load(path)
    assert (again.tokens, again.counts.tolist(), again.policy) == (vocabulary.tokens, [5, 4, 3, 2, 1], 'drop')
    whole = path.read_bytes()
    for damaged in (whole[:len(whole) // 2], b'', whole[:-4] + b'JUNK'):
        path.write_bytes(damaged)
        with pytest.raises(VocabularyError, match='v.parquet'): Vocabulary.load(path)
    pq.write_table(pa.table({'token': ['a', 'a'], 'count': [1, 1]}).replace_schema_metadata({'policy': 'drop'}), path)
    with pytest.raises(VocabularyError, match='v.parquet: 1 tokens are repeated'): Vocabulary.load(path)
    pq.write_table(pa.table({'token': ['a'], 'count': [1]}), path)
    with pytest.raises(VocabularyError, match='expected a vocabulary'): Vocabulary.load(path)


def test_the_split_stands_in_the_file_only_where_it_is_not_that_of_older_files(tmp_path):
    for split in SPLITS: Vocabulary(['dog,'], [3], 'reference', split).save(tmp_path / split)
    words, space = (pq.read_schema(tmp_path / split).metadata for split in SPLITS)
    assert (words, space) == ({b'policy': b'reference'}, {b'policy': b'reference', b'split': b'space'})
    assert [Vocabulary.load(tmp_path / split).split for split in SPLITS] == list(SPLITS)
    table = pq.read_table(tmp_path / 'space')
    pq.write_table(table.replace_schema_metadata({'policy': 'drop', 'split': 'comma'}), tmp_path / 'space')
    with pytest.raises(VocabularyError, match="space: split 'comma', expected one of words, space"):
        Vocabulary.load(tmp_path / 'space')


def test_tokens_that_are_not_text_stay_out_of_the_vocabulary(tmp_path):
    vocabulary = Vocabulary.build([tokenize('good \ud800 bad'), ['\udfff']])
    assert vocabulary.tokens == ['bad', 'good']
    vocabulary.save(tmp_path / 'v.parquet')


@pytest.mark.parametrize('content, message', [
    (b'', ':1: the file is empty'),
    (b'word\n', ':1: expected a token and its numbers'),
    (b'a 1 2\nb 1 2\nc 1 x\n', ':3: could not convert'),
    (b'a 1 2\nb 1 nan\n', ':2: a number is not finite'),
    (b'a 1 2\nb 1 1e300\n', ':2: a number is not finite'),
    (b'a 1 2\n\nb 1 2\n', ':2: expected a token and 2 numbers, found 0'),
    (b'5 2\na 1 2\nb 1 2\n', ': the first line promises 5 vectors and 2 follow: the file is cut off'),
    (b'3 4\na 1 2\n', ':2: expected a token and 4 numbers'),
    (gzip.compress(b'a 1 2\n', mtime=0)[:6], ':1: damaged gzip'),
])
def test_damaged_vector_files_name_file_and_line(tmp_path, content, message):
    path = tmp_path / 'vectors.txt'
    path.write_bytes(content)
    with pytest.raises(VectorFileError, match='vectors.txt' + message): read_vectors(path)


def test_tokens_that_are_not_utf8_are_left_out_with_a_note(tmp_path):
    path = tmp_path / 'old.vec'
    path.write_bytes(b'the 1 2 3\nk\xe9 7 8 9\nof 4 5 6\n\xff 0 0 0\n')
    with pytest.warns(DataWarning, match='old.vec: 2 tokens left out, which are not UTF-8'):
        tokens, vectors = read_vectors(path)
    assert tokens == ['the', 'of'] and vectors.shape == (2, 3)


def test_a_part_of_a_file_is_no_cut_off_file(tmp_path):
    path = tmp_path / 'words.vec'
    path.write_text('3 1\na 1\nb 2\na 3\n')  # a repeated token counts as a row of the file
    assert read_vectors(path)[0] == ['a', 'b'] and read_vectors(path, limit=1)[0] == ['a']
    assert read_vectors(path, tokens=['b'])[0] == ['b']


def test_vector_files_with_odd_tokens(tmp_path):
    path = tmp_path / 'vectors.txt.gz'
    path.write_bytes(gzip.compress('4 2\n. . . 1 2\n\u2028 3 4\n\x85 5 6\n\u2028 7 8'.encode()))
    tokens, vectors = read_vectors(path)
    assert tokens == ['. . .', '\u2028', '\x85'] and vectors.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert len(read_vectors(path, limit=2)[0]) == 2 and read_vectors(path, tokens=[])[1].shape == (0, 2)
