"Coefficients of agreement against the libraries, against slow definitions, and under what must not matter."
import itertools
from collections import Counter
from itertools import combinations

import krippendorff
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings as hypothesis_settings, strategies as st
from sklearn.metrics import cohen_kappa_score

from paranmt_lab.annotation.agreement import (
    COEFFICIENTS,
    FEW,
    KAPPAS,
    agreement,
    agreement_table,
    by_pair,
    disagreement,
    pair_agreement,
    pair_tables,
    patterns,
)
from paranmt_lab.annotation.campaigns import LABELS
from paranmt_lab.annotation.next_pairs import FITS, allocate, strength_curve
from paranmt_lab.annotation.raters import confusion, consistency, disputed, drift
from paranmt_lab.annotation.table3 import one_label, strong_pairs, table3, wilson

some = hypothesis_settings(max_examples=40, deadline=None)
NOMINAL = ('percent', 'Fleiss', 'alpha nominal', 'AC1')
# Items with up to five labels or none, a row an item, a column a person.
grids = st.integers(1, 5).flatmap(lambda people: st.lists(
    st.lists(st.sampled_from([None, 1, 2, 3]), min_size=people, max_size=people), min_size=1, max_size=12))


def ratings_of(grid):
    rows = [(i, f'p{j}', f's{i % 2}', label) for i, row in enumerate(grid) for j, label in enumerate(row)]
    return pd.DataFrame(rows, columns=['item', 'annotator', 'stratum', 'strength']).astype({'strength': 'Float64'})


def values(grid, **options):
    return {n: r.value for n, r in agreement(patterns(ratings_of(grid), ['strength']), resamples=0, **options).items()}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert ((a[name] is None) == (b[name] is None)
                and (a[name] is None or abs(a[name] - b[name]) < 1e-9)), (name, a[name], b[name])


# the library's own, where one label is all there is
@pytest.mark.filterwarnings('ignore:invalid value encountered:RuntimeWarning')
@some
@given(grids)
def test_alpha_is_the_librarys(grid):
    ours, matrix = values(grid), np.array(grid, float).T
    for level in ('nominal', 'ordinal', 'interval'):
        try: theirs = krippendorff.alpha(matrix, level_of_measurement=level, value_domain=LABELS)
        except ValueError: theirs = None   # nothing is pairable, or one label
        if theirs is None or np.isnan(theirs): assert ours[f'alpha {level}'] in (None, 1.)
        elif ours[f'alpha {level}'] is not None: assert abs(ours[f'alpha {level}'] - theirs) < 1e-9
        else: assert len({x for row in grid for x in row if x and sum(y is not None for y in row) > 1}) == 1


@some
@given(st.lists(st.integers(0, 40), min_size=9, max_size=9).filter(any))
def test_kappas_are_the_librarys(cells):
    table = np.reshape(cells, (3, 3))
    first, second = np.repeat(np.indices((3, 3)).reshape(2, -1), cells, axis=1)
    for name, weights in (('kappa', None), ('kappa linear', 'linear'), ('kappa quadratic', 'quadratic')):
        result = pair_agreement(table, [name], resamples=0)[name]
        if result.value is None:
            assert result.note == f'every label is {1 + first[0]}' and set(first) == set(second) == {first[0]}
        else: assert abs(result.value - cohen_kappa_score(first, second, weights=weights, labels=[0, 1, 2])) < 1e-9


def gwet_by_hand(grid, kind):
    "AC1 or AC2 straight from the handbook: no matrix, no pattern."
    rows = [[x for x in row if x] for row in grid]
    rows, q, V = [r for r in rows if r], 3, disagreement(LABELS, kind)
    pairs = [np.mean([1 - V[a - 1, b - 1] for a, b in itertools.permutations(r, 2)]) for r in rows if len(r) > 1]
    pi = [np.mean([r.count(c) / len(r) for r in rows]) for c in LABELS] if rows else []
    chance = (1 - V).sum() / (q * (q - 1)) * sum(p * (1 - p) for p in pi)
    return (np.mean(pairs) - chance) / (1 - chance) if pairs else None


