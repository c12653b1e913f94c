"""What nbs/papers/lexicon.ipynb shows: lexicons of two corpora, on SimLex-999 and as lists of paraphrases.

    PARANMT_WORKSPACE=FOLDER python nbs/papers/lexicon.py build
        # scores and counts wmt21-23 and multi30k-captions: some five minutes of one core
    PARANMT_WORKSPACE=FOLDER python nbs/papers/lexicon.py figures
        # SimLex-999 and ten words, into lexicon.json and paranmt_lab/evaluation/measured/: seconds

PARANMT_RESOURCES names the folder that holds `train/` and `eval/`. What is built already is not built again. Memory and
time at ten million pairs are those of tests/benchmarks/lexicon.py, which prints what lexicon.json has as `scale`."""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation.simlex import ALL_PAIRS, SEEN_PAIRS, SIMLEX, UNSEEN_0, read_simlex, spearman
from paranmt_lab.evaluation.tables import keep_measured
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.lexicon.building import build_lexicon
from paranmt_lab.lexicon.model import Lexicon, cross_pmi, mean_pmi, pair_scores, paraphrases, within_pmi
from paranmt_lab.lexicon.shards import Conditions

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import processor

KEPT, SCORER = Path(__file__).with_suffix('.json'), 'paraphrase-scorer'
CORPORA = {'wmt21-23': ['wmt21-23'], 'captions': ['multi30k-captions']}
WORDS = 'laughed respectful doctor car big happy quickly buy street children'.split()  # the first two: paranmt-arxiv.12
SMOOTHINGS = (.01, .1, .5, 1., 2.)
SHARD = 100_000


def pairs_of(name, s):
    "References and translations of a file, and what makes a segment of them."
    path = s.resources / f'train/paraphrase/{name}.parquet'
    if not path.exists(): sys.exit(f'not available: {path} is not here; PARANMT_RESOURCES names the folder of train/')
    frame = pd.read_parquet(path)
    names = dict(hypothesis='translation', sentence1='reference', sentence2='translation')
    frame = frame.rename(columns=names)[['reference', 'translation']]
    return frame.dropna().assign(corpus=name)


def corpus_of(name, s):
    "The corpus, scored."
    corpus = Corpus.create(name, s)
    pairs = pd.concat([pairs_of(file, s) for file in CORPORA[name]], ignore_index=True)
    for shard, at in enumerate(range(0, len(pairs), SHARD)):
        if shard not in corpus.shard_numbers: corpus.write_pairs(shard, pairs[at:at + SHARD])
    score(corpus, ['paraphrase_score'], [SCORER], show=False)
    return Corpus(corpus.folder)


def build(s):
    "Lexicons of all corpora, with every pair of words that meets at all."
    for name in CORPORA:
        facts = build_lexicon(corpus_of(name, s), name, s, Conditions(least=1), show=False)
        print(name, facts['counts'], facts['words'], facts['pairs'], flush=True)


def scores_of(lexicon, simlex, smoothing=1.):
    "Both scores of the pairs of SimLex-999, for a smoothing."
    found = pair_scores(lexicon, simlex.word1, simlex.word2)
    sides = ['references', 'translations']
    numbers = [simlex[c].map(lexicon.index).fillna(0).astype(int).to_numpy() for c in ('word1', 'word2')]
    counts = {side: [lexicon.words[side].to_numpy()[n] for n in numbers] for side in sides}
    within = mean_pmi(*(within_pmi(found[side].to_numpy(), *counts[side], lexicon.units, smoothing) for side in sides))
    total = [sum(c) for c in zip(*counts.values())]
    cross = cross_pmi(found['cross'].to_numpy(), *total, lexicon.units)
    return dict(cross=cross, adjusted=np.where(np.isnan(cross), np.nan, cross - within)), found['cross'].to_numpy()


def simlex_rows(name, lexicon, simlex):
    "Figures of a lexicon on SimLex-999 by protocol, and by least meetings."
    grades, rows = simlex.SimLex999.to_numpy(), []
    found, met = scores_of(lexicon, simlex)
    for by, scores in found.items():
        for least in (1, 2, 10):
            seen = met >= least
            lowest = scores[seen].min() - 1
            for dataset, protocol, g, x in (
                    (ALL_PAIRS, UNSEEN_0, grades, np.where(seen, scores, 0)),
                    (ALL_PAIRS, 'unseen pairs below all others', grades, np.where(seen, scores, lowest)),
                    (SEEN_PAIRS, 'pairs seen', grades[seen], scores[seen])):
                rows.append(dict(corpus=name, by=by, least=least, dataset=dataset, protocol=protocol,
                                 coverage=float(seen.mean())) | spearman(g, x))
    return rows


