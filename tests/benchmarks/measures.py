"""Lexical measures of real pairs: ours beside plain Python and Polars, and a scoring of ten million pairs.

    python tests/benchmarks/measures.py [repetitions] [pairs] [keep]    # 3, 1000000; Polars is in the extra `bench`
    python tests/benchmarks/measures.py corpus [pairs] [folder] [keep]  # 10000000, in a temporary folder of 3 GB

Pairs are those of WMT 2021 to 2023 among the resources, reference against hypothesis, repeated as often as needed. All
programs begin with the same Arrow columns in memory, have one thread, and work in turn. Plain Python is the project's
own `tokenize` and `overlap` over lists of strings, on a twentieth of the pairs. Polars cuts by a pattern without the
rule for contractions (Rust's patterns cannot look around) and counts sets of n-grams, so it does a little less; that it
does this much is checked on a thousand pairs. `corpus` writes a corpus of shards of 100,000 pairs,
scores it in a process of its own by `score`, file to file, and tells its peak memory beside that of a tenth of it."""
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ |= dict.fromkeys(('POLARS_MAX_THREADS', 'OMP_NUM_THREADS'), '1')

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kept import keep, needs, peak
from paranmt_lab.ground.settings import settings

SIZE, SHARD, PAPER = 20_000, 100_000, 51_409_585  # rows of a batch, of a shard; pairs of ParaNMT-50M
LENGTHS = 'reference_length', 'translation_length'
OVERLAPS = 'unigram_overlap', 'bigram_overlap', 'trigram_overlap'
CHARACTERS = 'identity', 'character_trigram_overlap'