@some
@given(grids)
def test_gwet_is_the_handbooks(grid):
    same({k: values(grid)[k] for k in ('AC1', 'AC2')},
         {'AC1': gwet_by_hand(grid, 'nominal'), 'AC2': gwet_by_hand(grid, 'quadratic')})


@some
@given(grids, st.randoms(use_true_random=False))
def test_order_of_items_and_people_does_not_matter(grid, random):
    shuffled = random.sample(grid, len(grid))
    people = random.sample(range(len(grid[0])), len(grid[0]))
    same(values(grid), values([[row[p] for p in people] for row in shuffled]))


@some
@given(grids, st.permutations(LABELS))
def test_names_of_labels_do_not_matter_to_nominal_coefficients(grid, order):
    renamed = [[x and order[x - 1] for x in row] for row in grid]
    a, b = values(grid), values(renamed)
    same({n: a[n] for n in NOMINAL}, {n: b[n] for n in NOMINAL})


@some
@given(grids)
def test_a_scale_read_backwards_is_the_same_scale(grid):
    same(values(grid), values([[x and 4 - x for x in row] for row in grid]))


@some
@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=12), st.integers(2, 5))
def test_perfect_agreement_is_one(labels, people):
    found = values([[x] * people for x in labels])
    assert all(v is None or v == pytest.approx(1) for v in found.values())
    if len(set(labels)) > 1: assert None not in found.values()


@some
@given(grids, st.integers(2, 50))
def test_copies_change_nothing_but_alphas_small_sample_term(grid, copies):
    once, often = values(grid), values(grid * copies)
    keep = [n for n in once if not n.startswith('alpha')]
    same({n: once[n] for n in keep}, {n: often[n] for n in keep})


@some
@given(grids)
def test_equal_weights_are_no_weights(grid): same(values(grid), values(grid, weights={'s0': 3., 's1': 3.}))


@some
@given(grids)
def test_pair_tables_are_what_two_columns_say(grid):
    tables = pair_tables(ratings_of(grid), 'strength')
    for i, j in itertools.combinations(range(len(grid[0])), 2):
        expected = np.zeros((3, 3), int)
        for row in grid:
            if row[i] and row[j]: expected[row[i] - 1, row[j] - 1] += 1
        assert (tables.get((f'p{i}', f'p{j}'), np.zeros((3, 3))) == expected).all()


@some
@given(grids)
def test_a_result_has_a_value_or_a_reason(grid):
    for result in agreement(patterns(ratings_of(grid), ['strength']), resamples=50).values():
        assert result.value is None or np.isfinite(result.value)
        if result.value is None:
            assert (result.note in ('no item has two ratings', *(f'every label is {l}' for l in LABELS),
                                    'every item with two ratings has the same labels'))
        if result.low is None: assert result.note
        else: assert result.low <= result.high


EDGES = {'one rater': [[1], [2], [3]], 'one item': [[1, 3]], 'one label': [[3, 3], [3, 3]], 'nobody': [[None, None]]}


@pytest.mark.parametrize('name', EDGES)
def test_edges(name):
    found = agreement(patterns(ratings_of(EDGES[name]), ['strength']))
    reasons = {r.note for r in found.values() if r.value is None}
    assert (reasons == {'one rater': {'no item has two ratings'}, 'one item': set(),
                        'one label': {'every label is 3'}, 'nobody': {'no item has two ratings'}}[name])
    assert all(r.low is None for r in found.values())
    assert len(by_pair(ratings_of(EDGES[name]), 'strength')) == (0 if name in ('one rater', 'nobody') else 4)


def test_nothing_at_all():
    empty = ratings_of([[1]])[:0]
    assert len(patterns(empty, ['strength'])) == 0 and len(by_pair(empty, 'strength')) == 0
    assert len(agreement_table(patterns(empty, ['strength']))) == 0
    assert ({str(r) for r in agreement(patterns(empty, ['strength'])).values()}
            == {'not defined: no item has two ratings'})


