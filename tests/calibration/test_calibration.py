"""Calibrations: applied row by row alike, refused where they do not fit, validated by reference."""
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paranmt_lab.calibration.fits import (
    Additive,
    Choice,
    Curve,
    _ordinal_loss,
    as_json,
    fit_curves,
    fit_logistic,
    fit_ordinal,
    from_json,
)
from paranmt_lab.calibration.fitting import calibrate, calibrate_corpus, facts_of, usable_measures
from paranmt_lab.calibration.model import Calibration, open_calibration, save_calibration
from paranmt_lab.calibration.ratings import Scales, labelled_pairs, read_ratings, with_measures
from paranmt_lab.calibration.validation import (
    auc,
    aucs,
    figures,
    fit_chosen,
    folds_of,
    out_of_fold,
    resampled,
    within_references,
)
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score
from paranmt_lab.filters.table import measure_of
from paranmt_lab.ground.models import identity_of, models_at_hand, open_model
from paranmt_lab.ground.settings import settings, write_json
from references import references

auc_slowly = references('calibration.validation').auc_slowly
within_slowly = references('calibration.validation').within_slowly
probability_slowly = references('calibration.fits').probability_slowly
SCORER = 'paraphrase_score@paraphrase-scorer'


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    return replace(settings(), workspace=tmp_path)


@pytest.fixture
def talk(lab):
    "Real pairs of the sample in three shards, one without a translation, one empty."
    pairs = pd.read_csv(lab.sample / 'graded.tsv', sep='\t', quoting=3)
    pairs = pairs.rename(columns={'sentence1': 'reference', 'sentence2': 'translation'})[['reference', 'translation']]
    pairs.loc[[3, 4], 'translation'] = [None, '']
    corpus = Corpus.create('talk', lab)
    for k in range(3): corpus.write_pairs(k, pairs[k::3])
    return corpus


def by_hand(**more):
    curves = {'unigram_overlap': Curve((0., .6, 1.), (-1., .5, -3.)), SCORER: Curve((-1., 0., 1.), (-2.5, -2., 3.))}
    takes = {'unigram_overlap': dict(version=measure_of('unigram_overlap').version),
             SCORER: dict(version=measure_of(SCORER).version, model='encoder:paraphrase-scorer',
                          identity=identity_of('paraphrase-scorer'))}
    return Calibration(dict(strong=Additive(curves, .3)), takes, **more)


# ---- applied

def test_scoring_computes_what_a_calibration_takes_and_each_row_is_the_slow_reference(talk, lab):
    save_calibration(by_hand(), 'hand', lab)
    found = score(talk, ['p_strong'], ['calibration:hand'], show=False)
    assert set(found.measure) == {'unigram_overlap', SCORER, 'p_strong@hand'}
    frame = talk.frame(['unigram_overlap', SCORER, 'p_strong@hand'])
    curves = open_model('calibration:hand', lab).targets['strong']
    slow = np.array([probability_slowly(curves, row) for row in frame.drop(columns='p_strong@hand').to_dict('records')])
    assert 1 <= np.isnan(slow).sum() <= 2 and (frame['p_strong@hand'].isna() == np.isnan(slow)).all()
    np.testing.assert_allclose(frame['p_strong@hand'], slow, rtol=1e-6)


def test_what_is_there_is_read_and_not_computed_again(talk, lab):
    score(talk, ['unigram_overlap', 'paraphrase_score'], ['paraphrase-scorer'], show=False)
    talk.write_measure('unigram_overlap', 1, np.full(talk.sizes[1], .6, np.float32))  # values nobody would compute
    save_calibration(by_hand(), 'hand', lab)
    score(talk, ['p_strong'], ['calibration:hand'], show=False)
    frame = talk.frame([SCORER, 'p_strong@hand'], 'pair_id // 1000000000 = 1').dropna()
    z = .3 + .5 + np.interp(frame[SCORER], (-1, 0, 1), (-2.5, -2, 3))
    np.testing.assert_allclose(frame['p_strong@hand'], 1 / (1 + np.exp(-z)), rtol=1e-5)


