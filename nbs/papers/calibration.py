"""Filters judged by people's ratings of several sources: each measure, and combinations fitted elsewhere.

    python nbs/papers/calibration.py sources [keep]
        # across references and within a reference, with intervals by reference: every measure of each source, and what
        # was fitted to other ratings; the held-out sets of STS, too
    python nbs/papers/calibration.py larger [keep]
        # all-mpnet beside all-MiniLM, on half of the references of each source; half an hour of a core
    python nbs/papers/calibration.py references [keep]
        # P(R) by a classifier of the references and translations of WMT; five minutes of a core
    python nbs/papers/calibration.py ship [keep]
        # data/models/people: the plain average of measures of the shipped scorer, on ParaBank's ratings
    python nbs/papers/calibration.py ship sources keep
        # all: the one command after the table of measures has changed

PARANMT_RESOURCES names the folder that holds `human/parabank_eval`, `eval` and `train/paraphrase`. Each source is a
corpus `rated-SOURCE` of the workspace, so its measures are computed once. The extra `peers` adds rows of all-MiniLM,
`teacher` has all-mpnet. `keep` writes the figures to nbs/papers/calibration.json. No sentence of the data is written
anywhere else."""
import os
import sys
from dataclasses import replace
from pathlib import Path

for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'RAYON_NUM_THREADS'): os.environ[name] = '1'

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from paranmt_lab.calibration.fits import Additive, Choice, Curve, fit_average, fit_logistic
from paranmt_lab.calibration.fitting import calibrate_corpus, usable_measures
from paranmt_lab.calibration.model import save_calibration
from paranmt_lab.calibration.ratings import THIRDS, Scales, labelled_pairs, read_ratings, with_measures
from paranmt_lab.calibration.validation import RESAMPLES, aucs, interval, out_of_fold, resampled, within_references
from paranmt_lab.classifier.training import accuracies, ship_classifier, train_classifier
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import ByCosine
from paranmt_lab.evaluation.graded import read_graded
from paranmt_lab.filters.scoring import score, score_texts
from paranmt_lab.ground.models import identity_of, open_model
from paranmt_lab.ground.settings import atomic, settings
from paranmt_lab.recipes.sources import classifier_config, need_corpus

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import ROOT, keep

PATH = ROOT / 'nbs/papers/calibration.json'
NAME, SCORER, PEER = 'people', 'paraphrase-scorer', 'all-MiniLM-L6-v2'
SCALES = Scales(strength=THIRDS)  # of `human_score`, 0 to 100; `gm` 0, 1, 2 are the marks 1, 2, 3
STRONG = tuple(f'{name}@{SCORER}' for name in ('paraphrase_score', 'word_alignment', 'reference_unaligned'))
FLUENT = f'translation_unaligned@{SCORER}',
SEGMENTS, SYSTEMS, EACH = 480, 10, 2000  # of WMT; rows of a source in a fit to several

LARGER = 'all-mpnet-base-v2'
MADE_BY_PEER, MADE_BY_LARGER = (f'paraphrase_score@{name}' for name in (PEER, LARGER))


def graded(s, *files, reference='sentence1'):
    "Pairs of graded files as translations of references."
    rows = pd.concat([read_graded(s.resources / 'eval' / file) for file in files])
    translation, = {'sentence1', 'sentence2'} - {reference}
    return rows.rename(columns={reference: 'reference', translation: 'translation', 'score': 'grade'})


def parabank(s):
    "Pairs with the median mark of their raters."
    pairs = labelled_pairs(read_ratings(s.resources / 'human/parabank_eval', SCALES), SCALES)
    return pairs.assign(grade=pairs.strength)


def agreement(s):
    "Outputs of systems of WMT 2022-23; the grade is the mean cosine of all-MiniLM with the other outputs of a segment."
    columns = ['segment', 'year', 'reference', 'hypothesis']
    rows = pd.read_parquet(s.resources / 'train/paraphrase/wmt21-23.parquet', columns=columns)
    rows = rows[rows.year.astype(int) > 21].drop_duplicates(['segment', 'hypothesis'])
    rows = rows[rows.groupby('segment').hypothesis.transform('size') >= 7]
    segments = np.random.default_rng(0).choice(rows.segment.unique(), SEGMENTS, replace=False)
    rows = rows[rows.segment.isin(segments)].sample(frac=1, random_state=0).groupby('segment').head(SYSTEMS)
    rows = rows.sort_values('segment').reset_index(drop=True).rename(columns=dict(hypothesis='translation'))
    vectors = open_model(f'st:{PEER}').encode(rows.translation.tolist())
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for _, group in rows.groupby('segment'):
        cosines = vectors[group.index] @ vectors[group.index].T
        rows.loc[group.index, 'grade'] = (cosines.sum(1) - 1) / (len(group) - 1)
    return rows[['reference', 'translation', 'grade']]