def test_intervals_are_seeded_and_need_enough_items():
    p = pd.DataFrame({'stratum': '', 'pattern': ['1,1', '1,3', '3,3'], 'items': [20, 9, 31]})
    assert agreement(p) == agreement(p) != agreement(p, seed=1)
    few = agreement(p.assign(items=[10, 9, FEW - 20]))['Fleiss']
    assert few.low is None and few.note == f'fewer than {FEW} items are too few for an interval'


def test_strata_are_resampled_as_they_were_drawn():
    "Percent varies with the mixture of two strata, but the mixture was chosen and not drawn."
    p = pd.DataFrame({'stratum': ['a', 'b'], 'pattern': ['1,1', '1,3'], 'items': [50, 50]})
    stratified, pooled = (agreement(x, ['percent'])['percent'] for x in (p, p.assign(stratum='')))
    assert stratified.value == pooled.value == .5
    assert stratified.low is None and stratified.note == 'resampling the items changes nothing, so no interval'
    assert .38 < pooled.low < .43 and .57 < pooled.high < .62


@pytest.mark.parametrize('people', [2, 4])
def test_intervals_hold_the_true_value(people):
    "Of 200 campaigns of 150 items, the interval of 95 % holds the value of the population in 88 to 99 %."
    rng, shares = np.random.default_rng(people), np.array([.2, .3, .5])
    def campaign(n):
        truth = rng.choice(3, n, p=shares)[:, None]
        said = np.where(rng.random((n, people)) < .7, truth, rng.choice(3, (n, people), p=shares))
        counts = (said[:, :, None] == np.arange(3)).sum(1)
        rows, times = np.unique(counts, axis=0, return_counts=True)
        return pd.DataFrame({'stratum': '', 'pattern': [','.join(np.repeat(['1', '2', '3'], r)) for r in rows],
                             'items': times})
    names = ['percent', 'Fleiss', 'alpha ordinal', 'AC1']
    true = {n: r.value for n, r in agreement(campaign(300_000), names, resamples=0).items()}
    held = pd.DataFrame(
        [{n: r.low <= true[n] <= r.high for n, r in agreement(campaign(150), names, resamples=300, seed=k).items()}
         for k in range(200)])
    assert held.mean().between(.88, .99).all(), held.mean()


def test_fleiss_of_complete_tables_is_the_textbooks():
    rng = np.random.default_rng(0)
    said = rng.integers(1, 4, (40, 5))
    counts = np.stack([(said == l).sum(1) for l in LABELS], 1)
    p = counts.sum(0) / counts.sum()
    observed = ((counts ** 2).sum(1) - 5).mean() / 20
    assert values(said.tolist())['Fleiss'] == pytest.approx((observed - (p ** 2).sum()) / (1 - (p ** 2).sum()))


def test_all_names_are_known(): assert set(COEFFICIENTS).isdisjoint(KAPPAS)


@some
@given(grids)
def test_disputed_items_are_those_with_two_labels(grid):
    found = disputed(ratings_of(grid), 'strength', None)
    given_ = {i: [x for x in row if x] for i, row in enumerate(grid)}
    assert set(found['item']) == {i for i, row in given_.items() if len(set(row)) > 1}
    assert found.variance.is_monotonic_decreasing or (found.variance.diff().dropna() < 1e-9).all()
    for row in found.itertuples():
        assert row.variance == pytest.approx(np.var(given_[row.item])) and row.n == len(given_[row.item])


