"""Neighbours of a sentence among a million under several encoders, as in Figure 1 of `opusparcus`.

    python nbs/papers/detection.py distributions NAME ...
        # cosines of a sentence with a million others under some encoders; counts alone are kept in detection.json
    python nbs/papers/detection.py index
        # time and memory of vectors and searches, and the recall of the index

PARANMT_RESOURCES names the folder that holds `train`. Every step resumes where it was stopped; what is in
detection.json is not computed again. The tables of `opusparcus` have recipes: `paranmt results reproduce`."""
import json
import resource
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import atomic, settings
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.neighbours.index import build_index, nearest, nearest_by_index, neighbours
from paranmt_lab.neighbours.vectors import build_vectors

FILE = Path(__file__).with_name('detection.json')
MILLION = 'million'    # Corpus of the available sentences, with repeated ones up to a million
TARGET = 'okay , you don ’t get it , man .'  # The sentence of Table 4 and Figure 1


def sentences(s, most=1_000_000):
    "A million distinct English sentences: of the bitexts and the paraphrases."
    if 'sentences' in list_corpora(s): return
    bitext, pairs = ([pd.read_parquet(f) for f in sorted((s.resources / 'train' / kind).glob('*.parquet'))]
                     for kind in ('bitext', 'paraphrase'))
    texts = [f.reference for f in bitext]
    texts += [f[c] for f in pairs for c in ('sentence1', 'sentence2', 'reference', 'hypothesis') if c in f]
    every = pd.concat(texts).drop_duplicates().sample(frac=1, random_state=0)[:most]
    corpus = Corpus.create('sentences', s)
    for shard, start in enumerate(range(0, len(every), 100_000)):
        corpus.write_pairs(shard, pd.DataFrame(dict(reference=every[start:start + 100_000].to_numpy())))


def kept():
    "Figures so far: `distributions` and `index`, each by name."
    return json.loads(FILE.read_text()) if FILE.exists() else dict(distributions={}, index={})


def keep(part, name, facts):
    "Write down some figures with where they come from, an entry on a line."
    made = provenance()
    command = shlex.join(['python', 'nbs/papers/detection.py', *sys.argv[1:]])
    figures = kept()
    figures[part][name] = facts | dict(command=command, **{k: made[k] for k in ('date', 'commit', 'device', 'torch')})
    parts = [f'"{part}": {{\n' + ',\n'.join(f'  {json.dumps(name)}: {json.dumps(facts)}'
                                           for name, facts in rows.items()) + '\n}' for part, rows in figures.items()]
    with atomic(FILE) as part: part.write_text('{' + ',\n'.join(parts) + '}\n')


NEGATION = r"(?i)\b(?:no|not|never|nobody|nothing|none|cannot)\b|n[’']t\b"


def distributions(names, s):
    "Figure 1: how similar encoders find the target and the available sentences; counts and cosines alone are kept."
    corpus = Corpus.open(MILLION, s)
    negated_share = corpus.frame(['reference'], limit=100_000).reference.str.contains(NEGATION).mean()
    for name in names:
        if name in kept()['distributions']: continue
        encoder = open_model(name, s)
        found = neighbours(build_vectors(corpus, encoder, show=False), encoder, TARGET, 1000)
        negated = found.table.sentence.str.contains(NEGATION)
        shares = dict(nearest_10=negated[:10].mean(), nearest_1000=negated.mean(), all=negated_share)
        keep('distributions', name, dict(
            compared=found.compared, counts=found.distribution.sentences.tolist(),
            nearest=[round(float(x), 3) for x in found.table.cosine.head(10)],
            negated={k: round(float(x), 3) for k, x in shares.items()}))


def timed(call):
    "The value of a call, and its seconds of wall and processor."
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, round(time.perf_counter() - wall, 2), round(time.process_time() - cpu, 2)


def memory(): return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


def million(s):
    "The available sentences, repeated with a number up to a million."
    if MILLION in list_corpora(s): return
    texts = Corpus.open('sentences', s).frame(['reference']).reference
    corpus = Corpus.create(MILLION, s)
    for shard in range(10):
        rows = range(shard * 100_000, (shard + 1) * 100_000)
        corpus.write_pairs(shard, dict(reference=[f"{texts[k % len(texts)]} {k // len(texts) or ''}".strip()
                                                  for k in rows]))


def index(s):
    "Time and memory of vectors and searches among a million sentences, and the recall of the index."
    million(s)
    name = MILLION
    corpus, encoder = Corpus.open(name, s), open_model('paraphrase-scorer', s)
    facts = dict(memory_before=memory())
    vectors, *facts['vectors'] = timed(lambda: build_vectors(corpus, encoder, show=False))
    facts |= dict(sentences=len(vectors), dim=vectors.dim, memory_vectors=memory())
    rows = np.random.default_rng(0).choice(len(vectors), 50, replace=False)
    queries = vectors.rows(rows)
    timed(lambda: nearest(vectors.blocks(), queries[0], 11)) # the files come into memory
    true, *exact = timed(lambda: [nearest(vectors.blocks(), q, 11).rows for q in queries])
    facts |= dict(exact=[x / len(queries) for x in exact], memory_exact=memory())
    made, *facts['index'] = timed(lambda: build_index(vectors, show=False))
    sizes = {p: sum(f.stat().st_size for f in vectors.folder.glob(p)) for p in ('vectors-*.npy', 'index.faiss')}
    facts |= dict(cells=made.nlist, memory_index=memory(), megabytes={p: round(n / 1e6) for p, n in sizes.items()})
    for probes in (1, 4, 8, 16, 32, 64):
        found, *took = timed(lambda: [nearest_by_index(made, vectors, q, 11, probes).rows for q in queries])
        share = np.mean([np.isin(f, t).mean() for f, t in zip(found, true)])
        facts[f'probes {probes}'] = dict(recall=round(float(share), 4), seconds=[x / len(queries) for x in took])
    keep('index', name, facts)


if __name__ == '__main__':
    what, *names = sys.argv[1:] or ['help']
    s = settings()
    if what in ('distributions', 'index'):
        sentences(s)
        million(s)
    if what == 'distributions': distributions(names, s)
    elif what == 'index': index(s)
    else: print(__doc__)
