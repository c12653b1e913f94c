"""Statistics of corpora and the tables that show them: slow references on real text, intervals, published figures."""
import math
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings as given_settings, strategies as some

from command import paranmt
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation import tables
from paranmt_lab.evaluation.comparison import published, published_figures
from paranmt_lab.evaluation.results import MEAN
from paranmt_lab.evaluation.sts import SETS
from paranmt_lab.evaluation.tables import (
    formatted_table,
    joined_table,
    keep_measured,
    measured,
    readable_table,
    setting_notes,
    table_list,
)
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.statistics.describe import (
    bootstrap,
    difference_statistics,
    domain_texts,
    domains_of,
    entropy,
    long_words,
    numbered,
    parse_statistics,
    rate,
    repeated,
    statistics_frame,
    word_statistics,
)
from paranmt_lab.statistics.idf import average_idf, open_counts, rank_counts, text_counts, wordfreq_counts, words
from paranmt_lab.statistics.report import Questions, describe_corpus
from paranmt_lab.tokens.text import ngrams, tokenize
from references import references

SLOW = references('statistics.describe')


def agree(texts):
    "The fast statistics of texts are those of the definitions."
    tokens = [tokenize(t) for t in texts]
    for n in (1, 2, 3, 4):
        items, packed = [ngrams(t, n) for t in tokens], numbered(tokens, n)
        assert packed.lengths.tolist() == [len(x) for x in items]
        every = [x for sentence in items for x in sentence]
        if every: assert math.isclose(entropy(packed), SLOW.entropy_slowly(every), abs_tol=1e-9)
        else: assert math.isnan(entropy(packed))
        assert repeated(packed).tolist() == [list(SLOW.repeated_slowly(x)) for x in items]
        where = {}  # a number means one n-gram, and an n-gram has one number
        for number, item in zip(packed.ids.tolist(), every): assert where.setdefault(number, item) == item
        assert len(where) == len(set(every))


@given(some.lists(some.text('ab .Žé\n', max_size=20), max_size=8))
@given_settings(max_examples=60, deadline=None)
def test_statistics_of_any_text_are_the_definitions(texts): agree(texts)


@pytest.mark.parametrize('language', ['cs', 'fi', 'ru'])
def test_statistics_of_real_text_are_the_definitions(language):
    path = settings().resources / f'train/bitext/{language}-en.parquet'
    if not path.exists(): pytest.skip(f'the bitext of {language} is not among the resources')
    pairs = pd.read_parquet(path).sample(1000, random_state=5)
    agree([*pairs.source, *pairs.reference, '', 'a', 'no no no'])


def test_a_weight_is_a_repetition():
    texts = ['a b c', 'a a', '', 'b c d e']
    weights = np.array([2, 0, 5, 3])
    again = [t for t, w in zip(texts, weights) for _ in range(w)]
    for n in (1, 3):
        packed, longer = (numbered([tokenize(t) for t in x], n) for x in (texts, again))
        assert math.isclose(entropy(packed, weights), entropy(longer))
        assert math.isclose(rate(repeated(packed), weights), rate(repeated(longer)), abs_tol=1e-12)


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    """Words drawn from a known distribution, in samples of sentences; the plug-in bias is small at these sizes."""
    rng = np.random.default_rng(0)
    share = np.arange(1, 9) / 36
    truth, held = -(share * np.log(share)).sum(), 0
    for turn in range(60):
        packed = numbered(rng.choice(8, (200, 6), p=share).tolist())
        found = bootstrap(lambda w: entropy(packed, w), 200, 60, turn)
        held += found.low <= truth <= found.high
    assert held >= 51  # of 60; 57 are expected


def test_repetition_counts_words_of_three_characters():
    assert long_words('It is a dog, and it is THE dog.') == ['dog', 'and', 'the', 'dog']
    found = {x.name: x.figure.value for x in word_statistics(['It is a dog, and it is THE dog.'])}
    assert found['word repetition'] == 1 / 4


def test_sources_of_counts(tmp_path, monkeypatch):
    english = wordfreq_counts()
    assert english.share('the') > english.share('dog') > english.share('xqzzy') > 0
    assert np.isnan(average_idf(['', None, '...'], english)).all()
    counted = text_counts(iter(['a dog', None, 'a cat', '...']), 'two sentences')
    assert average_idf(['a', 'dog', 'unknown'], counted).tolist() == [0, math.log(2), math.log(2)]
    assert average_idf(['dog dog a'], counted)[0] == pytest.approx(2 * math.log(2) / 3)
    ranked = rank_counts(['the', '.', 'of'], 'list')
    assert ranked.share('the') + ranked.share('of') == pytest.approx(1) and ranked.share('x') == ranked.share('of')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    Corpus.create('few').write_pairs(0, pd.DataFrame(dict(reference=['a dog', 'a cat'])))
    assert open_counts('corpus:few').share('a') == 1 and open_counts('corpus:few:words').share('a') == .5
    with pytest.raises(FileNotFoundError, match='nosuch'): open_counts('corpus:nosuch')
    assert words("Don't stop, 2 cats!") == ['do', "n't", 'stop', '2', 'cats']


