"Tenths and selections against plain pandas."
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from command import paranmt
from paranmt_lab.corpora.pairs import SHARD
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings, write_json
from paranmt_lab.selection import (
    PAPER_RANGES,
    Range,
    Selection,
    fold_bounds,
    fold_condition,
    folds,
    list_selections,
    paper_selection,
    range_table,
    read_selection,
    select,
    selected_ids,
    training_pairs,
)

few = hypothesis_settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Many ties, values at the edges of ranges, and no value at all.
values = st.sampled_from([0., 0., 0.2, 0.4, 0.8, 1., None]) | st.floats(-0.5, 1, width=32)
shard_lists = st.lists(st.lists(values, min_size=5, max_size=40), min_size=1, max_size=3)


@pytest.fixture
def corpora(tmp_path):
    lab = replace(settings(), workspace=tmp_path)
    names = (f'c{i}' for i in range(10_000))
    return lambda: Corpus.create(next(names), lab)


def filled(corpus, shards):
    "Pairs of three to a segment; every fourth has equal sides."
    for k, some in enumerate(shards):
        said = [f'Sentence {k} {i}.' for i in range(len(some))]
        corpus.write_pairs(k,
                           dict(source=[f'Věta {k} {i // 3}.' for i in range(len(some))], reference=said,
                                translation=[t.upper() if i % 4 == 0 else t + ' Really.' for i, t in enumerate(said)]))
        corpus.write_measure('m', k, some)
        corpus.write_measure('trigram_overlap', k, np.arange(len(some)) % 5 / 5)
        for side in ('reference_length', 'translation_length'):
            corpus.write_measure(side, k, np.arange(len(some)) % 7 + (side[0] == 't'))
    return corpus