@some
@given(grids)
def test_pooled_confusions_hold_every_comparison_once(grid):
    "All pairs of ratings of an item, each in the cell of its lower and higher label; of two people, the items of both."
    ratings = ratings_of(grid)
    pairs = Counter(tuple(sorted(two)) for row in grid for two in combinations([x for x in row if x], 2))
    table = confusion(ratings, 'strength')
    assert {(a, b): table.loc[a, b] for a in table.index for b in table.columns if table.loc[a, b]} == dict(pairs)
    for first, second in combinations(sorted(ratings.annotator.unique()), 2):
        own = [set(ratings[(ratings.annotator == who) & ratings.strength.notna()]['item']) for who in (first, second)]
        assert confusion(ratings, 'strength', first, second).to_numpy().sum() == len(own[0] & own[1])


@some
@given(grids, st.integers(1, 6))
def test_drift_compares_with_others_only(grid, block):
    ratings = ratings_of(grid).assign(time=lambda f: pd.Timestamp('2024-01-01') + pd.to_timedelta(f['item'], 'h'))
    found = drift(ratings, 'strength', block)
    assert found.n.sum() == ratings.strength.notna().sum()
    for who, own in found.groupby('annotator'):
        j = int(who[1:])
        rows = [(row[j], [x for i, x in enumerate(row) if x and i != j]) for row in grid if row[j]]
        offsets = [x - np.mean(others) for x, others in rows if others]
        assert (own.n[:-1] == block).all() and own['mean'].mul(own.n).sum() == pytest.approx(sum(x for x, _ in rows))
        if len(own) == 1:
            assert own.offset.iloc[0] == pytest.approx(np.mean(offsets) if offsets else np.nan, nan_ok=True)


def test_consistency_is_each_persons_own():
    first = ratings_of([[1, 1], [2, 2], [3, 3], [1, None]]).assign(repeat_of=np.nan)
    again = first.assign(repeat_of=first['item'], item=first['item'] + 10, strength=[1, 2, 2, 2, 3, 2, 1, 2])
    found = consistency(pd.concat([first, again]), 'strength', ['percent']).set_index('annotator')
    assert found.value.to_dict() == {'p0': 1, 'p1': pytest.approx(1 / 3)}
    assert found['items'].to_dict() == {'p0': 4, 'p1': 3}


@some
@given(grids)
def test_one_label_is_the_lower_median_and_a_decision_outranks_it(grid):
    ratings = ratings_of(grid).assign(fluency=3.)
    found = one_label(ratings).set_index('item').strength
    for i, row in enumerate(grid):
        given_ = sorted(x for x in row if x)
        assert found[i] == int(np.median(given_)) if given_ else pd.isna(found[i])
    assert one_label(ratings.assign(pair_id=ratings['item'] + 7)).pair_id.tolist() == [i + 7 for i in range(len(grid))]
    decided = one_label(ratings, pd.DataFrame({'item': [0], 'strength': [2], 'fluency': [None]})).set_index('item')
    assert decided.strength[0] == 2 and decided.fluency[0] == 3
    assert decided.adjudicated[0] == 'strength' and (decided.adjudicated[1:] == '').all()


@some
@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson_mirrors_and_never_leaves_the_unit(k, n):
    assume(k <= n)
    low, high = wilson(k, n)
    assert 0 <= low <= k / n + 1e-12 and k / n - 1e-12 <= high <= 1 and high - low < 1
    other = wilson(n - k, n)
    assert low == pytest.approx(1 - other[1]) and high == pytest.approx(1 - other[0])


@pytest.mark.soak
def test_strong_pairs_are_unbiased_and_their_interval_holds():
    rng, sizes, true = np.random.default_rng(0), np.array([1000., 50_000, 400]), np.array([0., .1, .9])
    def drawn():
        strata = np.repeat(['a', 'b', 'c'], [30, 60, 100])
        strength = np.where(rng.random(190) < np.repeat(true, [30, 60, 100]), 3, 1)
        return strong_pairs(table3(pd.DataFrame({'stratum': strata, 'weight': np.repeat(
            sizes / [30, 60, 100], [30, 60, 100]), 'strength': strength, 'fluency': 3})))
    found = [drawn() for _ in range(80)]
    assert np.mean([f.pairs for f in found]) == pytest.approx(sizes @ true, rel=.05)
    assert .9 <= np.mean([f.low <= sizes @ true <= f.high for f in found]) <= 1