def by_part(name, lexicon, simlex):
    "Figures by part of speech, over the pairs seen."
    rows = []
    for by, scores in scores_of(lexicon, simlex)[0].items():
        for part in 'NVA':
            of = (simlex.POS == part).to_numpy() & ~np.isnan(scores)
            rows.append(dict(corpus=name, by=by, part=part) | spearman(simlex.SimLex999[of].to_numpy(), scores[of]))
    return rows


def by_smoothing(name, lexicon, simlex):
    "How much the smoothing, which we had to choose, decides."
    rows = []
    for smoothing in SMOOTHINGS:
        scores = scores_of(lexicon, simlex, smoothing)[0]['adjusted']
        seen = ~np.isnan(scores)
        grades = simlex.SimLex999.to_numpy()
        rows.append(dict(corpus=name, smoothing=smoothing, seen=spearman(grades[seen], scores[seen], 0)['value'],
                         all=spearman(grades, np.where(seen, scores, 0), 0)['value']))
    return rows


def beside(simlex):
    "The shipped scorer on the same pairs, as words without a sentence."
    scores = open_model(SCORER).word_similarity(simlex.word1.tolist(), simlex.word2.tolist())
    seen = ~np.isnan(scores)
    return dict(system=SCORER, coverage=float(seen.mean())) | spearman(simlex.SimLex999[seen].to_numpy(), scores[seen])


def ten_words(lexicon):
    "Ten paraphrases of each word, by both scores; words and figures only."
    columns = ['word', 'adjusted', 'pmi_cross', 'cross']
    shown = lambda word, by: paraphrases(lexicon, word, 10, by)[columns].round(2).to_dict('records')
    return {word: {by: shown(word, by) for by in ('adjusted', 'cross')} for word in WORDS if word in lexicon.index}


def keep(rows, lexicons):
    "The figures of the two tables, for `paranmt results table`."
    names = dict(cross='cross-sentence PMI', adjusted='adjusted PMI')
    config = (f'pairs from 0.35 by {SCORER} and up to 30 tokens; joint counts within a side plus one; '
              'nothing was chosen on a set')
    origin = dict(config=config, command='python nbs/papers/lexicon.py figures', machine=processor(), seeds='0')
    main = [r for r in rows if r['least'] == 1 and r['protocol'] != 'pairs seen']
    seen = [r for r in rows if r['least'] == 1 and r['protocol'] == 'pairs seen']
    task = dict(task='SimLex-999')
    facts = lambda r, metric, protocol: task | dict(dataset='simlex999', training=r['corpus'], metric=metric,
                                                    system=names[r['by']], protocol=protocol)
    table = [facts(r, 'spearman', r['protocol'])
             | {k: r[k] for k in ('value', 'low', 'high', 'n')} for r in main + seen]
    table += [facts(r, 'coverage', 'pairs that meet at least once') | dict(value=r['coverage'], n=999) for r in seen]
    keep_measured('paranmt-arxiv.13', pd.DataFrame(table), **origin)
    ranks = []
    for name, lexicon in lexicons.items():
        for word in WORDS[:2]:
            found = paraphrases(lexicon, word, 20).word if word in lexicon.index else []
            ranks += [dict(task=word, dataset=name, counterpart='PARANMT-50M', metric='rank', system=other, value=i,
                           protocol='by adjusted PMI, from 10 meetings') for i, other in enumerate(found, 1)]
    keep_measured('paranmt-arxiv.12', pd.DataFrame(ranks), **origin)


def figures(s):
    "All figures from the lexicons that are there."
    simlex = read_simlex(s.resources / SIMLEX)
    lexicons = {name: Lexicon(s.models / name) for name in CORPORA}
    rows = [row for name, lexicon in lexicons.items() for row in simlex_rows(name, lexicon, simlex)]
    facts = {name: dict(counts=x.facts['counts'], words=x.facts['words'], pairs=x.facts['pairs'],
                        from_10=int(x.query('SELECT count(*) AS n FROM pairs WHERE "cross" >= 10').n[0]))
             for name, x in lexicons.items()}
    kept = read_json(KEPT) if KEPT.exists() else {}
    write_json(KEPT, kept | dict(
        made=provenance() | dict(processor=processor(), command='python nbs/papers/lexicon.py figures'),
        corpora=facts, simlex=rows,
        parts=[row for name, x in lexicons.items() for row in by_part(name, x, simlex)],
        smoothing=[row for name, x in lexicons.items() for row in by_smoothing(name, x, simlex)],
        scorer=beside(simlex), words={name: ten_words(x) for name, x in lexicons.items()}))
    keep(rows, lexicons)
    print(pd.DataFrame(rows).drop(columns=['status']).round(4).to_string(index=False))


if __name__ == '__main__':
    if sys.argv[1:] not in (['build'], ['figures']): sys.exit(__doc__)
    dict(build=build, figures=figures)[sys.argv[1]](settings())