def pairs(n, columns=('reference', 'hypothesis')):
    "So many real pairs, repeated in order."
    file = settings().resources / 'train/paraphrase/wmt21-23.parquet'
    table = pq.read_table(file, columns=list(columns)).rename_columns({'hypothesis': 'translation'})
    return pa.concat_tables([table] * (n // len(table) + 1)).slice(0, n).combine_chunks()


def ours(table, names):
    from paranmt_lab.filters.scoring import score_batch
    parts = [score_batch(batch, names) for batch in table.to_batches(SIZE)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def plainly(table, orders):
    from paranmt_lab.filters.measures import overlap
    from paranmt_lab.tokens.text import tokenize
    found = {n: np.empty(len(table), np.float32) for n in orders}
    lengths = np.empty((len(table), 2), np.float32)
    for i, (r, t) in enumerate(zip(*(table[side].to_pylist() for side in ('reference', 'translation')))):
        r, t = tokenize(r), tokenize(t)
        lengths[i] = len(r), len(t)
        for n in orders: found[n][i] = overlap(r, t, n)
    return found


def by_polars(table, orders):
    import polars as pl
    def grams(tokens, n):
        if n == 1: return tokens
        element = pl.element()
        joined = pl.concat_str([element, *(element.shift(-k) for k in range(1, n))], separator=' ')
        return tokens.list.eval(joined.drop_nulls())
    frame = pl.from_arrow(table).lazy().select(
        **{side: pl.col(side).str.to_lowercase().str.extract_all(r'\w+|[^\w\s]') for side in table.column_names})
    r, t = pl.col('reference'), pl.col('translation')
    shared = {f'{n}': grams(r, n).list.set_intersection(grams(t, n)).list.len()
              / pl.min_horizontal(r.list.len(), t.list.len()).cast(pl.Int64).sub(n - 1).clip(1) for n in orders}
    return frame.select(**shared, r=r.list.len(), t=t.list.len()).collect(engine='in-memory')


def check_polars(table):
    "Sets of the same pattern's n-grams in plain Python."
    cut = lambda text: re.findall(r'\w+|[^\w\s]', text.lower())
    rows = [[cut(r), cut(t)] for r, t in zip(*(table[side].to_pylist() for side in table.column_names))]
    grams = lambda tokens, n: {*zip(*(tokens[k:] for k in range(n)))}
    for n in (1, 3):
        wanted = [len(grams(r, n) & grams(t, n)) / max(min(len(r), len(t)) - n + 1, 1) for r, t in rows]
        np.testing.assert_allclose(by_polars(table, [n])[f'{n}'].to_numpy(), wanted, atol=.02)


def rates(call, n):
    "Pairs a second, and a CPU second."
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return [n / (time.perf_counter() - wall), n / (time.process_time() - cpu)]


def side_by_side(repetitions=3, n=1_000_000):
    from paranmt_lab.filters.table import MEASURES
    table, few = pairs(n), pairs(max(n // 20, 1000))
    lexical = [m.name for m in MEASURES.values() if m.takes and {(a.kind, a.name) for a in m.takes} <= {
        (kind, side) for kind in ('tokens', 'characters') for side in ('reference', 'translation')}]
    tasks = {
        'trigram overlap': (['trigram_overlap'], [3]), 'unigram overlap': (['unigram_overlap'], [1]),
        'lengths and overlaps': ([*LENGTHS, *OVERLAPS], [1, 2, 3]), 'sentence BLEU': (['sentence_bleu'], []),
        'near-identity': (['near_identity'], []), 'characters': (list(CHARACTERS), []),
        f'all {len(lexical)} of two sides': (lexical, [])}
    check_polars(few.slice(0, 1000))
    ours(few, lexical), plainly(few.slice(0, 100), [1])   # compiled and warm
    found = {}
    for _ in range(repetitions):
        for task, (names, orders) in tasks.items():
            programs = {'ours': (table, lambda t: ours(t, names))}
            if orders: programs |= {'Polars': (table, lambda t: by_polars(t, orders)),
                                    'plain Python': (few, lambda t: plainly(t, orders))}
            for program, (data, call) in programs.items():
                found.setdefault((task, program), []).append(rates(lambda: call(data), len(data)))
    rows = [dict(task=task, program=program, wall=[r[0] for r in runs], cpu=[r[1] for r in runs])
            for (task, program), runs in found.items()]
    tokens = np.mean(sum(ours(few, LENGTHS).values()))
    print(f'{n:,} pairs of {tokens:.1f} tokens, {repetitions} repetitions, peak {peak():,.0f} MiB\n')
    print(pd.DataFrame([dict(task=r['task'], program=r['program'], **{
        'pairs/s': f"{np.median(r['wall']):,.0f}", 'a CPU second': f"{np.median(r['cpu']):,.0f}",
        'least': f"{min(r['cpu']):,.0f}", 'most': f"{max(r['cpu']):,.0f}"}) for r in rows]).to_string(index=False))
    keep('measures side-by-side', pairs=n, tokens=float(tokens), rows=rows)


SCORE = """
import sys, time; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kept import peak
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.scoring import score, score_batch
corpus = Corpus(Path(sys.argv[2]))
batch = next(corpus.batches(['source', 'reference', 'translation', 'translation_score'], 0, 100))
score_batch(batch, sys.argv[3:])   # kernels loaded
before, start, cpu = peak(), time.perf_counter(), time.process_time()
score(corpus, sys.argv[3:], show=False)
print(corpus.rows, time.perf_counter() - start, time.process_time() - cpu, before, peak())
"""


def write(folder, n):
    from paranmt_lab.corpora.query import Corpus
    corpus = Corpus.create(f'pairs-{n}', replace(settings(), workspace=Path(folder)))
    table = pairs(n, ('source', 'reference', 'hypothesis', 'system', 'source_lang'))
    table = table.append_column('translation_score', pa.array(-np.random.default_rng(0).gamma(2, .2, n), pa.float32()))
    table = table.append_column('segment', pa.array(np.arange(n)))   # given, so no source need be hashed
    for shard in range(-(-n // SHARD)): corpus.write_pairs(shard, table.slice(shard * SHARD, SHARD))
    return corpus.folder


def scored(n=10_000_000, folder=None):
    from paranmt_lab.filters.table import MEASURES, model_kind
    lexical = [m.name for m in MEASURES.values() if m.function and not model_kind(m.name)]
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for pairs_, names in (n // 10, lexical), (n, lexical):
            corpus = Path(place) / 'corpora' / f'pairs-{pairs_}'
            if not corpus.exists(): write(place, pairs_)
            for done in [*corpus.glob('measures/*/*'), *corpus.glob('manifests/*')]: done.unlink()
            words = [sys.executable, '-c', SCORE, os.path.dirname(os.path.abspath(__file__)), corpus, *names]
            said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1].split()
            _, seconds, cpu, before, most = map(float, said)
            rows.append(dict(pairs=pairs_, measures=len(names), seconds=seconds, cpu=cpu, before=before, peak=most,
                             paper_hours=PAPER / pairs_ * cpu / 3600))
            print(pd.DataFrame(rows[-1:]).round(2).to_string(index=False), flush=True)
    keep('measures corpus', rows=rows)


if __name__ == '__main__':
    words = [a for a in sys.argv[1:] if a != 'keep']
    needs(*([] if words[:1] == ['corpus'] else ['polars']), resource='train/paraphrase/wmt21-23.parquet')
    if words[:1] == ['corpus']: scored(*(int(a) if i == 0 else a for i, a in enumerate(words[1:])))
    else: side_by_side(*map(int, words))