def test_all_pairs_rated_leave_nothing_to_estimate():
    labels = pd.DataFrame({'stratum': ['a'] * 40, 'weight': 1., 'strength': [3] * 25 + [1] * 15, 'fluency': 3})
    found = strong_pairs(table3(labels))
    assert (found.pairs, found.low, found.high) == (25, 25, 25)


def judged(strength, discarded):
    "Ten pairs of a range of 1,000: so many with this mark, the others discarded."
    marks = [strength] * (10 - discarded) + [None] * discarded
    states = ['rated'] * (10 - discarded) + ['discarded'] * discarded
    said = {'item': range(10), 'annotator': 'ada', 'stratum': 'low',
            'weight': 100., 'strength': marks, 'fluency': marks}
    return one_label(pd.DataFrame(said | {'state': states}))


def test_a_discarded_pair_is_not_strong_unless_only_fit_pairs_are_asked_about():
    labels = judged(3, discarded=5)
    table = table3(labels)
    found = strong_pairs(table)
    assert (found.pairs, found.of) == (500, 1000) and 200 < found.low < 300 and 700 < found.high < 800
    assert table[['n', 'discarded', 'strength_3', 'of']].values.tolist() == [[10, 5, 5, 'all pairs']]
    low, high = wilson(5, 10)
    assert table[['strength_share', 'strength_low', 'strength_high']].values.tolist() == [[.5, low, high]]
    assert 'of 1,000 pairs' in str(found) and '5 of 10 judged pairs are discarded and count as not strong' in str(found)
    fit = table3(labels, of='fit')
    found, (low, high) = strong_pairs(fit), wilson(5, 5)
    assert (fit[['strength_share', 'strength_low', 'strength_high', 'of']].values.tolist()
            == [[1, low, high, 'pairs fit to be rated']])
    assert (found.pairs, found.of) == (500, 500) and found.low == pytest.approx(500 * (1 - (1 - low) * np.sqrt(.99)))
    assert 'of 500 pairs fit to be rated' in str(found)
    with pytest.raises(ValueError, match="expected all or fit"): table3(labels, of='some')


def test_a_range_of_discarded_pairs_holds_no_strong_pair():
    labels = judged(3, discarded=10)
    assert strong_pairs(table3(labels)).pairs == 0 and strong_pairs(table3(labels)).high > 200
    assert (strong_pairs(table3(labels, of='fit')).pairs, strong_pairs(table3(labels, of='fit')).of) == (0, 0)


def test_half_of_the_raters_discard_a_pair_and_a_decision_brings_it_back():
    said = [('a', 'rated', 3), ('a', 'discarded', None), ('b', 'rated', 3), ('b', 'rated', 3), ('b', 'discarded', None)]
    ratings = pd.DataFrame(said,
                           columns=['item', 'state', 'strength']).assign(fluency=lambda f: f.strength, annotator='x')
    found = one_label(ratings).set_index('item')
    assert found.discarded.to_dict() == {'a': True, 'b': False}
    assert pd.isna(found.strength['a']) and found.strength['b'] == 3
    decided = one_label(ratings, pd.DataFrame({'item': ['a'], 'strength': [2], 'fluency': [None]})).set_index('item')
    assert not decided.discarded['a'] and (decided.strength['a'], decided.fluency['a']) == (2, 3)


labelled = st.lists(st.tuples(st.floats(-1, 1, width=32), st.booleans()), min_size=1, max_size=40)


@hypothesis_settings(max_examples=25, deadline=None)
@given(labelled, st.sampled_from(sorted(FITS)))
def test_a_curve_is_monotone_and_within_its_band(pairs, kind):
    x, y = map(list, zip(*pairs))
    curve = strength_curve(x, y, np.linspace(-1.5, 1.5, 31), kind, resamples=10)
    assert (curve.p.diff().dropna() >= -1e-9).all() or (curve.p.diff().dropna() <= 1e-9).all()
    assert curve[['p', 'low', 'high']].stack().between(0, 1).all()
    assert (curve.low <= curve.p).all() and (curve.p <= curve.high).all()