@few
@given(shards=shard_lists, k=st.integers(2, 6))
def test_folds_are_equal_disjoint_and_in_order(corpora, shards, k):
    corpus = filled(corpora(), shards)
    ranked = corpus.frame(['m', 'segment', 'pair_id']).dropna(subset='m').sort_values(
        ['m', 'segment', 'pair_id']).pair_id.tolist()
    if len(ranked) < k:
        with pytest.raises(ValueError, match='too few'): fold_bounds(corpus, 'm', k)
        return
    bounds = fold_bounds(corpus, 'm', k)
    parts = [corpus.frame(['pair_id'], where=fold_condition('m', bounds, f)).pair_id.tolist() for f in range(1, k + 1)]
    cuts = [len(ranked) * i // k for i in range(k + 1)]
    assert [sorted(p) for p in parts] == [sorted(ranked[a:b]) for a, b in zip(cuts, cuts[1:])]
    assert folds(corpus, 'm', k).pairs.tolist() == [len(p) for p in parts]


@few
@given(shards=shard_lists, ranges=st.just(PAPER_RANGES) | st.just(((0, 0.5), (0.2, 0.9))))
def test_ranges_and_rest_are_the_corpus(corpora, shards, ranges):
    corpus = filled(corpora(), shards)
    table, frame = range_table(corpus, 'm', ranges), corpus.frame(['m', 'trigram_overlap'])
    m = frame.m.to_numpy(np.float32)
    masks = [(m > np.float32(a)) & (m <= np.float32(b)) for a, b in ranges]
    masks.append(~np.any(masks, axis=0))
    assert table.pairs.tolist() == [int(x.sum()) for x in masks]
    for mean, sd, x in zip(table.overlap, table.sd, masks):
        some = frame.trigram_overlap[x].astype(float)
        np.testing.assert_allclose([mean, sd], [some.mean(), some.std(ddof=0)], atol=1e-6)
    if ranges == PAPER_RANGES: assert table.pairs.sum() == corpus.rows


@few
@given(shards=shard_lists, low=st.sampled_from([None, 0., 0.2]), high=st.sampled_from([None, 0.4, 1.]),
       most=st.integers(0, 6), equal=st.booleans(), n=st.integers(0, 12), seed=st.integers(0, 9))
def test_a_selection_is_what_pandas_would_choose(corpora, shards, low, high, most, equal, n, seed):
    corpus = filled(corpora(), shards)
    frame = corpus.frame()
    m, keep = frame.m.to_numpy(np.float32), np.ones(len(frame), bool)
    kept = [len(frame)]
    for step in [
            (m > (np.float32(low) if low is not None else -9)) & (m <= (np.float32(high) if high is not None else 9)),
            *([(frame.reference_length <= most) & (frame.translation_length <= most)] if most else []),
            *([frame.reference.str.lower() != frame.translation.str.lower()] if equal else [])]:
        keep &= np.asarray(step); kept.append(int(keep.sum()))
    choice = Selection('s', ranges=(('m', low, high),), max_length=most,
                       exclude_equal=equal, n=n, seed=seed, reason='property')
    record = select(corpus, choice)
    assert [s['pairs'] for s in record['steps']][:len(kept)] == kept and record['reason'] == 'property'
    ids = selected_ids(Corpus(corpus.folder), 's')
    assert set(ids) <= set(frame.pair_id[keep]) and len(ids) == (min(n, kept[-1]) if n else kept[-1]) == record['pairs']
    assert sorted(ids) == ids.tolist()
    if len(ids):
        assert (training_pairs(corpus, 's')
                .merge(frame, on=['pair_id', 'segment', 'reference', 'translation']).pair_id.tolist() == ids.tolist())
    assert sorted(corpus.query(record['sql']).pair_id) == frame.pair_id[keep].tolist()


def test_pairs_without_a_translation_are_not_learned_from(corpora):
    corpus = corpora()
    corpus.write_pairs(0, dict(reference=['One.', 'Two.', 'Three.'], translation=['Uno.', None, 'Tre.']))
    assert training_pairs(corpus).reference.tolist() == ['One.', 'Three.']
    assert [s['pairs'] for s in select(corpus, Selection('all'))['steps']] == [3, 2]


def test_errors_say_what_to_do(corpora):
    corpus = corpora()
    corpus.write_pairs(0, dict(reference=['One.', 'Two.'], translation=['Uno.', 'Due.']))
    for choice, why in ((Selection('a', max_length=30), 'needs reference_length, .*; give `paranmt score'),
                        (Selection('a', ranges=(('m', 0, 1),)), "no column 'm'"),
                        (Selection('a', fold_measure='m', folds=(1,)), "no column 'm'"),
                        (Selection('../a'), 'cannot name'),
                        (paper_selection('m" OR 1=1 --'), 'no column')):
        with pytest.raises(ValueError, match=why): select(corpus, choice)
    assert list_selections(corpus) == []
    with pytest.raises(FileNotFoundError, match='has no selection'): selected_ids(corpus, 'a')


# ---- ranges: their lower end, and what is no number

def of_values(corpus, values, measure='m'):
    "A corpus with one measure."
    sentences, phrases = ([f'{kind} {i}.' for i in range(len(values))] for kind in ('Sentence', 'Phrase'))
    corpus.write_pairs(0, dict(reference=sentences, translation=phrases))
    corpus.write_measure(measure, 0, values)
    return corpus


def test_a_half_open_range_says_what_its_lower_end_leaves_out(corpora):
    corpus = of_values(corpora(), [0, 0, 0, .5, .7, .8])
    record = select(corpus, Selection('half', ranges=(('m', 0., .7),)))
    assert record['pairs'] == 2
    assert (record['notes']
            == ["the range m=0.0:0.7 leaves out 3 pairs whose value is exactly 0.0; 'm=[0.0:0.7]' keeps them"])
    closed = select(corpus, Selection('closed', ranges=(Range('m', 0., .7, closed=True),)))
    assert closed['pairs'] == 5 and closed['notes'] == [] and closed['steps'][-1]['step'] == 'm in [0.0, 0.7]'
    assert selected_ids(corpus, 'closed').tolist() == [0, 1, 2, 3, 4]
    assert select(corpus, Selection('above', ranges=(('m', .5, None),)))['notes'][0].endswith("'m=[0.5:]' keeps them")


@pytest.mark.parametrize('bounds', [(.7, .2), (.5, .5), (float('nan'), 1.), (0., float('nan'))])
def test_a_range_that_nothing_can_pass_is_refused(bounds):
    with pytest.raises(ValueError, match='expected two numbers, the lower one first'):
        Selection('none', ranges=(('m', *bounds),))
    assert Selection('one', ranges=(Range('m', .5, .5, closed=True),)).ranges[0].closed


def test_what_is_no_number_passes_no_range(corpora):
    """Measures that we write have no NaN, but a file written by another program may."""
    corpus = of_values(corpora(), [.1, .2, .3, .4, .6, .8])
    file = corpus.folder / 'measures/m/part-00000.parquet'
    table = pq.read_table(file)
    values = pa.array([.1, float('nan'), None, float('inf'), .6, .8], pa.float32())
    pq.write_table(pa.table([values], schema=table.schema), file)
    corpus = Corpus(corpus.folder)
    assert select(corpus, Selection('high', ranges=(('m', .5, None),)))['pairs'] == 2
    assert select(corpus, Selection('any', ranges=(('m', None, None),)))['pairs'] == 3
    assert select(corpus, Selection('sql', where='m > 0.5'))['pairs'] == 2
    assert (corpus.count('m', .5), corpus.count('m'), folds(corpus, 'm', 3).pairs.tolist()) == (2, 3, [1, 1, 1])
    summary = corpus.summary('m')
    assert (summary['no_value'], summary['high']) == (3, np.float32(.8))
    assert corpus.histogram('m', 2).attrs['no_value'] == 3
    assert range_table(corpus, 'm').pairs.tolist() == [1, 0, 1, 1, 0, 3]
    assert corpus.frame(['m']).m.isna().sum() == 3 == pa.Table.from_batches(corpus.batches(['m']))['m'].null_count


# ---- names of measures, and of selections

def test_a_measure_is_named_without_its_model_where_there_is_one(corpora):
    corpus = of_values(corpora(), [.1, .5, .9], 'paraphrase_score@one')
    record = select(corpus, Selection('high', ranges=(('paraphrase_score', .4, 1.),)))
    assert record['pairs'] == 2 and record['selection']['ranges'][0][0] == 'paraphrase_score@one'
    assert select(corpus, Selection('third', fold_measure='paraphrase_score', folds=(3,), fold_count=3))['pairs'] == 1
    assert corpus.count('paraphrase_score', .4) == 2
    assert folds(corpus, 'paraphrase_score', 3).pairs.tolist() == [1, 1, 1]
    corpus.write_measure('paraphrase_score@two', 0, [.9, .9, .9])
    by_range = Selection('other', ranges=(('paraphrase_score', .4, 1.),))
    by_fold = Selection('other', fold_measure='paraphrase_score', folds=(1,))
    for choice in (by_range, by_fold):
        with pytest.raises(ValueError, match='name one of paraphrase_score@one, paraphrase_score@two'):
            select(corpus, choice)
    assert list_selections(corpus) == ['high', 'third']


def test_a_selection_is_not_replaced_by_another(corpora):
    corpus = of_values(corpora(), [.1, .5, .9])
    chosen, other = (Selection('good', ranges=(('m', low, 1.),), reason='kept') for low in (.4, .6))
    record = select(corpus, chosen)
    assert select(corpus, chosen) == record == read_selection(corpus, 'good')
    with pytest.raises(FileExistsError, match='another choice.*ranges.*--force'): select(corpus, other)
    assert read_selection(corpus, 'good') == record
    assert select(corpus, other, force=True)['pairs'] == 1 and len(selected_ids(corpus, 'good')) == 1
    corpus.write_measure('m', 0, [.7, .8, .9])  # the same choice, but other pairs
    with pytest.raises(FileExistsError, match='keeps 3 pairs now, not the 1.*--force'): select(corpus, other)
    assert select(corpus, other, force=True)['pairs'] == 3


def test_a_record_from_before_closed_ranges_is_the_same_choice(corpora):
    corpus, choice = of_values(corpora(), [.1, .5, .9]), Selection('old', ranges=(('m', .4, 1.),))
    record = select(corpus, choice)
    record['selection']['ranges'] = [['m', .4, 1.]]
    write_json(corpus.folder / 'selections/old.json', record)
    assert select(corpus, choice)['ids'] == record['ids']


# ---- on the command line

def cli(corpus, *words):
    "Start `paranmt` in the workspace of a corpus."
    environment = (os.environ | dict(PARANMT_WORKSPACE=str(corpus.folder.parent.parent),
                                     PARANMT_WORKERS='1', COLUMNS='200'))
    command = [sys.executable, '-m', 'paranmt_lab', *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def test_the_command_tells_of_the_lower_end_and_replaces_with_force_only(corpora):
    corpus = of_values(corpora(), [0, 0, .5, .7])
    def run(*words):
        done = paranmt(['select', corpus.name, 'good', *words], PARANMT_WORKSPACE=str(corpus.folder.parent.parent),
                       PARANMT_WORKERS='1', COLUMNS='200')
        return ' '.join((done.stdout + done.stderr).split()), done.returncode
    said, code = run('--range', 'm=0.0:0.7')
    assert code == 0 and "leaves out 2 pairs whose value is exactly 0.0; 'm=[0.0:0.7]' keeps them" in said
    said, code = run('--range', 'm=[0.0:0.7]')
    assert code == 1 and '--force' in said and read_selection(corpus, 'good')['pairs'] == 2
    said, code = run('--range', 'm=[0.0:0.7]', '--force')
    assert code == 0 and 'leaves out' not in said and read_selection(corpus, 'good')['pairs'] == 4


# ---- several steps, and steps that compare pairs

def pairs_of(corpus, rows=300, seed=0):
    "Pairs with repeated texts, several to a source, three domains, and lengths that may be 0 or missing."
    rng, i = np.random.default_rng(seed), np.arange(rows)
    words = np.array(['It rains.', 'it rains', 'Rain falls.', 'Why?', 'WHY', '...', '!', 'Go on.'])
    table = pd.DataFrame(dict(
        corpus=rng.choice(['talk', 'news', "O'Neill"], rows), source=[f'Věta {k}.' for k in i // 4],
        rank=np.where(i % 7, i % 4 + 1, None), reference=rng.choice(words, rows), translation=rng.choice(words, rows)))
    for shard, start in enumerate(range(0, rows, 100)): corpus.write_pairs(shard, table[start:start + 100])
    for name, most in (('m', 9), ('reference_length', 6), ('translation_length', 6)):
        values = np.where(rng.random(rows) < .1, np.nan, rng.integers(0, most, rows))
        for shard, start in enumerate(range(0, rows, 100)): corpus.write_measure(name, shard, values[start:start + 100])
    return corpus


def plain(text):
    "Case, punctuation and white space aside; a text of punctuation alone as it is."
    return ' '.join(''.join(c if c.isalnum() else ' ' for c in text.lower()).split()) or text


def first_by(frame, key):
    "The first pair of each group."
    return frame[~frame.assign(key=key).key.duplicated()]


@few
@given(seed=st.integers(0, 5), least=st.integers(0, 3), most=st.sampled_from([0, 4]),
       ratio=st.sampled_from([0., .5, 1.]), of=st.sampled_from([(), ('pair',), ('translation', 'reference')]),
       exact=st.booleans(), one=st.sampled_from(['', 'first', 'highest:m', 'lowest:m', 'random']),
       n=st.sampled_from([0, 20]))
def test_all_steps_are_what_pandas_would_do(corpora, seed, least, most, ratio, of, exact, one, n):
    corpus = pairs_of(corpora(), seed=seed)
    choice = Selection('s', ranges=[Range('m', 0, 7, closed=True)], min_length=least, max_length=most, min_ratio=ratio,
                       deduplicate=of, exact=exact, one_per_source=one, n=n, seed=seed)
    record = select(corpus, choice)
    f = corpus.frame()
    a, b = f.reference_length, f.translation_length
    keep = f.m.between(0, 7)
    if least: keep &= (a >= least) & (b >= least)
    if most: keep &= (a <= most) & (b <= most)
    if ratio: keep &= (a / b.replace(0, np.nan) >= ratio) & (b / a.replace(0, np.nan) >= ratio)
    f = f[keep]
    form = (lambda x: x) if exact else plain
    sides = dict(pair=['reference', 'translation'], translation=['translation'], reference=['reference'])
    for name in of: f = first_by(f, list(zip(*(f[side].map(form) for side in sides[name]))))
    order = dict(first=['rank', 'pair_id'], **{'highest:m': ['m', 'pair_id'], 'lowest:m': ['m', 'pair_id']})
    if one in order:
        rising = [not one.startswith('highest'), True]
        f = first_by(f.sort_values(order[one], ascending=rising, na_position='last'), f.segment).sort_values('pair_id')
    ids = selected_ids(Corpus(corpus.folder), 's')
    if one == 'random':
        everything = len(set(f.segment))
        assert set(ids) <= set(f.pair_id) and len(ids) == (min(n, everything) if n else everything)
        assert not corpus.pairs_by_id(ids, ['segment']).segment.duplicated().any()
    elif n: assert set(ids) <= set(f.pair_id) and len(ids) == min(n, len(f))
    else: assert ids.tolist() == f.pair_id.tolist()
    again = select(corpus, replace(choice, name='t'), dry_run=True)
    assert again['steps'] == record['steps'] and again['ids'] == record['ids'] and list_selections(corpus) == ['s']


def test_a_random_translation_is_any_of_its_source_and_another_by_another_seed(corpora):
    corpus = pairs_of(corpora(), 2000)
    ids = {seed: selected_ids(corpus, select(corpus, Selection(f's{seed}', one_per_source='random',
                                                               seed=seed))['selection']['name']) for seed in (0, 1, 2)}
    place = np.concatenate([x % SHARD % 4 for x in ids.values()])
    counts = np.bincount(place, minlength=4)  # 500 sources of four translations, three seeds
    assert counts.sum() == 1500 and (np.abs(counts - 375) < 75).all()
    assert 50 < len(set(ids[0]) & set(ids[1])) < 220


def test_quotas_take_no_side_with_sources_that_have_many_translations(corpora):
    corpus = corpora()
    sources = [f'one {k}' for k in range(2000)] + [f'many {k // 40}' for k in range(2000)]
    corpus.write_pairs(0, dict(source=sources, corpus=['d'] * 4000, reference=['r'] * 4000, translation=['t'] * 4000))
    select(corpus, Selection('q', one_per_source='random', per_domain=400))
    many = (corpus.pairs_by_id(selected_ids(corpus, 'q'), ['source']).source.str.startswith('many')).sum()
    assert many < 30  # 50 of 2,050 sources: 10 are expected


def test_quotas_of_domains(corpora):
    corpus = pairs_of(corpora())
    counts = corpus.frame(['corpus']).corpus.value_counts()
    record = select(corpus, Selection('q', quotas={"O'Neill": 5, 'talk': 0}))
    assert record['pairs'] == counts['news'] + 5
    record = select(corpus, Selection('p', quotas={"O'Neill": 1000}, per_domain=7))
    assert record['pairs'] == counts["O'Neill"] + 14
    there = counts["O'Neill"]
    assert record['notes'] == [f"domain O'Neill gives {there} pairs of 1,000, which is all that is left of it"]
    with pytest.raises(ValueError, match="no domain 'stories'; it has O'Neill, news, talk"):
        select(corpus, Selection('r', quotas={'stories': 5}))


def test_a_ratio_of_two_measures_is_a_range(corpora):
    corpus = pairs_of(corpora())
    f = corpus.frame(['reference_length', 'translation_length'])
    ratio = (f.reference_length / f.translation_length.replace(0, np.nan)).astype(np.float32)
    record = select(corpus, Selection('r', ranges=[Range('reference_length/translation_length', .5, 2., closed=True)]))
    assert record['pairs'] == ratio.between(.5, 2).sum()
    half_open = select(corpus, Selection('h', ranges=[('reference_length/translation_length', .5, 2.)]))
    assert half_open['pairs'] == ((ratio > .5) & (ratio <= 2)).sum() and 'is exactly 0.5' in half_open['notes'][0]
    with pytest.raises(ValueError, match="no column 'size'"):
        select(corpus, Selection('x', ranges=[('reference_length/size', 0, 1)]))


def test_a_record_of_an_earlier_version_is_opened_and_is_the_same_choice(corpora):
    corpus, choice = pairs_of(corpora()), Selection('old', ranges=(('m', 3., None),), max_length=4, n=20)
    record = select(corpus, choice)
    new = ('min_length', 'min_ratio', 'deduplicate', 'exact', 'one_per_source', 'quotas', 'per_domain')
    record['selection'] = {k: v for k, v in record['selection'].items() if k not in new}
    write_json(corpus.folder / 'selections/old.json', record)
    assert len(selected_ids(corpus, 'old')) == 20 and select(corpus, choice)['ids'] == record['ids']
    with pytest.raises(FileExistsError, match='one_per_source'): select(corpus, replace(choice, one_per_source='first'))


def test_a_selection_notices_that_what_decided_between_translations_has_changed(corpora):
    corpus = pairs_of(corpora())
    select(corpus, Selection('best', one_per_source='highest:m'))
    assert len(selected_ids(corpus, 'best')) > 50
    corpus.write_measure('m', 1, np.arange(100.)[::-1])
    with pytest.raises(ValueError, match='select again with --force'): selected_ids(corpus, 'best')


def test_texts_in_conditions_reach_the_steps_after_them(corpora):
    corpus = pairs_of(corpora())
    f = corpus.frame().query("reference == 'Why?'")
    record = select(corpus, Selection('w', where="reference = 'Why?' OR reference = 'nothing'", one_per_source='first',
                                      deduplicate=['translation'], per_domain=2))
    kept = corpus.pairs_by_id(selected_ids(corpus, 'w'))
    assert set(kept.reference) == {'Why?'} and kept.corpus.value_counts().max() <= 2
    assert kept.translation.is_unique and record['steps'][1]['pairs'] == len(f)


def test_a_dry_run_writes_nothing_even_where_the_name_is_taken(corpora):
    corpus = pairs_of(corpora())
    select(corpus, Selection('good'))
    before = sorted((p, p.read_bytes()) for p in corpus.folder.rglob('*.json'))
    assert select(corpus, Selection('good', min_length=2), dry_run=True)['pairs'] < corpus.rows
    assert sorted((p, p.read_bytes()) for p in corpus.folder.rglob('*.json')) == before


def test_the_command_knows_every_step(corpora):
    corpus = pairs_of(corpora())
    words = ['--where', "corpus <> 'news'", '--min-length', '1', '--set', 'min_ratio=0.3',
             '--deduplicate', 'translation', '--set', 'exact=no', '--one-per-source', 'highest:m',
             '--quota', 'talk=2', '--set', 'per_domain=1', '--seed', '3']
    def run(*more):
        process = cli(corpus, 'select', corpus.name, 'good', *words, *more)
        return ' '.join(process.communicate()[0].split()), process.returncode
    said, code = run('--dry-run')
    assert code == 0 and 'a dry run: nothing is written' in said and list_selections(corpus) == [], said
    again, code = run()
    assert code == 0 and again.partition('all pairs')[2] == said.partition('all pairs')[2]
    choice = read_selection(corpus, 'good')['selection']
    assert choice['quotas'] == [['talk', 2]] and choice['exact'] is False and choice['one_per_source'] == 'highest:m'
    said, code = run('--quota', 'talk=x')
    assert code == 2 and 'DOMAIN=N' in said
    said, code = run('--one-per-source', 'best', '--force')
    assert code == 1 and 'expected first, random, highest:MEASURE or lowest:MEASURE' in said