SOURCES = {  # Name to its pairs, and to the least grade of a strong pair; None: compared within a reference only
    'ParaBank': (parabank, 3),
    'PIT': (lambda s: graded(s, 'pit2015/dev.tsv'), 4),
    'SICK': (lambda s: graded(s, 'sick/train.tsv', 'sick/trial.tsv'), 4.5),
    'STS dev': (lambda s: graded(s, 'stsb/dev.tsv', 'sts17/en-en.tsv'), 4),
    'WMT agreement': (agreement, None),
}
TESTS = {  # Looked at when the choice was made, and not before
    'SMTeuroparl': (lambda s: graded(s, 'sts/2012/SMTeuroparl.tsv'), 4.5),
    'SMTnews': (lambda s: graded(s, 'sts/2012/SMTnews.tsv'), 4.5),
    'answers-students': (lambda s: graded(s, 'sts/2015/answers-students.tsv', reference='sentence2'), 4.5),
}


def rated(source, make, least, s):
    "Rated pairs of a source with every measure that needs only both sides: its corpus is made and scored once."
    name = f"rated-{source.replace(' ', '-')}"
    try: corpus = Corpus.open(name, s)
    except FileNotFoundError: corpus = Corpus.create(name, s)
    pairs = make(s)
    if not corpus.shards: corpus.write_pairs(0, pairs[['reference', 'translation']].drop_duplicates())
    score(corpus, (), [SCORER], show=False)
    try: score(corpus, ['paraphrase_score'], [f'st:{PEER}'], show=False)
    except (FileNotFoundError, ImportError) as e: print(f'{PEER}: not available: {e}')
    rows = with_measures(pairs, corpus, usable_measures(corpus))
    columns = [c for c in usable_measures(corpus) if rows[c].notna().mean() > .99]
    return marked(rows.dropna(subset=columns), least), columns


def marked(rows, least):
    "Rows with the label of strong pairs, and the number of their reference."
    strong = np.nan if least is None else (rows.grade >= least).astype(float)
    group = pd.factorize(rows.reference.str.strip().str.casefold())[0]
    return rows.assign(strong=strong, group=group).reset_index(drop=True)


def logistic(values, labels, *_): return fit_logistic(values, labels, Choice())


def straight(values, labels): return fit_logistic(values, labels, Choice(bends=0))


def of_others(sources, name, columns, fit=logistic):
    "Curves of a fit to the same number of pairs of every other source."
    parts = [rows.sample(EACH, replace=len(rows) < EACH, random_state=0) for other, rows in sources.items()
             if other != name and rows.strong.notna().all()]
    both = pd.concat(parts)
    return fit(both[columns].astype(float), both.strong.to_numpy())


def monotone(values, labels):
    "As `straight`, but no line falls where its measure alone goes up with strength, or rises where it goes down."
    spread = values.std().clip(lower=1e-9)
    unit = ((values - values.mean()) / spread).to_numpy()
    signs = np.where(unit.T @ (labels - labels.mean()) < 0, -1., 1.)
    ends, penalty = 2 * labels - 1, 1 / Choice().C

    def loss(parameters):
        weights, base = parameters[:-1], parameters[-1]
        margins = ends * (unit @ (signs * weights) + base)
        pull = -ends / (1 + np.exp(margins))
        return np.logaddexp(0, -margins).sum() + penalty * weights @ weights / 2, \
            np.r_[signs * (unit.T @ pull) + penalty * weights, pull.sum()]

    bounds = [(0, None)] * len(signs) + [(None, None)]
    found = minimize(loss, np.zeros(len(signs) + 1), jac=True, method='L-BFGS-B', bounds=bounds).x
    slopes = dict(zip(values, signs * found[:-1] / spread))
    return Additive({name: Curve((low, high), (slopes[name] * low, slopes[name] * high))
                     for name in values if (low := values[name].min()) < (high := values[name].max())})


