"""Published encoders beside ours: STS by the protocol of `paranmt`, and sentences a second of one thread.

    python nbs/papers/peers.py run [NAME ...]
        # measures the encoders (all if none is named) that are not in nbs/papers/peers.json yet
    python nbs/papers/peers.py picture
        # nbs/tutorials/images/peers.svg, for README.md
    python nbs/papers/peers.py keep
        # the figures for the page of results: paranmt_lab/evaluation/peers.csv

PARANMT_RESOURCES names the folder that holds `eval` and `train/vectors`. An encoder is named as `open_model` takes it;
one of another identity is measured again. Rates are per CPU second of one thread, so other work on the machine hardly
counts; the encoders take turns."""
import os

for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'RAYON_NUM_THREADS'): os.environ[name] = '1'
os.environ['TOKENIZERS_PARALLELISM'] = 'false'

import platform
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.evaluation.comparison import PEERS
from paranmt_lab.evaluation.graded import read_graded
from paranmt_lab.evaluation.sts import sts_sets
from paranmt_lab.ground.models import identity_of, open_model
from paranmt_lab.ground.settings import atomic, read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance

FILE = Path(__file__).with_name('peers.json')
PICTURE = Path(__file__).parents[1] / 'tutorials/images/peers.svg'
ENCODERS = {  # Name to what it is called, and what it is
    'vectors:train/vectors/glove-6b-100d-60k.txt.gz': ('GloVe average', 'static, 100 dimensions, not trained on pairs'),
    'static:wordllama': ('WordLlama', "static, 256 dimensions, from a language model's embeddings"),
    'paraphrase-scorer': ('paraphrase-scorer (ours)', 'static, 400 dimensions, 12 MB'),
    'paraphrase-scorer-2': ('paraphrase-scorer-2 (ours)', 'static, 464 dimensions, 12 MB, learnt from all-MiniLM-L6'),
    'onnx:paraphrase-MiniLM-L3-v2': ('paraphrase-MiniLM-L3', 'transformer, 3 layers, 384 dimensions'),
    'st:all-MiniLM-L6-v2': ('all-MiniLM-L6', 'transformer, 6 layers, 384 dimensions'),
    'st:all-mpnet-base-v2': ('all-mpnet-base', 'transformer, 12 layers, 768 dimensions'),
}
MEANS = {'STS 2012': ['STS12'], 'STS 2013 without SMT': ['STS13'], 'STS 2014': ['STS14'], 'STS 2015': ['STS15'],
         'mean of 2012, 2014, 2015': ['STS12', 'STS14', 'STS15'], 'STS 2017': ['STS17'], 'STS-B dev': ['STS-B']}
SAMPLES, SEED, SENTENCES, TURNS = 1000, 0, 400, 3


def data_sets(s):
    "The sets that are there: task, data set, pairs."
    sets = sts_sets(s.resources, ['STS12', 'STS13', 'STS14', 'STS15', 'STS17', 'STS-B'])
    sets = sets[sets.available & ((sets.task != 'STS-B') | (sets.dataset == 'dev'))]
    return [(d.task, d.dataset, read_graded(d.path)) for d in sets.itertuples()]


def correlations(x, y, index):
    "Pearson's r of the pairs, and of samples of them, [1 + b]."
    x, y = (np.vstack([side, *(side[i] for i in index)]) for side in (np.asarray(x, float), np.asarray(y, float)))
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    return (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))


def resamples(encoder, sets):
    "Name of a figure to its value and those of a bootstrap, which draws pairs within each set, the same at each call."
    rng, found = np.random.default_rng(SEED), {}
    for task, dataset, pairs in sets:
        similar = encoder.similarity_pairwise(pairs.sentence1.tolist(), pairs.sentence2.tolist())
        index = rng.integers(0, len(pairs), (SAMPLES, len(pairs)))
        found.setdefault(task, {})[dataset] = correlations(pairs.score, similar, index)
    years = {task: np.mean(list(of.values()), axis=0) for task, of in found.items()}
    return {name: np.mean([years[task] for task in tasks], axis=0) for name, tasks in MEANS.items()
            if set(tasks) <= set(years)}


