"""Intervals, tests of differences and protocols: worked examples, simulations, slow references, published figures."""
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from scipy import stats

from paranmt_lab.evaluation.baselines import bleu, meteor, organisers_overlap
from paranmt_lab.evaluation.graded import measure_graded, read_graded, token_overlap
from paranmt_lab.evaluation.results import results_frame
from paranmt_lab.evaluation.sts import FIGURES, measure_sts, sts_sets, yearly_means
from paranmt_lab.evaluation.uncertainty import (
    compare_similarities,
    interval,
    paired,
    resample,
    weighted_pearson,
    weighted_ranks,
    williams,
)
from paranmt_lab.ground.settings import settings

HEADER = 'sentence1\tsentence2\tscore\n'


def test_williams_agrees_with_the_worked_example():
    "Case A of Steiger (1980), which R's package psych prints as t = -0.89, p < 0.37."
    found = williams(.4, .5, .1, 103)
    assert (round(found.t, 2), round(found.p, 2)) == (-.89, .37)


@given(st.integers(0, 10_000), st.integers(5, 400))
def test_williams_by_its_determinant(seed, n):
    "The statistic written with the determinant of the matrix of correlations, as Steiger does."
    r = np.corrcoef(np.random.default_rng(seed).normal(size=(3, 9)))
    r12, r13, r23 = r[0, 1], r[0, 2], r[1, 2]
    mean = (r12 + r13) / 2
    below = 2 * (n - 1) / (n - 3) * np.linalg.det(r) + mean ** 2 * (1 - r23) ** 3
    t = (r12 - r13) * np.sqrt((n - 1) * (1 + r23) / below)
    found = williams(r12, r13, r23, n)
    assert found.t == pytest.approx(t, rel=1e-6, abs=1e-9)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), n - 3), rel=1e-6, abs=1e-12)


def simulated(n, seed, noises=(1., 1.)):
    "Grades and two systems that share half of their noise."
    rng = np.random.default_rng(seed)
    x, shared = rng.normal(size=(2, n))
    return x, *(x + shared + noise * rng.normal(size=n) for noise in noises)


def graded(n, seed):
    "Grades between 0 and 5, and a similarity."
    rng = np.random.default_rng(seed)
    grades = np.clip(rng.normal(2.6, 1.5, n), 0, 5).round(1)
    return grades, np.tanh(grades / 4 + rng.normal(0, .35, n))


def skewed(n, seed):
    "Grades that are mostly high, and a similarity whose noise differs from pair to pair."
    rng = np.random.default_rng(seed)
    grades = (5 * rng.beta(4, 1.2, n)).round(1)
    return grades, grades / 5 + rng.normal(0, .08, n) * (1 + 2 * rng.random(n))


def coverage(draw, n, experiments, resamples):
    "Share of experiments whose interval contains the truth, for both correlations."
    population = draw(400_000, 1)
    truth = [stats.pearsonr(*population).statistic, stats.spearmanr(*population).statistic]
    hits = []
    for k in range(experiments):
        draws = resample(*(sides := draw(n, 1000 + k)), seed=k, resamples=resamples).values()
        values = stats.pearsonr(*sides).statistic, stats.spearmanr(*sides).statistic
        ends = [interval(d, v) for d, v in zip(draws, values)]
        hits.append([low <= r <= high for r, (low, high) in zip(truth, ends)])
    return np.mean(hits, axis=0)


def test_williams_rejects_equals_in_one_of_twenty_and_finds_a_difference():
    equal = [compare_similarities(*simulated(100, k)).p < .05 for k in range(600)]
    better = [compare_similarities(*simulated(900, k, (.5, 1.))).p < .05 for k in range(100)]
    assert .03 < np.mean(equal) < .075 and np.mean(better) > .95


def test_intervals_contain_the_truth_about_as_often_as_they_say():
    assert (abs(coverage(graded, 250, 200, 200) - .95) < .04).all()


@pytest.mark.soak
@pytest.mark.parametrize('draw, n', [*itertools.product((graded, skewed), (100, 250, 750))])
def test_the_95_percent_interval_covers_93_to_97_percent(draw, n):
    found = coverage(draw, n, 2000, 1000)
    print(f'{draw.__name__}, {n} pairs: Pearson {found[0]:.2%}, Spearman {found[1]:.2%}')
    assert (.93 < found).all() and (found < .97).all(), found


@pytest.mark.soak
def test_williams_level_in_thousands_of_experiments():
    for n in (30, 100, 750):
        assert .04 < np.mean([compare_similarities(*simulated(n, k)).p < .05 for k in range(5000)]) < .06


@hypothesis_settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=12))
def test_ranks_of_counted_values_are_those_of_repeated_ones(pairs):
    values, counts = np.array([v for v, _ in pairs], float), np.array([c for _, c in pairs], float)
    [ranks] = weighted_ranks(counts[None], values)
    expected = stats.rankdata(np.repeat(values, counts.astype(int)))
    assert np.repeat(ranks, counts.astype(int)).tolist() == expected.tolist()


def test_a_resample_in_which_a_side_does_not_vary_has_no_correlation():
    counts = np.array([[2., 0, 0], [1, 1, 0]])
    found = weighted_pearson(counts, np.array([1., 2, 3]), np.array([.1, .2, .1]))
    assert np.isnan(found[0]) and found[1] == pytest.approx(1)
    assert interval(np.array([np.nan]), .5) == pytest.approx((np.nan, np.nan), nan_ok=True)
    assert np.isnan(paired(np.full(3, np.nan), np.zeros(3)).p)