def by_domain(rows, columns):
    "Rows whose measures have mean 0 and standard deviation 1 in their own source, which needs no ratings."
    values = rows[columns].astype(float)
    return rows.assign(**(values - values.mean()) / values.std().clip(lower=1e-9))


def fitted_to_parabank(sources, name, columns, fit):
    "Scores of a source by curves of ParaBank's ratings, of its other folds for itself."
    home, rows = sources['ParaBank'], sources[name]
    values = home[columns].astype(float)
    if name == 'ParaBank': return out_of_fold(values, home.strong.to_numpy(), home.group.to_numpy(), fit)
    return fit(values, home.strong.to_numpy()).sum_of(rows[columns].astype(float))


def systems(sources, name, columns):
    "Name of a filter to its scores of a source."
    rows = sources[name]
    scores = {c: rows[c].to_numpy(float) for c in columns}
    own = [c for c in columns if c != MADE_BY_PEER]
    average = lambda values, labels, *_: fit_average(values, labels)
    scores['average'] = fitted_to_parabank(sources, name, list(STRONG), average)
    scores['all measures, ParaBank'] = fitted_to_parabank(sources, name, own, logistic)
    scores['all measures, other sources'] = of_others(sources, name, own).sum_of(rows[own].astype(float))
    scores['three measures, other sources'] = of_others(sources, name, list(STRONG)).sum_of(rows[list(STRONG)])
    scores['all measures, other sources, straight'] = of_others(sources, name, own, straight).sum_of(rows[own])
    scores['all measures, other sources, monotone'] = of_others(sources, name, own, monotone).sum_of(rows[own])
    alike = {source: by_domain(frame, own) for source, frame in sources.items()}
    scores['average, by domain'] = fitted_to_parabank(alike, name, list(STRONG), average)
    scores['all measures, other sources, by domain'] = of_others(alike, name, own).sum_of(alike[name][own])
    scores['three measures, other sources, by domain'] = of_others(alike, name, list(STRONG)).sum_of(
        alike[name][list(STRONG)])
    if MADE_BY_PEER in columns:
        scores[f'average, {PEER}'] = fitted_to_parabank(sources, name, [MADE_BY_PEER, *STRONG[1:]], average)
    return scores


def compared(scores, grades, strong, groups, against, times=RESAMPLES):
    "Figures across references and within a reference, and differences of one system to each, on the same resamples."
    weights, n = resampled(groups, times), dict(n=len(groups), groups=len(np.unique(groups)))
    within = {name: within_references(np.asarray(x, float), grades, groups, weights) for name, x in scores.items()}
    each = dict(within=within)
    if np.isfinite(strong).all():
        each['auc'] = {name: aucs(np.asarray(x, float), strong, weights) for name, x in scores.items()}
    for metric, of in each.items():
        signed = {name: x if x[0] >= .5 else 1 - x for name, x in of.items()}  # lower values may be better
        for name, x in signed.items():
            yield dict(system=name, metric=metric, **interval(x), **n)
            if name != against: yield dict(system=name, metric=f'{metric} minus', **interval(signed[against] - x), **n)


def at_equal_meaning(overlap, meaning, grades, groups, bins=50, times=RESAMPLES):
    "Of two pairs of nearly the same paraphrase score, how often people prefer the one with more overlap; resamples."
    weights = resampled(groups, times)
    part = pd.qcut(pd.Series(meaning).rank(method='first'), bins, labels=False).to_numpy()
    right, total = np.zeros(len(weights)), np.zeros(len(weights))
    for rows in (np.flatnonzero(part == k) for k in range(bins)):
        better = (grades[rows][:, None] > grades[rows]).astype(float)
        agrees = (1 + np.sign(overlap[rows][:, None] - overlap[rows])) / 2 * better
        own = weights[:, rows]
        right += ((own @ agrees) * own).sum(1)
        total += ((own @ better) * own).sum(1)
    return right / total


def overlaps(sources):
    "Whether more overlap raises or lowers people's marks at equal meaning, on every source that people rated."
    for name, rows in sources.items():
        meaning = MADE_BY_PEER if MADE_BY_PEER in rows else STRONG[0]
        if rows.strong.isna().any(): continue
        for measure in ('unigram_overlap', 'trigram_overlap'):
            found = at_equal_meaning(*(rows[c].to_numpy(float) for c in (measure, meaning, 'grade')), rows.group)
            yield dict(source=name, system=measure, meaning=meaning, n=len(rows), **interval(found))