def quality(encoder, sets, other=None):
    "Means over a year's sets with the percentiles of a bootstrap; with another encoder, how far they are above its."
    rows, less = [], resamples(other, sets) if other else {}
    for name, values in resamples(encoder, sets).items():
        r = values - less.get(name, 0)
        low, high = np.percentile(r[1:], [2.5, 97.5])
        rows.append(dict(figure=name, value=float(r[0]), low=float(low), high=float(high)))
    return rows


def rates(encoders, sentences):
    "Sentences a CPU second of each encoder, turn by turn."
    found = {name: [] for name in encoders}
    for turn in range(TURNS + 1):
        for name, encoder in encoders.items():
            start = time.process_time()
            encoder.encode(sentences)
            if turn: found[name].append(len(sentences) / (time.process_time() - start))
    return found


def run(names):
    "Measure what is not in the file."
    s = settings()
    kept = read_json(FILE) if FILE.exists() else {}
    sets = data_sets(s)
    for name in names:
        if kept.get(name, {}).get('identity') == identity_of(name, s): continue
        encoder = open_model(name, s, 'Encoder')
        kept[name] = dict(identity=encoder.identity, dim=encoder.dim, figures=quality(encoder, sets),
                          pairs=sum(len(pairs) for *_, pairs in sets), samples=SAMPLES, seed=SEED) | made()
        write_json(FILE, kept)
    if all('rates' in kept[name] for name in names): return
    texts = np.unique(np.concatenate([pairs[c] for *_, pairs in sets for c in ('sentence1', 'sentence2')]))
    sentences = np.random.default_rng(SEED).choice(texts, SENTENCES, replace=False).tolist()
    present = [name for name in ENCODERS if name in kept]  # those that had a rate too: rates of one call are compared
    for name, found in rates({name: open_model(name, s, 'Encoder') for name in present}, sentences).items():
        kept[name] |= dict(rates=[round(r, 1) for r in found], sentences=len(sentences), rated=made())
    write_json(FILE, kept)


def made():
    "When, by which commit, on which machine, by which command."
    facts = provenance()
    return dict(date=facts['date'], commit=facts['commit'], machine=processor(),
                command=shlex.join(['python', *sys.argv]))


def processor():
    "Name of the processor."
    path = Path('/proc/cpuinfo')
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(': ')[2] for line in lines if line.startswith('model name')), platform.processor())


def frame():
    "A row for each encoder and figure."
    kept = read_json(FILE) if FILE.exists() else {}
    return pd.DataFrame([dict(name=name, system=ENCODERS[name][0], about=ENCODERS[name][1], dim=facts['dim'],
                              rate=float(np.median(facts['rates'])), slowest=min(facts['rates']),
                              fastest=max(facts['rates']), source='ours' if 'ours' in ENCODERS[name][0] else 'others',
                              **row)
                         for name, facts in kept.items() if name in ENCODERS and 'rates' in facts
                         for row in facts['figures']])


def chart():
    "Quality against speed."
    from paranmt_lab.charts.evaluation import quality_chart
    rows = frame().query("figure == 'mean of 2012, 2014, 2015'")
    return quality_chart(rows, "Pearson's r × 100, mean of STS 2012, 2014, 2015")


def picture():
    "Write the picture of README.md."
    from paranmt_lab.charts.base import use_theme
    use_theme()
    chart().save(PICTURE)


def keep():
    "Write the figures where `peer_figures` reads them."
    kept = read_json(FILE)
    rows = frame().drop(columns='name').round({c: 4 for c in ('value', 'low', 'high')})
    origin = [kept[name] for name in frame().name]
    rows = rows.assign(date=[facts['date'] for facts in origin], commit=[facts['commit'] for facts in origin])
    with atomic(PEERS) as part: rows.to_csv(part, index=False)


if __name__ == '__main__':
    action, *names = sys.argv[1:] or ['']
    if action == 'run': run(names or list(ENCODERS))
    elif action == 'keep': keep()
    elif action == 'picture': picture()
    else: print(__doc__)
