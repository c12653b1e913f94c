"""How fast back-translation is: our driver against bare CTranslate2 and against Transformers, on the same sentences,
the same model, the same machine, in turns.

    python tests/benchmarks/translation.py [--sentences 2000] [--repeat 3] [--beams 1 4 12] [--types int8 float32]
        [--processes 1 2] [--model marian-cs-en-tiny] [--shortlist 0] [--transformers 100] [keep]

Real Czech sentences, half of newstest2017 and half of Tatoeba (else the sample). **bare**:
`ctranslate2.Translator.translate_batch` on pieces that are cut into the driver's own sorted batches beforehand, and
nothing else. **driver**: numbering, pieces, search, detokenising, parts, pairs, all of it on disk. **transformers**:
`MarianMTModel.generate` with sorted batches of the same model in float32, on every so-many-th sentence
(`--transformers` of them, since it is slow), with the size of batch that suits it of three, for each number of threads.
Each in a process of its own, one thread a process, turn by turn, since a machine that others share changes its pace
within minutes; median of the repetitions, CPU seconds beside seconds since other programs may be running; peak memory
of the process, and of its workers. With several processes the driver's workers import what they need and open the model
while the clock runs, which bare CTranslate2 has behind it: what the same driver takes for two sentences a process
beyond what one process does, in the same turn, is no part of the overhead (it is of the rates). `--shortlist 200`: bare
and driver look at so many target pieces for each source piece, learnt from the rest of the bitext (from all of the
sample). With two processes the bare engine runs as two processes, each on the batches of its half of the sentences, as
the driver's do; and there Transformers is run once more as who calls it has it, in one process with as many threads, to
be compared by the clock ("by the clock": all of the machine for either, the driver's start counted). What
`CT2_FORCE_CPU_ISA` tells CTranslate2 is named beside the type. `keep` writes the table to nbs/papers/translation.json,
each row under its processor's name too, so that one host does not take another's place."""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from kept import TRANSLATION, keep, peak, processor

DOMAINS = ('newstest2017', 'tatoeba-test-v2021')
BATCHES = 128, 512, 2048  # source pieces that Transformers is given at once
ISA = os.environ.get('CT2_FORCE_CPU_ISA', '')  # instructions that CTranslate2 is told to use


def sentences(n):
    "Distinct Czech sentences with their references, and where they come from."
    from paranmt_lab.ground.settings import settings
    path = settings().resources / 'train' / 'bitext' / 'cs-en.parquet'
    if not path.exists():
        rows = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3)
        return rows[rows.source.str.len() < 150].drop_duplicates('source').head(2 * n), 'the sample'
    rows = pd.read_parquet(path)
    chosen = [found.sample(min(n, len(found)), random_state=0) for domain in DOMAINS
              for found in [rows[rows.corpus == domain].drop_duplicates('source')]]
    # mixed, so that two processes have the same to do
    return pd.concat(chosen).sample(frac=1, random_state=0, ignore_index=True), ' and '.join(DOMAINS)


