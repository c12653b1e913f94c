"""What the driver costs on top of the bare engine, and how fast back-translation is beside the paper.

    python tests/benchmarks/translation.py [repetitions] [sentences of each domain] [model]     # 3, 300, marian-cs-en-tiny

The same sentences, cut into the same sorted batches, in turn by `ctranslate2.Translator.translate_batch` and nothing else, and by the driver: numbering, pieces, search,
detokenising, parts, pairs, all of it on disk. One process of one thread, beam 12, best hypothesis, CPU seconds beside seconds, since other programs may be running.
"""
import sys, tempfile, time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.corpus import Corpus
from paranmt_lab.settings import find_model, settings
from paranmt_lab.translate.driver import PAPER_RATE, WINDOW, translate_corpus
from paranmt_lab.translate.engines import CTranslate2Engine, cut_batches

BEAM, DOMAINS = 12, ('newstest2017', 'tatoeba-test-v2021')


def sentences(n):
    "Distinct Czech sentences with their references, and where they come from."
    path = settings().resources / 'train' / 'bitext' / 'cs-en.parquet'
    if not path.exists():
        rows = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3)
        return rows[rows.source.str.len() < 150].drop_duplicates('source').head(2 * n), 'the sample'
    rows = pd.read_parquet(path)
    chosen = [rows[rows.corpus == domain].drop_duplicates('source').sample(n, random_state=0) for domain in DOMAINS]
    return pd.concat(chosen, ignore_index=True), ' and '.join(DOMAINS)


def prepared(engine, sources):
    "Pieces in the driver's batches: windows of similar length, sorted within, cut by pieces."
    order, batches = sorted(range(len(sources)), key=lambda i: (len(sources[i]), i)), []
    for a in range(0, len(order), WINDOW):
        cut = sorted((engine.pieces(sources[i])[0] for i in order[a:a + WINDOW]), key=lambda pieces: -len(pieces))
        batches += [cut[b] for b in cut_batches([len(pieces) for pieces in cut], engine.batch_tokens)]
    return batches


def bare(engine, batches):
    for batch in batches:
        engine.model.translate_batch(batch, beam_size=BEAM, return_scores=True, length_penalty=1, max_decoding_length=engine.limit(len(batch[0])), disable_unk=True)


def driven(engine, rows):
    lab = replace(settings(), workspace=Path(tempfile.mkdtemp()), workers=1)
    bitext = Corpus.create('bitext', lab)
    bitext.write_pairs(0, rows[['source', 'reference', 'corpus']].assign(source_lang='cs'))
    start = clock()
    translate_corpus(bitext, 'pairs', engine, lab, BEAM, 1, show=False)
    return clock() - start


def clock(): return np.array([time.perf_counter(), time.process_time()])


def main(repetitions=3, n=300, model='marian-cs-en-tiny'):
    (rows, name), engine = sentences(int(n)), CTranslate2Engine(find_model(model), threads=1)
    batches, found = prepared(engine, rows.source.tolist()), {'bare': [], 'driver': []}
    print(f'{len(rows):,} sentences of {name}, {sum(map(len, sum(batches, []))):,} pieces; {model}, {engine.identity["compute_type"]}, beam {BEAM}')
    bare(engine, batches[:1]) # memory and caches warm
    for _ in range(int(repetitions)):
        start = clock(); bare(engine, batches); found['bare'].append(clock() - start)
        found['driver'].append(driven(engine, rows))
    table = pd.DataFrame({f'{who}, {what}': pd.Series(np.array(times)[:, i]) for who, times in found.items() for i, what in enumerate(('seconds', 'CPU seconds'))}).T
    table = pd.DataFrame({'median': table.median(axis=1), 'least': table.min(axis=1), 'most': table.max(axis=1)})
    table['sentences/s'] = len(rows) / table['median']
    table['x paper'] = table['sentences/s'] / PAPER_RATE
    print(table.round(2).to_string())
    over = np.array(found['driver']) / np.array(found['bare']) - 1
    for i, what in enumerate(('seconds', 'CPU seconds')):
        print(f'driver over bare, {what}: {np.median(over[:, i]):+.1%} (median of {len(over)} pairs, {over[:, i].min():+.1%} to {over[:, i].max():+.1%})')
    print(f"the paper's rate: at most {PAPER_RATE:.2f} sentences a second and GPU")


if __name__ == '__main__': main(*sys.argv[1:])