def test_with_other_measures_and_another_encoder_in_one_call(talk, lab):
    save_calibration(by_hand(), 'hand', lab)
    class Letters:
        def similarity_pairwise(self, first, second): return np.full(len(first), .5, np.float32)
    models = {'calibration:hand': 'calibration:hand', 'letters': Letters()}
    score(talk, ['p_strong', 'paraphrase_score', 'trigram_overlap'], models, show=False)
    frame = talk.frame([SCORER, 'paraphrase_score@letters', 'p_strong@hand'])
    assert set(frame['paraphrase_score@letters'].dropna()) == {.5} and frame[SCORER].nunique() > 10


@pytest.mark.soak
def test_in_processes(talk, lab):
    save_calibration(by_hand(), 'hand', lab)
    score(talk, ['p_strong'], ['calibration:hand'], workers=2, show=False)
    there = talk.frame(['p_strong@hand'])
    for name in talk.measures(): talk.drop_measure(name)
    score(talk, ['p_strong'], ['calibration:hand'], show=False)
    pd.testing.assert_frame_equal(there, talk.frame(['p_strong@hand']))


def test_a_stop_between_the_passes_is_resumed(talk, lab, monkeypatch):
    calibration = by_hand()
    class StopAtOnce:
        takes, identity = calibration.takes, {}
        def probability(self, target, values):
            (talk.folder / 'stop').touch()
            return calibration.probability(target, values)
    stopped = score(talk, ['p_strong'], {'calibration:hand': StopAtOnce()}, show=False)
    assert list(stopped.attrs['left']) == ['p_strong@hand'] and talk.missing('p_strong@hand') == [1, 2]
    ended = score(talk, ['p_strong'], {'calibration:hand': StopAtOnce()}, show=False)
    while ended.attrs['left']: ended = score(talk, ['p_strong'], {'calibration:hand': StopAtOnce()}, show=False)
    assert len(talk.frame(['p_strong@hand'])) == talk.rows


# ---- refused

def refused(corpus, lab, change):
    "The message when a calibration is applied that was changed by `change`, and the measures there are then."
    calibration = by_hand()
    takes = json.loads(json.dumps(calibration.takes))
    change(takes)
    save_calibration(replace(calibration, takes=takes), 'other', lab, force=True)
    with pytest.raises(ValueError) as found: score(corpus, ['p_strong'], ['calibration:other'], show=False)
    return str(found.value)


def test_a_measure_of_another_version_or_model_is_refused_before_anything_is_written(talk, lab):
    assert 'unigram_overlap in version 9' in refused(talk, lab, lambda t: t['unigram_overlap'].update(version=9))
    other = dict(name='paraphrase-scorer', checksum='0' * 16)
    assert 'fit it again' in refused(talk, lab, lambda t: t[SCORER].update(identity=other))
    message = refused(talk, lab, lambda t: t.update({'paraphrase_score@gone': dict(t[SCORER], model='encoder:gone')}))
    assert 'takes paraphrase_score@gone, which talk lacks, and encoder:gone is not at hand' in message
    assert 'takes stars, which talk lacks' in refused(talk, lab, lambda t: t.update(stars=dict(version=None)))
    assert talk.measures() == []


def test_a_damaged_file_is_named(lab):
    folder = save_calibration(by_hand(), 'hand', lab)
    text = (folder / 'calibration.json').read_text()
    for old, new in (('"at"', '"places"'), ('paranmt-calibration', 'something'), ('{', '', )):
        (folder / 'calibration.json').write_text(text.replace(old, new, 1))
        with pytest.raises(ValueError, match=r'calibration\.json'): open_calibration('calibration:hand', lab)
    for heights in ([1, 2], ['a', 'b', 'c'], [None, 1, 2], 5):
        content = json.loads(text)
        content['targets']['strong']['curves']['unigram_overlap']['height'] = heights
        write_json(folder / 'calibration.json', content)
        with pytest.raises(ValueError, match=r'calibration\.json'): open_calibration('calibration:hand', lab)


