"""Selections of 10 million pairs: seconds and peak memory of each kind of step.

    PARANMT_RESOURCES=... python tests/benchmarks/selection.py FOLDER [MILLIONS]

FOLDER is a workspace for the corpus, 3 GB for 10 million pairs; it is made once. The texts are those of wmt21-23, with
the number of the copy behind half of them, so that half of the pairs are repeated."""
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kept import needs, peak
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings
from paranmt_lab.selection import Range, Selection, select, selected_ids

SHARD_ROWS = 200_000
CHOICES = {
    'a closed range': dict(ranges=[Range('translation_length', 10, 20, closed=True)]),
    'a ratio, lengths, sides differ': dict(min_ratio=.5, min_length=3, max_length=30, exclude_equal=True),
    'each pair once': dict(deduplicate=['pair']),
    'each translation once, case and punctuation aside': dict(deduplicate=['translation'], exact=False),
    'one per source, first': dict(one_per_source='first'),
    'one per source, random': dict(one_per_source='random'),
    'one per source, highest overlap': dict(one_per_source='highest:trigram_overlap'),
    '1,000,000 of each domain': dict(per_domain=1_000_000),
    'all of it, and a sample of 1,000,000': dict(
        ranges=[Range('translation_length', 5, 30, closed=True)], min_ratio=.5, exclude_equal=True,
        deduplicate=['pair'], one_per_source='random', per_domain=500_000, n=1_000_000),
}


def make(s, millions):
    "The corpus, twelve translations to a source."
    corpus, rng = Corpus.create(f'million-{millions}', s), np.random.default_rng(0)
    found = pd.read_parquet(s.resources / 'train/paraphrase/wmt21-23.parquet').sample(frac=1, random_state=0)
    columns = dict(source='source', reference='reference', translation='hypothesis', corpus='source_lang')
    found = pa.table({name: pa.array(found[column], pa.string()) for name, column in columns.items()})
    for shard in range(millions * 1_000_000 // SHARD_ROWS):
        if shard in corpus.sizes and 'reference_length' in corpus.measures(): continue
        ids = np.arange(SHARD_ROWS) + shard * SHARD_ROWS
        some = found.take(pa.array(ids % len(found)))
        copy = pa.array(np.where(ids % 2, [f' {i // len(found)}' for i in ids], ''))
        texts = pc.binary_join_element_wise(some['translation'], copy, '')
        some = some.set_column(2, 'translation', texts).append_column('segment', pa.array(ids // 12))
        corpus.write_pairs(shard, some.append_column('rank', pa.array(ids % 12 + 1, pa.int16())))
        for side in ('reference', 'translation'):
            corpus.write_measure(f'{side}_length', shard, rng.poisson(20, len(ids)))
        corpus.write_measure('trigram_overlap', shard, rng.random(len(ids)))
    corpus.build_index()
    return corpus


def measure(folder, millions, what):
    "One selection, in a process of its own: seconds to make it, of work and by the clock, then again; peak memory."
    corpus = Corpus.open(f'million-{millions}', replace(settings(), workspace=Path(folder)))
    corpus.connect()
    start, worked = time.perf_counter(), time.process_time()
    record = select(corpus, Selection('speed', **CHOICES[what]), force=True)
    middle, work = time.perf_counter(), time.process_time() - worked
    selected_ids(corpus, 'speed')
    print(json.dumps(dict(step=what, pairs=record['pairs'], seconds=round(middle - start, 1), cpu=round(work, 1),
                    again=round(time.perf_counter() - middle, 1), mib=round(peak()))))


if __name__ == '__main__':
    needs(words='FOLDER', resource='train/paraphrase/wmt21-23.parquet')
    folder, *words = sys.argv[1:]
    millions = next((int(w) for w in words if w.isdecimal()), 10)
    if 'step' in words: measure(folder, millions, words[-1])
    else:
        make(replace(settings(), workspace=Path(folder)), millions)
        for what in CHOICES:
            done = subprocess.run([sys.executable, __file__, folder, str(millions), 'step', what],
                                  capture_output=True, text=True)
            if done.returncode: sys.exit(done.stderr)
            print(done.stdout.strip(), flush=True)
