"""Filters calibrated on ParaBank's ratings: how well measures predict people, and the calibration that ships.

    python nbs/papers/calibration.py compare [keep]
        # AUC of every measure and of all together, for strength and fluency, three seeds of the folds
    python nbs/papers/calibration.py ship [keep]
        # data/models/parabank, fitted to all rated pairs: takes lexical measures and the shipped scorer
    python nbs/papers/calibration.py fits [keep]
        # logistic and ordinal fits of the same measures, and what the word alignment adds, three seeds of the folds
    python nbs/papers/calibration.py compare ship fits keep
        # all: the one command after the table of measures has changed

PARANMT_RESOURCES names the folder that holds `human/parabank_eval`. The corpus is made and scored in a workspace of its
own. `keep` writes the figures to nbs/papers/calibration.json. No sentence of the data is written anywhere else."""
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.calibration.fits import Choice, fit_curves
from paranmt_lab.calibration.fitting import calibrate_corpus, compare_filters, usable_measures
from paranmt_lab.calibration.model import save_calibration
from paranmt_lab.calibration.ratings import TARGETS, THIRDS, Scales, labelled_pairs, read_ratings, with_measures
from paranmt_lab.calibration.validation import auc_table, out_of_fold
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.settings import settings

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import ROOT, keep

PATH = ROOT / 'nbs/papers/calibration.json'
NAME, SCORER = 'parabank', 'paraphrase-scorer'
SCALES = Scales(strength=THIRDS)  # of `human_score`, 0 to 100; `gm` 0, 1, 2 are the marks 1, 2, 3
SEEDS = 0, 1, 2
FEW = 'paraphrase_score@paraphrase-scorer', 'unigram_overlap', 'reference_length', 'translation_length'


def rated_corpus(s):
    "Rated pairs of ParaBank, and a corpus of them with every measure that needs only both sides."
    place = s.resources / 'human/parabank_eval'
    if not place.is_dir(): sys.exit(f'ratings: not available: no folder {place}')
    pairs = labelled_pairs(read_ratings(place, SCALES), SCALES)
    corpus = Corpus.create('rated', s)
    corpus.write_pairs(0, pairs[['reference', 'translation']])
    score(corpus, (), [SCORER], show=False)
    return corpus, pairs


def measures_there(corpus, pairs):
    "Measures that the rated pairs have: not those that need a source sentence or the engine."
    found = with_measures(pairs, corpus, usable_measures(corpus))
    return [c for c in usable_measures(corpus) if found[c].notna().mean() > .5], found


def compare(corpus, pairs):
    "AUC of each measure and of combinations, and differences, for each seed of the folds."
    columns, found = measures_there(corpus, pairs)
    together = {'all together': columns, 'few together': [c for c in FEW if c in columns]}
    tables = []
    for seed in SEEDS:
        table = compare_filters(found, columns, combinations=together, seed=seed).assign(seed=seed)
        print(table.round(4).to_string(index=False), flush=True)
        tables.append(table)
    rows = pd.concat(tables).round(5).to_dict('records')
    keep('compare', PATH, pairs=len(found), references=int(found.group.nunique()), measures=columns,
         scales=asdict(SCALES), few=list(FEW), rows=rows)


def fits(corpus, pairs):
    "AUC of a logistic and of an ordinal fit with the default choice, and of the logistic one without the alignment."
    columns, found = measures_there(corpus, pairs)
    found = found[np.isfinite(found[columns].astype(float)).all(axis=1)]
    others, groups = [c for c in columns if not c.startswith('word_alignment')], pd.factorize(found.group)[0]
    tables = []
    for seed in SEEDS:
        for target, scale in TARGETS.items():
            labels, grades = found[target].to_numpy(float), found[scale].to_numpy(float)
            def predicted(some, answers, kind):
                fit = lambda v, y, g: fit_curves(v, y, Choice(), kind)
                return out_of_fold(found[some].astype(float), answers, groups, fit, seed=seed)
            scores = pd.DataFrame({'logistic': predicted(columns, labels, 'logistic'),
                                   'ordinal': predicted(columns, grades, 'ordinal'),
                                   'without word alignment': predicted(others, labels, 'logistic')})
            table = auc_table(scores, labels, groups, 'logistic', seed=seed).assign(target=target, seed=seed)
            print(table.round(4).to_string(index=False), flush=True)
            tables.append(table)
    keep('fits', PATH, pairs=len(found), measures=columns, rows=pd.concat(tables).round(5).to_dict('records'))


def ship(corpus, pairs, s):
    "The calibration of the repository, of the measures that every rated pair has."
    measures = [c for c in measures_there(corpus, pairs)[0] if not corpus.summary(c)['no_value']]
    rows = read_ratings(s.resources / 'human/parabank_eval', SCALES)
    facts = dict(ratings='evaluation of ParaBank (Hu et al. 2019): human_score is strength, gm is fluency',
                 rows=len(rows), raters=int(rows.annotator.nunique()))
    calibration = calibrate_corpus(corpus, pairs, measures, SCALES, **facts)
    folder = save_calibration(calibration, NAME, replace(s, workspace=s.shipped), force=True)
    print((folder / 'README.md').read_text())
    keep('ship', PATH, figures=calibration.figures, takes=list(calibration.takes))


def main(words):
    todo = [w for w in words if w != 'keep']
    if not todo or set(todo) - {'compare', 'ship', 'fits'}: sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        os.environ['PARANMT_WORKSPACE'] = folder
        s = settings()
        corpus, pairs = rated_corpus(s)
        if 'ship' in todo: ship(corpus, pairs, s)
        if 'fits' in todo: fits(corpus, pairs)
        if 'compare' in todo: compare(corpus, pairs)


if __name__ == '__main__': main(sys.argv[1:])