@pytest.mark.parametrize('part, error', [
    (dict(takes=dict(unigram_overlap=7, **{SCORER: 7})), 'takes: .* has no version and model'),
    (dict(figures=7), 'figures is a number'),
    (dict(figures=[7]), 'figures: row 1 is 7'),
    (dict(figures=[dict(target='strong', metric='auc')]), 'figures: row 1 is .*expected target, system, metric'),
    (dict(fitted=[]), 'fitted is a list'),
    (dict(drawings='none'), 'drawings is text, expected an object'),
    (dict(targets=dict(strong=7)), 'not the curves of a calibration'),
    (dict(targets=dict(strong=dict(curves={}, base=float('nan'), logit=True))), 'the base of the curves is nan'),
])
def test_each_part_of_a_file_is_checked_when_it_is_opened(lab, part, error):
    path = save_calibration(by_hand(), 'hand', lab) / 'calibration.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | part))
    with pytest.raises(ValueError, match=rf'calibration\.json: {error}.*fit it again'):
        open_calibration('calibration:hand', lab)


# ---- fitted

def made_up(references=100, each=6, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(references), each)
    x = pd.DataFrame({'a': rng.normal(size=len(groups)), 'b': rng.normal(size=len(groups))})
    logit = 1.5 * x.a - 2 * (x.b.abs() - .7) + np.repeat(rng.normal(0, 1, references), each)
    return x, (rng.random(len(x)) < 1 / (1 + np.exp(-logit))).astype(float), groups


def test_no_reference_is_in_training_and_test(monkeypatch):
    x, y, groups = made_up()
    seen = []
    def fit(values, labels, of):
        seen.append(set(of))
        return fit_curves(values, labels)
    out_of_fold(x, y, groups, fit)
    fold = folds_of(groups)
    assert [set(groups[fold == i]) & train for i, train in enumerate(seen)] == [set()] * 5


def test_random_labels_have_no_auc():
    x, _, groups = made_up(300, 4)
    y = np.repeat((np.random.default_rng(1).random(300) < .5).astype(float), 4)  # one label a reference
    leak = x.assign(reference=groups)  # a measure that names the reference
    assert abs(auc(out_of_fold(leak, y, groups, lambda v, l, g: fit_logistic(v, l, Choice(6, 1.))), y) - .5) < .06


def test_curves_are_the_fit_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    from paranmt_lab.calibration.fits import broken, knots_of
    x, y, _ = made_up()
    X = np.hstack([broken(x[c], knots_of(x[c].to_numpy(), 3)) for c in x])
    X = (X - X.mean(0)) / X.std(0)
    p = LogisticRegression(C=.03, solver='newton-cholesky', max_iter=200).fit(X, y).predict_proba(X)[:, 1]
    curves = fit_logistic(x, y, Choice(3, .03))
    np.testing.assert_allclose(curves(x), p, atol=1e-5)
    np.testing.assert_allclose(from_json(json.loads(json.dumps(as_json(curves))))(x), p, atol=1e-4)


def test_auc_with_weights_and_ties_is_the_definition():
    rng = np.random.default_rng(2)
    for n in (2, 7, 40):
        scores, labels = rng.integers(0, 5, n).astype(float), (rng.random(n) < .5).astype(float)
        weights = rng.integers(0, 4, (3, n)).astype(float)
        slow = [auc_slowly(scores, labels, w) for w in weights]
        np.testing.assert_allclose(aucs(scores, labels, weights), slow)


def test_resamples_draw_whole_references():
    groups = np.array([5, 5, 5, 9, 9, 2])
    draws = resampled(groups, 50)
    assert (draws[0] == 1).all() and (draws[:, 0] == draws[:, 1]).all() and (draws[:, 3] == draws[:, 4]).all()
    assert (draws[1:, 0] + draws[1:, 3] + draws[1:, 5] == 3).all()


def test_order_within_references_is_the_definition_in_every_resample():
    rng = np.random.default_rng(3)
    for n in (4, 40):
        scores, marks = (rng.integers(*ends, n).astype(float) for ends in ((0, 5), (1, 4)))
        groups = np.arange(n) // 4
        draws = resampled(groups, 10)
        for weights, share in zip(draws, within_references(scores, marks, groups, draws)):
            rows = [(s, m, (g, copy)) for s, m, g, w in zip(scores, marks, groups, weights) for copy in range(int(w))]
            np.testing.assert_equal(share, within_slowly(*map(list, zip(*rows))))


