"""Time and memory of building a lexicon of many pairs.

    python tests/benchmarks/lexicon.py FOLDER [MILLIONS [LEAST]]

makes a synthetic corpus of MILLIONS of pairs (10) in FOLDER, counts it in a process of its own, and prints seconds,
peak memory and the size of what was made. A corpus that is there is taken as it is, and a build that was stopped
continues. Words follow Zipf's law over a million types (exponent 1, as in text). A reference has 4 to 22 words; the
translation keeps seven in ten of them and draws the others anew, so words of a pair meet far more often than by chance.
Pairs of words of text repeat more, so there are fewer of them: the figure is an upper bound."""
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kept import needs
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings
from paranmt_lab.lexicon.building import build_lexicon
from paranmt_lab.lexicon.model import Lexicon, pair_scores, paraphrases
from paranmt_lab.lexicon.shards import Conditions

SHARD, TYPES = 100_000, 1_000_000


def words_of(numbers):
    "Names of types: letters only, so that they look like words to the tokeniser."
    letters = np.array(list('etaoinshrdlucmfw'))
    return [''.join(letters[[n >> s & 15 for s in (16, 12, 8, 4, 0)]]) for n in numbers]


def write_shard(corpus, shard, names, shares):
    "A shard of synthetic pairs."
    rng = np.random.default_rng(shard)
    lengths = rng.integers(4, 23, SHARD)
    first = np.searchsorted(shares, rng.random(lengths.sum()))
    again = np.where(rng.random(len(first)) < .7, first, np.searchsorted(shares, rng.random(len(first))))
    sides, ends = [], np.cumsum(lengths)
    for numbers in (first, again):
        words = pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), names.take(pa.array(numbers)))
        sides.append(pc.binary_join(words, ' '))
    corpus.write_pairs(shard, dict(reference=sides[0], translation=sides[1]))


def make_corpus(s, millions):
    "The corpus, or what is lacking of it."
    corpus = Corpus.create(f'synthetic-{millions:g}', s)
    lacking = sorted(set(range(round(millions * 1e6 / SHARD))) - set(corpus.shard_numbers))
    if lacking:
        names = pa.array(words_of(range(TYPES)))
        shares = np.cumsum(1 / np.arange(1, TYPES + 1))
        for shard in lacking: write_shard(corpus, shard, names, shares / shares[-1])
    return Corpus(corpus.folder)


def size_of(folder): return sum(path.stat().st_size for path in folder.rglob('*') if path.is_file())


def measure(s, corpus, least):
    "Build, in this process alone, and look up."
    start, cpu = time.perf_counter(), time.process_time()
    facts = build_lexicon(corpus, 'synthetic', s, Conditions(score='', least=least), show=None)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    folder = s.models / 'synthetic'
    start = time.perf_counter()
    lexicon = Lexicon(folder)
    opened = time.perf_counter() - start
    words, times = lexicon.words.word, []
    for word in (words[50], words[5_000]):
        start = time.perf_counter()
        paraphrases(lexicon, word)
        times.append(round(time.perf_counter() - start, 2))
    start = time.perf_counter()
    pair_scores(lexicon, words[:1000], words[1:1001])
    print(json.dumps(dict(pairs=corpus.rows, least=least, seconds=round(seconds), cpu_seconds=round(cpu),
                          peak_gb=round(peak, 2), words=facts['words'], word_pairs=facts['pairs'],
                          disk_gb=round(size_of(folder) / 2**30, 2), open_seconds=round(opened, 1), look_seconds=times,
                          thousand_pairs_seconds=round(time.perf_counter() - start, 2)), indent=1))


if __name__ == '__main__':
    needs(words='FOLDER')
    folder, *more = [word for word in sys.argv[1:] if word != 'alone']
    millions, least = float(more[0]) if more else 10., int(more[1]) if len(more) > 1 else 2
    s = replace(settings(), workspace=Path(folder))
    corpus = make_corpus(s, millions)
    alone = [sys.executable, sys.argv[0], folder, f'{millions:g}', str(least), 'alone']
    if 'alone' in sys.argv: measure(s, corpus, least)
    else: sys.exit(subprocess.run(alone).returncode)