@hypothesis_settings(max_examples=25, deadline=None)
@given(labelled, st.lists(st.integers(0, 60), min_size=4, max_size=4), st.integers(0, 80))
def test_an_allocation_spends_what_there_is(pairs, sizes, n):
    x, y = map(list, zip(*pairs))
    edges = np.linspace(-1, 1, 5)
    bins = pd.DataFrame({'low': edges[:-1], 'high': edges[1:], 'pairs': np.array(sizes) + np.histogram(x, edges)[0]})
    plan = allocate(bins, x, y, n, resamples=5)
    room = (plan.pairs - plan.rated).clip(lower=0)
    assert plan['add'].sum() == min(n, room.sum()) and (plan['add'] <= room).all() and plan.rated.sum() == len(x)


def test_labels_go_where_the_band_is_wide():
    "Two bins of a size, the one settled by many labels and the other by few."
    x = np.r_[np.full(200, .25), np.full(4, .75)]
    plan = allocate(pd.DataFrame({'low': [0, .5], 'high': [.5, 1.], 'pairs': [1000, 1000]}),
                    x, np.arange(204) % 2 == 0, 20)
    assert plan['add'].tolist() == [0, 20]


def test_the_isotonic_band_holds_a_steep_curve():
    held, at = [], np.linspace(.05, .95, 19)
    true = lambda x: 1 / (1 + np.exp(-20 * (x - .5)))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.random(150)
        curve = strength_curve(x, rng.random(150) < true(x), at, resamples=80)
        held.append(((curve.low <= true(at)) & (true(at) <= curve.high)).mean())
    assert np.mean(held) > .9


def clustered(rng, sources=60, each=4):
    "Labels of several hypotheses of a source, which succeed or fail together, in two ranges; and the true share."
    ease = np.repeat(rng.beta(.6, .6, sources), each)
    n = sources * each
    return pd.DataFrame({'item': range(n), 'stratum': np.where(rng.random(n) < .5, 'low', 'high'), 'weight': 100.,
                         'discarded': False, 'strength': np.where(rng.random(n) < ease, 3, 1), 'fluency': 3,
                         'source': np.repeat(np.arange(sources), each)})


@pytest.mark.soak
def test_the_interval_draws_whole_sources():
    rng, held = np.random.default_rng(0), []
    for _ in range(50):
        labels = clustered(rng)
        table = table3(labels)
        truth = table.pairs.sum() / 2  # the mean of the beta distribution
        found = [strong_pairs(table), strong_pairs(table, labels=labels)]
        held.append([e.low <= truth <= e.high for e in found])
    by_pair, by_source = np.mean(held, axis=0)
    assert by_source > .9 and by_pair < by_source - .05, (by_pair, by_source)


def test_a_source_of_its_own_for_every_pair_changes_nothing():
    labels = clustered(np.random.default_rng(1)).assign(source=range(240))
    table = table3(labels)
    without = labels.drop(columns='source')
    assert strong_pairs(table, labels=labels) == strong_pairs(table) == strong_pairs(table, labels=without)


def test_so_many_more_ratings_halve_the_interval():
    labels = clustered(np.random.default_rng(2)).assign(source=range(240), weight=10_000.)
    few = strong_pairs(table3(labels))
    more = pd.concat([labels] * 10, ignore_index=True)[:240 + few.more].assign(weight=240 * 10_000. / (240 + few.more))
    many = strong_pairs(table3(more))
    assert (many.high - many.low) / (few.high - few.low) == pytest.approx(.5, abs=.03)
    assert strong_pairs(table3(labels.assign(weight=1.))).more is None  # the whole corpus is rated