def bare(rows, o):
    "translate_batch alone, on batches cut before the clock starts, in memory that is kept, as the driver does."
    from paranmt_lab.engines.ct2 import batches_of
    from paranmt_lab.engines.protocol import Decoding, length_limit
    from paranmt_lab.ground.models import open_model
    from paranmt_lab.jobs.workers import keep_freed_memory
    keep_freed_memory()
    engine = open_model(f'ct2:{o.short or o.model}:{o.type}')
    size = -(-len(rows) // o.shares)
    parts = [part for text in rows.source[o.share * size:(o.share + 1) * size] for part in engine.pieces.cut(text)[0]]
    batches, options = batches_of(parts, engine.at_once(Decoding(o.beam)))[1], engine.options(Decoding(o.beam))
    engine.model.translate_batch(batches[-1], **options)  # memory and caches warm
    start = clock()
    for batch in batches:
        engine.model.translate_batch(batch, max_decoding_length=length_limit(len(batch[0]), 256), **options)
    return clock() - start


def driver(rows, o):
    from paranmt_lab.corpora.query import Corpus
    from paranmt_lab.engines.protocol import Decoding
    from paranmt_lab.ground.models import open_model
    from paranmt_lab.ground.settings import settings
    from paranmt_lab.translate.driver import translate_corpus
    with tempfile.TemporaryDirectory() as folder:
        lab = replace(settings(), workspace=Path(folder), workers=o.processes)
        bitext = Corpus.create('bitext', lab)
        bitext.write_pairs(0, rows[['source', 'reference', 'corpus']].assign(source_lang='cs'))
        name = f'ct2:{o.short or o.model}:{o.type}'
        engine = name if o.processes > 1 else open_model(name)
        if o.processes == 1: engine.translate(rows.source.tolist()[:20], Decoding(o.beam))
        start = clock()
        translate_corpus(bitext, 'pairs', engine, lab, Decoding(o.beam), -(-len(rows) // o.processes), show=False)
        return clock() - start


def transformers(rows, o):
    import torch

    from paranmt_lab.engines.marian import generation_config
    from paranmt_lab.engines.protocol import Decoding, cut_batches, length_limit
    from paranmt_lab.ground.models import open_model
    torch.set_num_threads(o.threads)
    engine, decoding = open_model(f'hf:{o.model}'), Decoding(o.beam)
    parts = sorted((part for text in rows.source for part in engine.pieces.cut(text)[0]), key=len, reverse=True)
    start = clock()
    with torch.inference_mode():
        for b in cut_batches([len(p) for p in parts], o.batch):
            ids, mask = engine.tensor(parts[b])
            options = generation_config(engine, decoding, length_limit(len(parts[b][0]), 256))
            engine.model.generate(input_ids=ids, attention_mask=mask, generation_config=options)
    return clock() - start


def clock():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)])


def alone(what, o, **more):
    "One measurement in a process of its own: seconds, CPU seconds, sentences, MiB."
    command = [sys.executable, __file__, '--worker', what, *(x for k, v in {**vars(o), **more}.items() if k in (
        'model', 'short', 'type', 'beam', 'processes', 'share', 'shares',
        'sentences', 'transformers', 'batch', 'threads') for x in (f'--{k}', str(v)))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | dict(OMP_NUM_THREADS='1'))


def result(*started):
    found = [json.loads(p.communicate()[0].splitlines()[-1]) for p in started]
    return [max(f[0] for f in found), sum(f[1] for f in found), found[0][2], sum(f[3] for f in found)]


