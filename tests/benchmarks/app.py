"""Seconds and memory of the questions that the app's pages ask of a large corpus.

    python tests/benchmarks/app.py FOLDER [--millions 10] [--paper] [--plain] [--keep]

FOLDER becomes a workspace with a synthetic corpus of ten million pairs, or of the paper's 51.4 million with --paper:
about 0.3 GB a million with its index. It is made once and, without --keep, deleted at the end. Lengths and scores are
those of `paranmt.3`. --plain asks without the index of `paranmt corpus index`.

Each question is asked in a process of its own. Cold is the first time after the pages of all files were dropped from
the system's cache; warm is the median of the next nine, each with other arguments. CPU is the median of their seconds
of work, which a busy machine does not lengthen. The last but one extrapolates the
warm median to 51.4 million pairs in proportion to the pairs, which is an upper bound for answers by binary search."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus import usage
from kept import needs, peak
from paranmt_lab.browsing.index import Browsing
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.ground.settings import settings

SHARD_ROWS, BEAM, PAPER = 100_000, 1, 51_409_585
SCORE = 'paraphrase_score@demo'
# Shares of the pairs in the five ranges of paranmt.3, and what lies outside of them
RANGES, SHARES = [(-0.1, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)], [4.0, 3.8, 6.9, 14.4, 18.0]


def halves(rng, n=400_000):
    "Half sentences; two make one of 12 words on average, some of them frequent. One word in 100 begins with É."
    syllables = [a + b + c for a in 'bdfgklmnprst' for b in ('a', 'e', 'i', 'o', 'u', 'ou') for c in ('', 'n', 'st')]
    words = np.array([''.join(rng.choice(syllables, 1 + i % 3)) for i in range(30_000)])
    words[7::100] = ['É' + word[1:] for word in words[7::100]]
    lengths = rng.poisson(5, n) + 1
    drawn = words[np.minimum(rng.zipf(1.15, lengths.sum()) - 1, rng.integers(0, len(words), lengths.sum()))]
    return pa.array([' '.join(w) for w in np.split(drawn, np.cumsum(lengths)[:-1])])


def make(corpus, rows):
    "The pairs, one translation to a source as in ParaNMT, and seven measures; 1 % have no paraphrase score."
    rng = np.random.default_rng(0)
    first, last = halves(rng), halves(rng)
    text = lambda a, b: pc.binary_join_element_wise(first.take(pa.array(a)), last.take(pa.array(b)), ' ')
    for shard in range(-(-rows // SHARD_ROWS)):
        rng, n = np.random.default_rng([1, shard]), min(SHARD_ROWS, rows - shard * SHARD_ROWS)
        if shard in corpus.sizes and corpus.measures() and shard not in corpus.missing('unigram_overlap'): continue
        beam = np.arange(n) // BEAM
        a, b, c = rng.integers(0, len(first), (3, n))
        domains = np.array(['talk', 'news', 'web', 'law'])[rng.choice(4, beam[-1] + 1, p=[.6, .2, .15, .05])]
        corpus.write_pairs(shard, dict(
            segment=beam + shard * SHARD_ROWS, corpus=pa.array(domains[beam]), source_lang=pa.array(['cs'] * n),
            source=text(a[beam], b[beam]), reference=text(b[beam], a[beam]), translation=text(b[beam], c),
            system=pa.array(['demo'] * n), rank=np.arange(n) % BEAM + 1,
            log_probability=-rng.gamma(4, 2, n), translation_score=-rng.gamma(2, .4, n)))
        low, high = np.array(RANGES)[rng.choice(5, n, p=np.array(SHARES) / sum(SHARES))].T
        score = np.where(rng.random(n) < .01, np.nan, rng.uniform(low, high))
        corpus.write_measure('trigram_overlap', shard, np.where(rng.random(n) < .4, 0, rng.beta(1, 2, n)))
        corpus.write_measure(SCORE, shard, score)
        for side in ('reference', 'translation'): corpus.write_measure(f'{side}_length', shard, rng.poisson(12, n) + 1)
        corpus.write_measure('identity', shard, rng.random(n) < .02)
        corpus.write_measure('length_ratio', shard, rng.beta(6, 2, n))
        corpus.write_measure('unigram_overlap', shard, rng.beta(2, 2, n))


def questions(corpus, plain):
    "Name to a function of the number of the turn."
    from paranmt_lab.browsing.crossfilter import Crossfilter
    from paranmt_lab.browsing.distributions import PairFilter, axis_ends, common_bins, density, group_spreads, spread
    from paranmt_lab.selection import Range, range_table
    measures = corpus.measures()
    beside = [measure for measure in measures if measure != SCORE]
    bins = lambda measure: common_bins([axis_ends(corpus, measure)])
    some = lambda i: PairFilter(ranges=(Range('length_ratio', .5 + i / 100, None),))

    def cells(i, pairs):
        other = beside[i % len(beside)]
        return density(corpus, SCORE, other, bins(SCORE), bins(other), pairs)
    wide, narrow = (lambda i: (0.2 + i / 100, 1.0)), (lambda i: (0.6 + i / 1000, 0.602 + i / 1000))
    crossfilter = []

    def filters(i):
        if not crossfilter: crossfilter.append(Crossfilter(corpus, measures))
        edge = lambda low, high: dict(low=round(low, 2), high=high)
        return crossfilter[0].count([Range(SCORE, **edge(.2 + i / 100, .9)), Range('length_ratio', .5, None),
                                     Range('trigram_overlap', **edge(.1 + i / 100, .7))]).pairs

    found = {
        'the five score ranges, with their overlaps': lambda i: range_table(corpus, SCORE),
        'count in a range': lambda i: corpus.count(SCORE, *wide(i)),
        '100 random pairs of a wide range': lambda i: corpus.sample(100, SCORE, *wide(i), seed=i),
        '100 random pairs of a narrow range': lambda i: corpus.sample(100, SCORE, *narrow(i), seed=i),
        'the 100 highest': lambda i: corpus.ordered(measures[i % len(measures)], n=100, highest=True),
        'page 100 of a range': lambda i: corpus.ordered(SCORE, *wide(i), n=100, skip=9900),
        'histogram of any measure': lambda i: corpus.histogram(measures[i % len(measures)], 50),
        'histogram of one domain': lambda i: corpus.histogram(measures[i % len(measures)], 50, where='corpus = ?',
                                                              params=['news']),
        'density of two measures': lambda i: cells(i, PairFilter()),
        'density of a range': lambda i: cells(i, some(i)),
        'density of one domain': lambda i: cells(i, PairFilter('news')),
        'a measure by domain, with medians': lambda i: group_spreads(corpus, measures[i % len(measures)], 'corpus',
                                                                     bins(measures[i % len(measures)])),
        'a measure over another, with medians': lambda i: [spread(corpus, m, bins(SCORE)) for m in (SCORE, beside[
            i % len(beside)])],
        'three sliders moved': filters}
    texts = corpus.pairs_by_id([shard * 1_000_000_000 + 5 for shard in corpus.shard_numbers[-10:]],
                               ['translation']).translation.str.split()
    some_words = ' '.join(corpus.pairs_by_id(range(min(2000, corpus.sizes[0])), ['reference']).reference).split()
    accented = sorted({word for word in some_words if word[0] == 'É'}, key=lambda word: (-len(word), word))
    word, phrase = (lambda i: max(texts[i], key=len)), (lambda i: ' '.join(texts[i][:4]))
    with_word = lambda i: PairFilter(text=word(i))
    with_text = lambda text: corpus.count(**PairFilter(text=text).question(corpus))
    found |= {
        'a new word in the filter': lambda i: with_text(word(i)),
        'a new letter in the filter': lambda i: with_text('aeioubdfgk'[i]),
        'four new words in the filter': lambda i: with_text(phrase(i)),
        'a new word with É in the filter': lambda i: with_text(accented[i % len(accented)].lower()),
        'density of pairs with a word': lambda i: cells(i, with_word(i)),
        'a measure by domain, of pairs with a word': lambda i: group_spreads(corpus, SCORE, 'corpus', bins(SCORE),
                                                                             with_word(i))}
    if plain: return found | {
        'a word, first 20': lambda i: corpus.frame(where='contains(translation, ?)', params=[word(i)], limit=20)}
    return found | {
        'a word, first 20': lambda i: first_hits(corpus, word(i)),
        'four words, first 20': lambda i: first_hits(corpus, phrase(i)),
        'a word that is not there, all pairs searched': lambda i: first_hits(corpus, f'zzz{i}')}


def first_hits(corpus, words):
    "Ids of the first twenty pairs that hold some words."
    found = []
    for ids, _ in corpus.search(words):
        found += ids.tolist()
        if len(found) >= 20: break
    return found[:20]


def dropped(folder):
    "Take the files out of the system's cache, as far as it lets us."
    for path in folder.rglob('*'):
        if not path.is_file(): continue
        with open(path, 'rb') as f: os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def opened(workspace, plain):
    "The corpus as the pages open it."
    s = replace(settings(), workspace=workspace)
    return (Corpus if plain else Browsing).open('synthetic', s)


def step(workspace, plain, name):
    "One question in this process."
    corpus = opened(workspace, plain)
    shutil.rmtree(corpus.derived('texts'), ignore_errors=True)  # texts of an earlier question are new again
    dropped(corpus.folder)
    start = time.perf_counter()
    corpus.connect()
    ask, seconds, work = questions(corpus, plain)[name], [], []
    connected = time.perf_counter() - start
    for i in range(10):
        start, worked = time.perf_counter(), time.process_time()
        ask(i)
        seconds.append(time.perf_counter() - start)
        work.append(time.process_time() - worked)
    facts = dict(connected=connected, cold=seconds[0], warm=float(np.median(seconds[1:])), worst=max(seconds[1:]),
                 least=min(seconds[1:]), cpu=float(np.median(work[1:])))
    print(json.dumps(facts | dict(mib=peak())))


def main(workspace, rows, plain):
    corpus = Corpus.create('synthetic', replace(settings(), workspace=workspace))
    start = time.perf_counter()
    make(corpus, rows)
    print(f'{rows:,} pairs written in {time.perf_counter() - start:.0f} s, {usage(corpus.folder):,.0f} MB', flush=True)
    start = time.perf_counter()
    if plain: corpus.build_index()
    else:
        code = 'import sys; from paranmt_lab.cli.main import main; main()'
        subprocess.run([sys.executable, '-c', code, 'corpus', 'index', 'synthetic'], check=True,
                       env=os.environ | dict(PARANMT_WORKSPACE=str(workspace)), stdout=subprocess.DEVNULL)
    print(f'indexed in {time.perf_counter() - start:.0f} s, {usage(corpus.folder):,.0f} MB in all', flush=True)
    at_paper = PAPER / rows
    print(f'{"question":46} {"cold":>7} {"warm":>7} {"least":>7} {"worst":>7} {"CPU":>7} {"at 51 M":>8}   MiB')
    for name in questions(opened(workspace, plain), plain):
        done = subprocess.run([sys.executable, __file__, str(workspace), '--step', name, *['--plain'] * plain],
                              capture_output=True, text=True)
        if done.returncode: sys.exit(done.stderr)
        f = json.loads(done.stdout.splitlines()[-1])
        seconds = ' '.join(f'{f[key]:7.3f}' for key in ('cold', 'warm', 'least', 'worst', 'cpu'))
        print(f'{name:46} {seconds} {f["warm"] * at_paper:8.3f} {f["mib"]:5.0f}', flush=True)


if __name__ == '__main__':
    needs(words='FOLDER')
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument('folder', type=Path)
    asked.add_argument('--millions', type=float, default=10)
    asked.add_argument('--step', default='')
    for flag in ('paper', 'plain', 'keep'): asked.add_argument(f'--{flag}', action='store_true')
    asked = asked.parse_args()
    if asked.step: step(asked.folder, asked.plain, asked.step)
    else:
        main(asked.folder, PAPER if asked.paper else int(asked.millions * 1e6), asked.plain)
        if not asked.keep: shutil.rmtree(asked.folder / 'corpora/synthetic')