def test_domains_are_sampled_over_shards(tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    corpus, texts = Corpus.create('two'), [f'sentence {k}' for k in range(300)]
    for shard in range(3):
        part = pd.DataFrame(dict(reference=texts[100 * shard:100 * shard + 100]))
        corpus.write_pairs(shard, part.assign(corpus=['it\'s', 'b'] * 50))
    assert domains_of(corpus) == {'b': 150, "it's": 150}
    drawn = dict(domain_texts(corpus, 40, seed=2))
    assert {name: len(set(x)) for name, x in drawn.items()} == {'b': 40, "it's": 40}
    assert all(int(t.split()[1]) % 2 == 0 for t in drawn["it's"])
    assert max(int(t.split()[1]) for t in drawn['b']) > 200 and min(int(t.split()[1]) for t in drawn['b']) < 100
    assert drawn == dict(domain_texts(corpus, 40, seed=2)) != dict(domain_texts(corpus, 40, seed=3))


@pytest.mark.skipif(not shutil.which('link-parser'), reason="needs Debian's link-grammar")
def test_sentences_without_a_parse_are_counted():
    texts = ['The dog barks.', 'A cat sleeps.', '...', '', 'Where is it?', None]
    entropy_, absent = parse_statistics(texts, open_model('link:en'))
    assert (entropy_.n, absent.n) == (3, 4) and absent.figure.value == .25
    assert 'link-grammar' in entropy_.protocol


def test_a_report_has_every_side_of_every_domain_whatever_they_hold(tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    corpus = Corpus.create('odd')
    odd = ['', ' ', None, '!', 'ΟΔΟΣ', '<b>x</b>', 'no no no no', 'very long ' * 2000]
    corpus.write_pairs(0, dict(reference=['a b c'] * 8, translation=odd, corpus=['x', "it's", None, ''] * 2))
    report = describe_corpus(corpus, Questions(counts=wordfreq_counts(), resamples=20))
    assert report.groupby('side', sort=False).domain.unique().map(list).to_dict() == dict.fromkeys(
        ('reference', 'translation', 'difference'), ['', "it's", 'x'])
    inside = report.dropna(subset=['value', 'low'])
    assert (inside.low <= inside.value + 1e-9).all() and (inside.value <= inside.high + 1e-9).all()
    whole = word_statistics(odd[0::4], wordfreq_counts(), 20)
    found = report[(report.domain == 'x') & (report.side == 'translation')].set_index('metric').value
    for s in whole: assert found[s.name] == pytest.approx(s.figure.value, nan_ok=True), s.name
    empty = Corpus.create('empty')
    with pytest.raises(ValueError, match='empty has no pairs to describe'): describe_corpus(empty)
    with pytest.raises(ValueError, match='n = 0, expected at least 1'): Questions(n=0)


def test_idf_is_a_measure_by_counts_that_have_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    corpus = Corpus.create('talk')
    corpus.write_pairs(0, dict(reference=['The dog barks.', 'The cat.'], translation=['...', None]))
    for name, source in dict(wordfreq=wordfreq_counts(), talk=open_counts('corpus:talk:words')).items():
        score(corpus, ['reference_idf', 'translation_idf'], [f'counts:{name}'], show=False)
        frame = corpus.frame([f'reference_idf@{name}', f'translation_idf@{name}'])
        wanted = average_idf(['The dog barks.', 'The cat.'], source)
        np.testing.assert_allclose(frame[f'reference_idf@{name}'], wanted, rtol=1e-6)
        assert frame[f'translation_idf@{name}'].isna().all()
    with pytest.raises(ValueError, match="takes a model of the kind 'counts': name one, as counts:NAME"):
        score(corpus, ['reference_idf'], show=False)
    with pytest.raises(FileNotFoundError, match='nosuch'): score(corpus, ['reference_idf'], ['counts:nosuch'])


def test_no_text_at_all_gives_no_figure():
    frame = statistics_frame({'none': word_statistics(['', None], wordfreq_counts())})
    assert frame.value.isna().all() and (frame.n == 0).all()
    with pytest.raises(ValueError, match='1 references and 2 translations'): difference_statistics(['a'], ['a', 'b'])


def test_published_figures_are_the_papers():
    papers = settings().resources.parent / 'papers'
    rows = published('backtranslation.9').pivot(index=['task', 'dataset'], columns='metric', values='value')
    assert rows.loc[('fr', 'Giga')].to_dict() == {'word entropy': .97, 'triple entropy': 1.21,
                                                  'word repetition': -.053, 'triple repetition': -.0774}
    if not papers.is_dir(): pytest.skip('the papers are not here')
    text = next(papers.glob('002_*')).read_text()
    # the lines of tables 8 and 9 as they stand in the paper, with our figures put into them
    for (_, data), r in rows.iterrows():
        line = (f"{r['word entropy']:.2f} {r['triple entropy']:.2f} {100 * r['word repetition']:.2f}% "
                f"{100 * r['triple repetition']:.2f}%")
        assert line in text, (data, line)
    wide = published('backtranslation.8').pivot(index=['system', 'task', 'dataset'], columns='metric', values='value')
    for r in (100 * wide).itertuples():
        line = f'{r.accuracy:.1f} {r[2]:.1f} {r[3]:.1f}'
        assert line in text, line
    first = published('paranmt.1').pivot(index='dataset', columns='metric', values='value')
    text = next(papers.glob('001_*')).read_text()
    for name, r in first.iterrows():
        spread = [f"{r[m]:.{d}f}±{r[f'{m}, standard deviation']:.{d}f}"
                  for m, d in (('length', 1), ('IDF', 1), ('paraphrase score', 2))]
        size = f"{r['million pairs']:.1f}M" if r['million pairs'] > 1 else f"{r['million pairs']:.2f}M"
        line = ' '.join([name, *spread, f"{r['word entropy']:.1f}", f"{r['parse entropy']:.1f}", size])
        assert line in text, line


def test_each_table_that_we_have_figures_for_can_be_shown():
    listed = table_list()
    assert set(listed.table) >= set(published_figures().run)
    for table in listed.table:
        joined = joined_table(table)
        for form in tables.FORMATS: assert formatted_table(joined, form)
        ours = measured(table)
        assert len(joined.dropna(subset='ours')) == ours.value.notna().sum()
        there = ours[ours.value.notna()]  # a figure that is not available has a reason, and no command
        assert (there.command != '').all() and (there.machine != '').all() and (there.config != '').all()
        inside = ours.dropna(subset=['low', 'high'])
        assert ((inside.low <= inside.value) & (inside.value <= inside.high)).all(), table


def test_no_stored_table_has_two_values_of_one_cell():
    for table in tables.measured_tables():
        ours = measured(table).query('value.notna()')
        cell = ['task', 'dataset', 'metric', 'system', *tables.SYSTEM_COLUMNS, 'protocol']
        assert not ours.duplicated(cell).any(), table
        of_one_set = ours[ours.task.isin([task for task, (_, _, names) in SETS.items() if len(names) == 1])]
        assert not (of_one_set.dataset == MEAN).any(), table  # the same figure under another name


def test_a_figure_says_under_which_setting_it_was_computed():
    table = readable_table(joined_table('paranmt.6')).set_index(['system', 'megabatch'])
    notes = setting_notes(joined_table('paranmt.6'))
    assert float(table.ours['LSTM', 20].split()[0]) == 31.1 and table.ours['LSTM, M grows', 20] == '82.8'
    assert '400,000 pairs' in notes[table.setting['LSTM', 20]] and '1,230,090' in notes[table.setting['WORD', 20]]
    assert 'M grows' not in notes[table.setting['LSTM', 40]]
    said = paranmt('results table paranmt.6', COLUMNS='200').stdout
    said = ' '.join(said.split())
    assert all(f'{letter}: {text}' in said for letter, text in notes.items()) and 'The paper: ' in said


def test_kept_figures_replace_only_their_own(tmp_path):
    row = dict(task='cs', dataset='News', metric='IDF', value=7., low=6.9, high=7.1, n=10, protocol='a')
    keep_measured('paranmt.1', pd.DataFrame([row, row | dict(protocol='b', value=8.)]), tmp_path, command='x')
    keep_measured('paranmt.1', pd.DataFrame([row | dict(value=7.5)]), tmp_path, command='y')
    kept = measured('paranmt.1', tmp_path)
    assert sorted(zip(kept.protocol, kept.value, kept.command)) == [('a', 7.5, 'y'), ('b', 8., 'x')]
    assert len(joined_table('paranmt.1', tmp_path)) == 2 + 36  # no data set of that name in the paper
    (tmp_path / 'paranmt.1.csv').write_text('task,value\ncs,1\n')
    with pytest.raises(ValueError, match='lacks the columns dataset'): measured('paranmt.1', tmp_path)