def compare(s):
    "Every measure and combination on every source."
    tables, sources, columns = [], {}, {}
    for name, (make, least) in (SOURCES | TESTS).items(): sources[name], columns[name] = rated(name, make, least, s)
    common = [c for c in columns['ParaBank'] if all(c in of for of in columns.values())]
    known = {name: sources[name] for name in SOURCES}
    for name, rows in sources.items():
        scores = systems(known | {name: rows}, name, common)
        parts = compared(scores, rows.grade.to_numpy(), rows.strong.to_numpy(), rows.group.to_numpy(), 'average')
        tables.append(pd.DataFrame(parts).assign(source=name))
        print(tables[-1].round(4).to_string(index=False), flush=True)
    home = sources['ParaBank']
    labels, groups = home.fluent.to_numpy(), home.group.to_numpy()
    average = lambda values, labels, *_: fit_average(values, labels)
    fluent = {c: home[c].to_numpy(float) for c in common}
    few = [*FLUENT, 'translation_word_evenness']
    fluent['average of two'] = out_of_fold(home[few].astype(float), labels, groups, average)
    fluent['all measures'] = out_of_fold(home[common].astype(float), labels, groups, logistic)
    fluency = pd.DataFrame(compared(fluent, home.fluency.to_numpy(), labels, groups, FLUENT[0]))
    print(fluency.round(4).to_string(index=False), flush=True)
    monotonic = pd.DataFrame(overlaps(sources))
    print(monotonic.round(4).to_string(index=False), flush=True)
    keep('sources', PATH, overlaps=monotonic.round(5).to_dict('records'), measures=common,
         tests=list(TESTS), least={name: b for name, (_, b) in SOURCES.items()},
         rows=pd.concat(tables).round(5).to_dict('records'), fluency=fluency.round(5).to_dict('records'))


class ReadOnce(ByCosine):
    "A published encoder that reads each sentence once."
    def __init__(self, name, s): self.encoder, self.known = open_model(name, s), {}

    def encode(self, sentences, **_):
        new = [text for text in dict.fromkeys(sentences) if text not in self.known]
        if new: self.known |= dict(zip(new, self.encoder.encode(new)))
        return np.array([self.known[text] for text in sentences], np.float32)


def scored_by_encoders(rows, s):
    "Rows with the measures of the average, and the scores of both peers."
    sides = rows.reference.tolist(), rows.translation.tolist()
    measures = [name.partition('@')[0] for name in STRONG]
    own = score_texts(*sides, measures, dict(encoder=open_model(SCORER, s)))
    rows = rows.assign(**{name: own[measure] for name, measure in zip(STRONG, measures)})
    for name in (PEER, LARGER):
        found = score_texts(*sides, ['paraphrase_score'], dict(encoder=ReadOnce(f'st:{name}', s)))
        rows[f'paraphrase_score@{name}'] = found.paraphrase_score
    return rows