def test_an_average_weighs_its_measures_alike_and_has_a_figure_within_references_where_there_is_one():
    x, y, groups = made_up()
    x, y = x.assign(b=-10 * x.b.abs()), np.asarray(y)
    p = out_of_fold(x, y, groups, lambda v, l, g: fit_chosen(v, l, g, 'average'))
    curves = fit_curves(x, y, kind='average')
    assert np.ptp([curves.curves[c](x[c]).std() for c in x]) < 1e-9 and all(
        np.polyfit(x[c], curves.curves[c](x[c]), 1)[0] > 0 for c in x)
    of = figures(p, y, groups, 20).set_index('metric').value
    assert .6 < of['within'] < 1 and of['auc'] > .6
    assert 'within' not in set(figures(p, y, np.arange(len(y)), 20).metric)  # one translation each


# ---- ratings

PARABANK = settings().resources / 'human/parabank_eval'


def test_a_table_of_ratings(tmp_path):
    rows = ['reference\ttranslation\tstrength\tfluency\trater', 'A b.\tA "b.\t90\t2\tp', 'A b.\tA "b.\t50\t2\tq',
            'A b.\tA "b.\t0\t0\tp', 'C.\tNA\t\t0\tp', 'C.\t\t90\t2\tp']
    (tmp_path / 'r.tsv').write_text('\n'.join(rows) + '\n')
    scales = Scales(strength=(33, 67), fluency=(0, 1))
    pairs = labelled_pairs(read_ratings(tmp_path / 'r.tsv', scales), scales)
    # a quotation mark and the word NA are text; an empty side is out
    assert pairs.translation.tolist() == ['A "b.', 'NA']
    assert pairs.strong.tolist() == [0, 0] and pairs.fluent.tolist() == [1, 0]  # the second rating of p does not count


@pytest.mark.skipif(not PARABANK.is_dir(), reason='the evaluation of ParaBank is not in the resources')
def test_on_ratings_of_people(lab, monkeypatch):
    monkeypatch.setenv('PARANMT_RESOURCES', str(PARABANK.parents[1]))
    pairs = labelled_pairs(read_ratings(PARABANK))
    assert len(pairs) == 5550 and pairs.group.nunique() == 400 and pairs.strong.notna().all()
    corpus = Corpus.create('rated', lab)
    corpus.write_pairs(0, pairs[['reference', 'translation']])
    score(corpus, ['unigram_overlap', 'translation_length'], show=False)
    calibration = calibrate_corpus(corpus, pairs, times=100)
    auc_of = {row['target']: row for row in calibration.figures if row['metric'] == 'auc'}
    strong = auc_of['strong']
    assert .68 < strong['low'] < strong['value'] < strong['high']
    save_calibration(calibration, 'people', lab)
    assert 'calibration:people' in models_at_hand(lab, 'Calibration')
    text = (lab.models / 'people/calibration.json').read_text() + (lab.models / 'people/README.md').read_text()
    assert not any(t in text for t in (*pairs.reference, *pairs.translation) if len(t) > 12)  # no sentence of the data
    score(corpus, ['p_strong', 'p_fluent'], ['calibration:people'], show=False)
    assert usable_measures(corpus) == list(calibration.takes)
    p = corpus.frame(['p_strong@people'])['p_strong@people']
    assert abs(p.mean() - pairs.strong.mean()) < .02 and p.between(0, 1).all()


def test_a_calibration_of_a_calibration_is_refused(talk, lab):
    save_calibration(by_hand(), 'hand', lab)
    score(talk, ['p_strong'], ['calibration:hand'], show=False)
    with pytest.raises(ValueError, match='is a calibrated measure'): facts_of(talk, 'p_strong@hand')
    rated = talk.frame(['reference', 'translation']).dropna().drop_duplicates()
    rated = rated.assign(strong=np.arange(len(rated)) % 2, fluent=1., group=np.arange(len(rated)))
    found = with_measures(rated, talk, ['unigram_overlap'])
    calibration = calibrate(found, {'unigram_overlap': facts_of(talk, 'unigram_overlap')}, times=20)
    assert list(calibration.targets) == ['strong'] and 'fluent' in calibration.fitted['not_fitted']


# ---- the pairs that a calibration knows