def work(o):
    rows, _ = sentences(o.sentences // 2)
    if o.worker == 'transformers': rows = rows.iloc[::max(1, len(rows) // o.transformers)]
    took = dict(bare=bare, driver=driver, transformers=transformers)[o.worker](rows, o)
    # as many as the largest, which is larger than this process
    workers = (o.processes * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
               if o.processes > 1 and o.worker == 'driver' else 0)
    print(json.dumps([*took.tolist(), len(rows), peak() + workers]))


def with_shortlist(o, folder):
    "The model with a shortlist of what the other domains of the bitext hold."
    from paranmt_lab.ground.models import open_model
    from paranmt_lab.ground.settings import settings
    from paranmt_lab.translate.shortlist import learn_candidates, make_shortlist
    path, engine = settings().resources / 'train' / 'bitext' / 'cs-en.parquet', open_model(f'ct2:{o.model}')
    rows = (pd.read_parquet(path).query('corpus not in @DOMAINS') if path.exists()
            else pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3))
    return str(make_shortlist(engine, learn_candidates(engine, rows)[0],
                              folder / f'{o.model}-{o.shortlist}', o.shortlist))


def main(o):
    rows, where = sentences(o.sentences // 2)
    print(f'{len(rows):,} sentences of {where}; {o.model}', flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if o.shortlist: o.short = with_shortlist(o, Path(folder))
        measure(o, rows)


def measure(o, rows):
    table = []
    def peer(beam, batch, threads=1):
        return (result(alone('transformers', o, beam=beam, type='float32', processes=1, batch=batch, threads=threads))
                if o.transformers else [np.nan] * 4)
    def suits(beam, threads): return min(BATCHES, key=lambda b: peer(beam, b, threads)[0]) if o.transformers else 0
    for beam in o.beams:
        batch = {n: suits(beam, n) for n in {1, *o.processes}}  # for each number of threads
        for kind in o.types:
            for n in o.processes:
                driven = lambda **more: result(alone('driver', o, **dict(beam=beam, type=kind, processes=n) | more))
                started = lambda: np.subtract(driven(sentences=2 * n), driven(sentences=2 * n, processes=1))
                times = [(result(*(alone('bare', o, beam=beam, type=kind, processes=1, share=k, shares=n)
                                   for k in range(n))), driven(), slow := peer(beam, batch[1]), started() if n > 1
                          else [0] * 4, peer(beam, batch[n], n) if n > 1 else slow) for _ in range(o.repeat)]
                bares, drivers, slow, starts, threaded = (np.array([t[i] for t in times]) for i in range(5))
                over = (drivers[:, 1] - starts[:, 1]) / bares[:, 1] - 1
                times_as_fast = len(rows) / drivers[:, 1] * slow[:, 1] / slow[:, 2]
                by_clock = len(rows) / drivers[:, 0] * threaded[:, 0] / threaded[:, 2]
                rate = len(rows) / np.median(drivers[:, 0]), len(rows) / np.median(drivers[:, 1])
                table.append(
                    {'beam': beam, 'type': kind + f', shortlist {o.shortlist}' * bool(o.shortlist)
                     + f', {ISA}' * bool(ISA), 'processes': n, 'bare sent./s': len(rows) / np.median(bares[:, 0]),
                     'driver sent./s': rate[0], 'driver sent./CPU-s': rate[1], 'start, CPU-s': np.median(starts[:, 1]),
                     'overhead, CPU': np.median(over), 'least overhead': over.min(), 'most overhead': over.max(),
                     'transformers sent./CPU-s': np.median(slow[:, 2] / slow[:, 1]), 'x transformers': np.median(
                         times_as_fast), 'least x': times_as_fast.min(), 'most x': times_as_fast.max(),
                     'transformers sent./s': np.median(threaded[:, 2] / threaded[:, 0]),
                     'x by the clock': np.median(by_clock), 'least by the clock': by_clock.min(),
                     'most by the clock': by_clock.max(), 'x paper': rate[0] / (51.4e6 / 10_000 / 3600),
                     'bare MiB': np.median(bares[:, 3]), 'driver MiB': np.median(drivers[:, 3]),
                     'transformers MiB': np.median(slow[:, 3])})
                print(pd.DataFrame(table[-1:]).round(3).to_string(index=False, header=len(table) == 1), flush=True)
                keep(f"benchmark {o.model}, beam {beam}, {table[-1]['type']}, {n} process(es), {processor()}",
                     TRANSLATION, model=o.model, sentences=len(rows), repeat=o.repeat, of_transformers=int(slow[0, 2])
                     if o.transformers else 0, batch_of_transformers=batch[1], batch_of_threaded=batch[n],
                     rows=[{k: v if isinstance(v, str) else round(float(v), 4) if np.isfinite(v) else None
                            for k, v in table[-1].items()}])
    print(pd.DataFrame(table).round(2).to_string(index=False))


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--sentences', type=int, default=2000)
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--beams', type=int, nargs='+', default=[1, 4, 12])
    p.add_argument('--types', nargs='+', default=['int8', 'float32'])
    p.add_argument('--model', default='marian-cs-en-tiny')
    p.add_argument('--transformers', type=int, default=100, help='sentences for Transformers; 0 leaves it out')
    p.add_argument('--shortlist', type=int, default=0,
                   help='target pieces looked at for each source piece; 0: all of the vocabulary')
    p.add_argument('--short', default='', help=argparse.SUPPRESS)
    p.add_argument('--worker', help=argparse.SUPPRESS)
    for name, default in (('type', 'int8'), ('beam', 12), ('share', 0), ('shares', 1), ('batch', 2048), ('threads', 1)):
        p.add_argument(f'--{name}', type=type(default), default=default, help=argparse.SUPPRESS)
    p.add_argument('--processes', type=int, nargs='+', default=[1, 2])
    o = p.parse_args([a for a in sys.argv[1:] if a != 'keep'])
    if o.worker: o.processes = o.processes[0]; work(o)
    else: main(o)
