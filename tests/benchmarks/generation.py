"""A generator's training and search: the LSTM of `paranmt`, section 6, against a transformer, and against Transformers.

    python tests/benchmarks/generation.py [--repeat 3] [--sentences 64] [--steps 6]
    python tests/benchmarks/generation.py --device cuda --sentences 1000 --steps 30 --batch 20000 --copies 10

All systems turn by turn in one process with one thread; figures are by CPU time, on a GPU by the clock; the median of
the turns and their range. Training: target pieces a second on English pairs of the sample, both networks with as many
weights. Search: sentences a second at beams 1 and 8. The networks are untrained, and most sentences reach the limit of
length; the pieces that were written are printed beside, since they differ between systems. The transformer is searched
by CTranslate2 (float32 and int8; on a GPU where it can compute there) and, with the same weights, by `generate` of
Transformers."""
import argparse
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from kept import needs

needs('ctranslate2', 'transformers')
import ctranslate2

from paranmt_lab.engines.ct2 import CTranslate2Engine, convert
from paranmt_lab.engines.marian import MarianEngine
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.engine import GeneratorEngine
from paranmt_lab.generation.training import LstmLearner
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.jobs.ranks import Processes
from paranmt_lab.jobs.run import Run
from paranmt_lab.jobs.workers import keep_freed_memory
from paranmt_lab.translate.data import divide, prepare, read_prepared
from paranmt_lab.translate.training import Seq2SeqLearner

LSTM = GeneratorConfig('lstm', 'sample', 'en', pieces=1_000, dim=256, hidden=256, batch_tokens=2_000)
TRANSFORMER = replace(LSTM, name='transformer', architecture='transformer', dim=256, feed_forward=640, encoder_layers=3,
                      decoder_layers=2)


def seconds(device):
    "Time that work has taken: of the processor, or by the clock when a GPU has ended it."
    if device == 'cpu': return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def learners(folder, o):
    "Both learners on the English sentences of the sample, each beside the next one."
    english = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).reference
    english = pd.concat([english] * o.copies, ignore_index=True)
    pairs = pd.DataFrame(dict(reference=english, translation=english.shift(-1))).dropna().assign(corpus='sample')
    made = {}
    for config, kind in ((LSTM, LstmLearner), (TRANSFORMER, Seq2SeqLearner)):
        config = replace(config, batch_tokens=o.batch)
        run = Run.create(folder / 'runs', config.name, config)
        prepare(run, config, divide(config, pairs))
        prepared = read_prepared(run, config)
        made[config.name] = kind(config, prepared.facts['pieces'], prepared, Processes(o.device))
    return made, english.tolist()


def pieces_per_second(learner, steps):
    "Target pieces a second of some steps."
    batches, pieces = learner.batches(), 0
    start = seconds(learner.device)
    for _ in range(steps):
        pieces += sum(figures.weight for figures in learner.step(batches[learner.at.step % len(batches)]))
        learner.at.step += 1
    return pieces / (seconds(learner.device) - start)


def engines(made, folder, device):
    "Engines of the learners' networks."
    for name, learner in made.items(): learner.save(folder / name)
    rows = 512 if device == 'cpu' else 8_192
    found = {'LSTM, ours': GeneratorEngine(folder / 'lstm', device, rows)}
    if device == 'cpu' or ctranslate2.get_cuda_device_count():
        for kind in ('float32', 'int8'):
            where = convert(folder / 'transformer', folder / kind, kind)
            found[f'transformer, CTranslate2 {kind}'] = CTranslate2Engine(where, device=device)
    return found | {'transformer, generate of Transformers': MarianEngine(folder / 'transformer', device=device)}


def sentences_per_second(engine, sources, beam, device):
    start = seconds(device)
    found = engine.translate(sources, Decoding(beam))
    return len(sources) / (seconds(device) - start), sum(hs[0].tokens for hs in found)


def row_of(work, system, turns, unit, **more):
    "Figures of a system, printed at once."
    row = dict(work=work, system=system, median=float(np.median(turns)), low=min(turns), high=max(turns), unit=unit)
    further = ''.join(f', {n:,} {name}' for name, n in more.items())
    print(f'{work}, {system:40} {row["median"]:10,.1f} {unit} ({min(turns):,.1f} to {max(turns):,.1f}){further}',
          flush=True)
    return row | more


def keep(path, rows, o):
    "Write the figures of this machine beside those of others."
    made = provenance()
    facts = dict(made=made, command=shlex.join(['python', 'tests/benchmarks/generation.py', *sys.argv[1:]]), rows=rows)
    write_json(path, (read_json(path) if path.exists() else {}) | {made['device']: facts})


def main(o):
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        made, english = learners(Path(tmp), o)
        turns = {name: [] for name in made}
        for learner in made.values(): pieces_per_second(learner, 2) # warms up
        for _ in range(o.repeat):
            for name, learner in made.items(): turns[name].append(pieces_per_second(learner, o.steps))
        for name, learner in made.items():
            weights = sum(p.numel() for p in learner.weights.values())
            rows.append(row_of('training', name, turns[name], 'target pieces/s', weights=weights))
        of, sources = engines(made, Path(tmp), o.device), [text for text in english if len(text.split()) <= 10]
        sources = sources[:o.sentences]
        for beam in (1, 8):
            turns, written = {name: [] for name in of}, {}
            if o.device != 'cpu':
                for engine in of.values(): sentences_per_second(engine, sources[:100], beam, o.device) # warms up
            for _ in range(o.repeat):
                for name, engine in of.items():
                    rate, written[name] = sentences_per_second(engine, sources, beam, o.device)
                    turns[name].append(rate)
            rows += [row_of(f'beam {beam}', name, turns[name], 'sentences/s', pieces=written[name]) for name in of]
    if o.output: keep(o.output, rows, o)


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--repeat', type=int, default=3)
    p.add_argument('--sentences', type=int, default=64)
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--batch', type=int, default=2_000, help='padded pieces of a training batch')
    p.add_argument('--copies', type=int, default=1, help='how often the sample is repeated, for large batches')
    p.add_argument('--device', default='cpu', help='cpu, cuda or cuda:N')
    p.add_argument('--output', type=Path, help='JSON file to which the figures are added, by device')
    main(p.parse_args())
