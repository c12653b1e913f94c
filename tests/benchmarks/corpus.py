"""Time and memory of the questions a corpus is asked, on synthetic pairs.

    python tests/benchmarks/corpus.py [rows] [folder]      # 2,000,000 rows in a temporary folder unless told

Prints one table: seconds with the index (first and second time) and on the Parquet files alone, and the peak memory so
far."""
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from kept import peak
from paranmt_lab.corpora.pairs import shuffled
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings

SHARD_ROWS, BEAM = 100_000, 12
WORDS = np.array([f'{a}{b}{c}' for a in 'bdfgklmnprst' for b in ('a', 'e', 'i', 'o', 'u', 'ou', 'ai')
                  for c in ('', 'n', 'ster', 'king')])


def sentences(n, rng):
    "Sentences of 3 to 20 words, frequent words frequent."
    lengths = rng.integers(3, 21, n)
    words = WORDS[np.minimum(rng.zipf(1.3, lengths.sum()) - 1, len(WORDS) - 1)]
    return [' '.join(w) for w in np.split(words, np.cumsum(lengths)[:-1])]


def make(corpus, rows):
    "A corpus of beams of twelve, with two overlap-like measures and a paraphrase score shaped as in `paranmt.3`."
    for shard in range(-(-rows // SHARD_ROWS)):
        rng, n = np.random.default_rng(shard), min(SHARD_ROWS, rows - shard * SHARD_ROWS)
        sources, references = (sentences(-(-n // BEAM), rng) for _ in range(2))
        beam = np.arange(n) // BEAM
        corpus.write_pairs(shard, dict(
            segment=shuffled(beam + shard * SHARD_ROWS).view(np.int64),
            corpus=pa.array(['talk'] * n), source_lang=['cs'] * n, source=[sources[i] for i in beam],
            reference=[references[i] for i in beam], translation=sentences(n, rng),
            system=['demo'] * n, rank=np.arange(n) % BEAM,
            log_probability=-rng.gamma(4, 2, n), translation_score=-rng.gamma(2, .4, n)))
        corpus.write_measure('trigram_overlap', shard, np.where(rng.random(n) < .4, 0, rng.beta(1, 2, n)))
        corpus.write_measure('unigram_overlap', shard, rng.beta(2, 2, n))
        corpus.write_measure('paraphrase_score@demo', shard, rng.beta(3, 1.6, n) * 1.1 - .1)


def usage(folder): return sum(p.stat().st_size for p in folder.rglob('*') if p.is_file()) / 2**20


def timed(call):
    start = time.perf_counter(); call()
    return time.perf_counter() - start


QUESTIONS = {
    'count in a score range': lambda c: c.count('paraphrase_score@demo', 0.6, 0.8),
    'count by two measures': lambda c: c.count('paraphrase_score@demo', 0.6, 0.8, where='trigram_overlap < 0.2'),
    'histogram of 40 bins': lambda c: c.histogram('trigram_overlap', 40, (0, 1)),
    'exact sample of 100 in a range, with texts': lambda c: c.sample(100, 'paraphrase_score@demo', 0.6, 0.8),
    'ids of an exact sample of 100,000': lambda c: c.sample_ids(100_000, 'paraphrase_score@demo', 0.4, 1.0),
    'the 100 highest, with texts': lambda c: c.frame(order='"paraphrase_score@demo" DESC', limit=100),
    'a word searched in all translations': lambda c: c.count(where="translation LIKE '%bousterking%'"),
}


def main(rows=2_000_000, folder=None):
    workspace = Path(folder or tempfile.mkdtemp())
    corpus = Corpus.create('synthetic', replace(settings(), workspace=workspace))
    print(f'{rows:,} pairs written in {timed(lambda: make(corpus, int(rows))):.1f} s, '
          f'{usage(corpus.folder):.0f} MB, peak {peak():.0f} MB')
    fresh = lambda: Corpus(corpus.folder)
    print(f'opened, all files checked: {timed(lambda: fresh().measures()):.3f} s; '
          f'every byte read again: {timed(lambda: fresh().check()):.1f} s')
    slow = fresh()
    def no_index(): raise OSError('measured without an index')
    slow.build_index = no_index
    plain = {name: timed(lambda: ask(slow)) for name, ask in QUESTIONS.items()}
    print(f'on the Parquet files alone: peak {peak():.0f} MB')
    seconds, index = timed(corpus.build_index), next(corpus.folder.glob('cache/numbers/*/index.duckdb'))
    print(f'index built: {seconds:.1f} s, {index.stat().st_size / 2**20:.0f} MB, peak {peak():.0f} MB')
    quick = fresh()
    print(f'first connection: {timed(quick.connect):.3f} s')
    print(f'\n{"question":44} {"first":>8} {"again":>8} {"Parquet":>8}   seconds')
    for name, ask in QUESTIONS.items():
        print(f'{name:44} {timed(lambda: ask(quick)):8.3f} {timed(lambda: ask(quick)):8.3f} {plain[name]:8.3f}')
    print(f'\npeak memory {peak():.0f} MB')
    if folder is None: shutil.rmtree(workspace)


if __name__ == '__main__':
    main(*(int(a.replace(',', '').replace('_', '')) if i == 0 else a for i, a in enumerate(sys.argv[1:])))