def part_of(name, s):
    "Half of the references of a source, or all of a test, scored by all encoders; the workspace keeps it."
    path, (make, least) = s.workspace / 'rated-part' / f'{name}.parquet', (SOURCES | TESTS)[name]
    if not path.exists():
        rows = marked(make(s), least)
        order = np.random.default_rng(0).permutation(rows.group.nunique())
        half = order if name in TESTS else order[:len(order) // 2]
        rows = scored_by_encoders(rows[rows.group.isin(half)].reset_index(drop=True), s)
        columns = ['reference', 'translation', 'grade', 'strong', 'group', *STRONG, MADE_BY_PEER, MADE_BY_LARGER]
        path.parent.mkdir(exist_ok=True)
        with atomic(path) as part: rows[columns].to_parquet(part)
        print(name, len(rows), flush=True)
    rows = pd.read_parquet(path)
    return rows.dropna(subset=[*STRONG, MADE_BY_PEER, MADE_BY_LARGER]).reset_index(drop=True)


def larger(s):
    "The scores of three encoders, alone and in the average."
    parts = {name: part_of(name, s) for name in SOURCES | TESTS}
    texts = pd.concat([rows[side] for rows in parts.values() for side in ('reference', 'translation')])
    figures, gains = [], []
    average = lambda values, labels, *_: fit_average(values, labels)
    for name, rows in parts.items():
        truth = rows.grade.to_numpy(), rows.strong.to_numpy(), rows.group.to_numpy()
        alone, averages = {}, {}
        for column in (STRONG[0], MADE_BY_PEER, MADE_BY_LARGER):
            alone[column] = rows[column].to_numpy(float)
            averages[f'average with {column}'] = fitted_to_parabank(parts, name, [column, *STRONG[1:]], average)
        for scores in (alone, averages):
            found = pd.DataFrame(compared(scores, *truth, list(scores)[-1])).assign(source=name)
            figures.append(found[~found.metric.str.endswith('minus')])
            gains.append(found[found.metric.str.endswith('minus') & found.system.str.contains(PEER)])
        print(pd.concat(figures[-2:] + gains[-2:]).round(4).to_string(index=False), flush=True)
    keep('larger', PATH, tests=list(TESTS), teacher=identity_of(f'st:{LARGER}', s), sentences=texts.nunique(),
         rows=pd.concat(figures).round(5).to_dict('records'), gains=pd.concat(gains).round(5).to_dict('records'))


def references(s):
    "P(R) by a classifier of WMT's references and translations: alone, and as a fourth measure of the average."
    corpus = need_corpus('wmt-in-order', s)
    run = train_classifier(classifier_config('references', corpus.name, vectors=''), s)
    judge = dict(classifier=open_model(f'classifier:{ship_classifier(run, s.models / run.name)}', s))
    columns, sources, tables = [*STRONG, 'P(R)'], {}, []
    average = lambda values, labels, *_: fit_average(values, labels)
    for name, (make, least) in (SOURCES | TESTS).items():
        rows, _ = rated(name, make, least, s)
        found = score_texts(rows.reference.tolist(), rows.translation.tolist(), ['reference_probability'], judge)
        rows = sources[name] = rows.assign(**{'P(R)': found.reference_probability})
        scores = {'P(R)': rows['P(R)'], 'average': fitted_to_parabank(sources, name, list(STRONG), average),
                  'average with P(R)': fitted_to_parabank(sources, name, columns, average)}
        truth = rows.grade.to_numpy(), rows.strong.to_numpy(), rows.group.to_numpy()
        tables.append(pd.DataFrame(compared(scores, *truth, 'average')).assign(source=name, target='strength'))
    home = sources['ParaBank']
    truth = home.fluency.to_numpy(), home.fluent.to_numpy(), home.group.to_numpy()
    fluency = pd.DataFrame(compared({'P(R)': home['P(R)']}, *truth, 'P(R)'))
    table = pd.concat([*tables, fluency.assign(source='ParaBank', target='fluency')])
    print(table.round(4).to_string(index=False), flush=True)
    keep('references', PATH, accuracy=accuracies(pd.read_parquet(run.folder / 'test.parquet')),
         lists=run.finished['lists'], rows=table.round(5).to_dict('records'))


def ship(s):
    "The calibration of the repository: an average for strength and a measure for fluency, on ParaBank's ratings."
    rated('ParaBank', *SOURCES['ParaBank'], s)
    pairs = parabank(s)
    corpus, raw = Corpus.open('rated-ParaBank', s), read_ratings(s.resources / 'human/parabank_eval', SCALES)
    facts = dict(ratings='evaluation of ParaBank (Hu et al. 2019): human_score is strength, gm is fluency',
                 rows=len(raw), raters=int(raw.annotator.nunique()))
    parts = {target: calibrate_corpus(corpus, pairs, measures, SCALES, 'average', **facts)
             for target, measures in dict(strong=STRONG, fluent=FLUENT).items()}
    strong, fluent = parts.values()
    both = replace(strong, targets={t: c.targets[t] for t, c in parts.items()}, takes=strong.takes | fluent.takes,
                   figures=[r for t, c in parts.items() for r in c.figures if r['target'] == t],
                   drawings={t: c.drawings[t] for t, c in parts.items()})
    folder = save_calibration(both, NAME, replace(s, workspace=s.shipped), force=True)
    print((folder / 'README.md').read_text())
    keep('ship', PATH, figures=both.figures, takes=list(both.takes))


def main(words):
    todo = [w for w in words if w != 'keep']
    if not todo or set(todo) - {'sources', 'larger', 'references', 'ship'}: sys.exit(__doc__)
    s = settings()
    if not (s.resources / 'human/parabank_eval').is_dir(): sys.exit('ratings: not available: no human/parabank_eval')
    if 'ship' in todo: ship(s)
    if 'sources' in todo: compare(s)
    if 'larger' in todo: larger(s)
    if 'references' in todo: references(s)


if __name__ == '__main__': main(sys.argv[1:])