def rated_talk(talk):
    "Rated pairs of the corpus: strong where half of the words are shared, with some chance."
    pairs = talk.frame(['reference', 'translation', 'unigram_overlap', 'translation_length']).dropna()
    pairs = pairs[pairs.translation.str.strip() != ''].drop_duplicates(['reference', 'translation'])
    rng = np.random.default_rng(0)
    grade = np.clip(np.round(1 + 2 * pairs.unigram_overlap + rng.normal(0, .6, len(pairs))), 1, 3)
    return pairs.assign(strength=grade, strong=(grade == 3).astype(float), fluency=3., fluent=1.,
                        group=pd.factorize(pairs.reference)[0])


def test_a_note_where_the_pairs_were_fitted_to_and_none_elsewhere(talk, lab):
    score(talk, ['unigram_overlap', 'translation_length'], show=False)
    found = rated_talk(talk)[:150]
    takes = {c: facts_of(talk, c) for c in ('unigram_overlap', 'translation_length')}
    save_calibration(calibrate(found, takes, times=20), 'own', lab)
    known = found.reference.str.casefold().unique()
    pairs = int(talk.frame(['reference']).reference.str.casefold().isin(known).sum())
    [note] = score(talk, ['p_strong'], ['calibration:own'], show=False).attrs['notes']
    assert f'ratings of the references of {pairs:,} of the {talk.rows:,} pairs of talk' in note
    assert talk.manifest('score-p_strong@own')['notes'] == [note]
    other = Corpus.create('other', lab)
    other.write_pairs(0, dict(reference=['Nobody rated this.'], translation=['No one rated it.']))
    assert score(other, ['p_strong'], ['calibration:own'], show=False).attrs['notes'] == []
    (lab.models / 'own/seen.npy').unlink()  # as calibrations were before
    assert len(open_calibration('calibration:own', lab).seen) == 0
    (lab.models / 'own/seen.npy').write_bytes(b'torn')
    with pytest.raises(ValueError, match='seen.npy cannot be read .* fit the calibration again'):
        open_calibration('calibration:own', lab)


# ---- ordinal

def test_an_ordinal_fit_is_the_minimum_and_knows_more_than_two_labels():
    from scipy.optimize import check_grad
    x, _, groups = made_up(300)
    rng = np.random.default_rng(1)
    latent = 1.5 * x.a - .5 * x.b + rng.logistic(size=len(x))
    grades = np.digitize(latent, [-1, 1]) + 1.
    curves = fit_ordinal(x, grades, Choice(0, 10.))
    slope = np.ptp(curves.curves['a'].height) / np.ptp(curves.curves['a'].at)
    assert abs(slope - 1.5) < .15  # as it was drawn
    truth = 1 / (1 + np.exp(-(1.5 * x.a - .5 * x.b - 1)))
    assert np.abs(curves(x) - truth).mean() < .02
    level, X = grades.astype(int) - 1, x.to_numpy()
    at = np.array([.3, -.2, -.5, .1])
    assert check_grad(lambda a: _ordinal_loss(a, X, level, .1, 3)[0], lambda a: _ordinal_loss(a, X, level, .1, 3)[1],
                      at) < .05
    assert abs(float(fit_ordinal(x, np.full(len(x), 3.))(x).mean()) - 1) < .01  # one label alone
    p = out_of_fold(x, grades, groups, lambda v, y, g: fit_chosen(v, y, g, 'ordinal'))
    assert auc(p, (grades == 3).astype(float), folds_of(groups)) > .8


def test_the_kind_of_a_fit_is_recorded_and_a_wrong_one_refused(talk):
    score(talk, ['unigram_overlap', 'translation_length'], show=False)
    found = rated_talk(talk)
    takes = {c: facts_of(talk, c) for c in ('unigram_overlap', 'translation_length')}
    made = {kind: calibrate(found, takes, kind=kind, times=20) for kind in ('', 'ordinal')}
    assert [c.fitted['fit'] for c in made.values()] == ['logistic', 'ordinal']
    auc_of = {kind: next(r['value'] for r in c.figures if r['metric'] == 'auc') for kind, c in made.items()}
    assert abs(auc_of[''] - auc_of['ordinal']) < .03
    with pytest.raises(ValueError, match="unknown fit 'probit', expected isotonic or logistic or ordinal"):
        calibrate(found, takes, kind='probit', times=20)