def test_equal_seeds_give_equal_intervals_and_repetitions_add_nothing(tmp_path):
    grades, similar = graded(120, 0)
    lines = [f's{i}\tt{i}\t{g}\n' for i, g in enumerate(grades)]
    rates = dict(zip((f's{i}' for i in range(120)), similar))
    def rows(name, lines):
        (tmp_path / name).write_text(HEADER + ''.join(lines))
        return measure_graded(lambda a, b: [rates[x] for x in a], tmp_path / name, 'graded', 'x')
    once, again, thrice = rows('once.tsv', lines), rows('again.tsv', lines), rows('thrice.tsv', lines * 3)
    assert once == again and [row['n'] for row in thrice] == [360, 360]
    for a, b in zip(once, thrice): assert [a[k] for k in ('value', 'low', 'high')] == pytest.approx(
        [b[k] for k in ('value', 'low', 'high')], abs=.003)


def test_a_year_by_three_protocols(tmp_path):
    "Each protocol, computed here in another way."
    rng, frames = np.random.default_rng(0), {}
    for k, d in enumerate(sts_sets(tmp_path, ['STS13']).itertuples()):
        n = 20 + 30 * k
        names, grades = [f'{d.dataset} {i}' for i in range(n)], rng.uniform(0, 5, n).round(2)
        frames[d.dataset] = pd.DataFrame(dict(a=names, g=grades))
        frames[d.dataset]['x'] = frames[d.dataset].g + rng.normal(k, 1 + k, n)
        d.path.parent.mkdir(parents=True, exist_ok=True)
        d.path.write_text(HEADER + ''.join(f'{r.a}\tb\t{r.g}\n' for r in frames[d.dataset].itertuples()))
    rates = {r.a: r.x for frame in frames.values() for r in frame.itertuples()}
    similarity = lambda a, b: np.array([rates[text] for text in a])
    found = results_frame(measure_sts(similarity, tmp_path, 'STS13'))
    for metric in ('pearson', 'spearman'):
        r = {name: frame.g.corr(frame.x, metric) for name, frame in frames.items()}
        three = [name for name in frames if name != 'SMT']
        pooled = pd.concat([frames[name] for name in three])
        expected = {'mean': np.mean(list(r.values())), 'mean without SMT': np.mean([r[name] for name in three]),
                    'weighted mean': np.average([r[n] for n in three], weights=[len(frames[n]) for n in three]),
                    'all pairs': pooled.g.corr(pooled.x, metric)}
        rows = found[found.metric == metric].set_index('dataset')
        assert rows.value[list(expected)].to_dict() == pytest.approx(expected)
        assert (rows.low < rows.value).all() and (rows.value < rows.high).all()
        assert rows.protocol[list(FIGURES)].to_dict() == FIGURES
    [mean] = yearly_means(found).itertuples()
    stored = found.query("dataset == 'mean' and metric == 'pearson'")
    assert (mean.low, mean.high) == tuple(stored[['low', 'high']].iloc[0])
    (tmp_path / 'eval/sts/2013/SMT.tsv').unlink()
    rows = results_frame(measure_sts(similarity, tmp_path, 'STS13')).query("metric == 'pearson'").set_index('dataset')
    assert rows.status['mean'] == 'lacks SMT' and rows.status['mean without SMT'] == 'ok'


PRINTED = {('STS12', 'MSRpar'): '.4334', ('STS12', 'MSRvid'): '.2996', ('STS12', 'SMTeuroparl'): '.4542',
           ('STS12', 'SMTnews'): '.3908', ('STS14', 'deft-news'): '.596', ('STS14', 'images'): '.513',
           ('STS15', 'belief'): '.6517'}


@pytest.mark.parametrize('task, dataset', PRINTED)
def test_shared_words_give_the_organisers_printed_figures(task, dataset):
    path = sts_sets(settings().resources, [task]).set_index('dataset').path[dataset]
    if not path.is_file(): pytest.skip(f'no {path}')
    pairs, printed = read_graded(path), PRINTED[task, dataset]
    r = np.corrcoef(pairs.score, organisers_overlap(pairs.sentence1, pairs.sentence2))[0, 1]
    assert round(r, len(printed) - 1) == float(printed)


# Pearson's r of the cosine, from the results of the MTEB paper (embeddings-benchmark/mtebpaper, all-MiniLM-L6-v2)
MTEB = {'STS12': .81360, 'STS13': .80152, 'STS14': .80801, 'STS15': .84736, 'STS17': .88024}


@pytest.mark.soak
def test_a_published_encoder_gives_its_figures_of_mteb():
    pytest.importorskip('sentence_transformers')
    from paranmt_lab.ground.models import open_model
    s = settings()
    sets = sts_sets(s.resources, list(MTEB))
    if not sets.available[sets.dataset != 'SMT'].all(): pytest.skip(f'no STS below {s.resources}')
    encoder = open_model('st:all-MiniLM-L6-v2', s)
    for task, published in MTEB.items():
        rows = results_frame(measure_sts(encoder.similarity_pairwise, s.resources, task)).query("metric == 'pearson'")
        [found] = rows.value[rows.dataset.isin(['all pairs', 'en-en'])]
        assert 100 * found == pytest.approx(100 * published, abs=.1), task


def test_baselines_take_odd_sentences():
    odd = ['', ' ', '!', 'A tram.', '東京', 'no no no no']
    first, second = map(list, zip(*itertools.product(odd, odd)))
    for similarity in (organisers_overlap, token_overlap, bleu, meteor):
        if similarity is meteor: pytest.importorskip('nltk')
        found = similarity(first, second)
        assert len(found) == len(first) and np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()


def test_a_file_that_is_no_file_is_absent(tmp_path):
    assert measure_graded(token_overlap, Path(tmp_path), 'graded', 'x')[0]['status'] == 'not available'
