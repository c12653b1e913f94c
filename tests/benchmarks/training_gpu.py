"""Pairs per second of the step that stays on a GPU. Needs a GPU, torch and numpy, and nothing else; a BLSTM needs the
whole workbench as well.

    python tests/benchmarks/training_gpu.py [FOLDER]
        # arrays of one's own: the cache folder of a prepared training (`word.ids`, `word.offsets`, ...); without, a
        # synthetic Zipf corpus
    python tests/benchmarks/training_gpu.py --cpu        # a few small steps on the CPU, to see that it runs

WORD, TRIGRAM and WORD,TRIGRAM of 300 dimensions and 50,000 rows at batch 100, M = 1, 20, 40: whole mega-batches,
encoding and mining with them; what a played graph gives over the same operations one by one; and how long five epochs
of five million pairs would take. A BLSTM of 900 dimensions, whose step does not stay on the device: the trainer's own,
on the synthetic corpus of training.py, where all that it imports is installed. Medians, least and most of REPEAT
repetitions."""
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # works from a checkout that is not installed

from paranmt_lab.training import resident
from paranmt_lab.training.resident import Resident, Sentences, mega_batch

REPEAT, BATCH = 5, 100
ROWS, DIM = (2_000, 20) if '--cpu' in sys.argv else (50_000, 300)
TOKENS = {'word': 13.3, 'trigram': 77.}  # of a synthetic sentence
MODELS = {'WORD': ['word'], 'TRIGRAM': ['trigram'], 'WORD,TRIGRAM': ['word', 'trigram']}


def zipf(pairs, tokens, seed):
    "Rows that follow Zipf's law, and where each of the sentences begins."
    rng, chance = np.random.default_rng(seed), np.cumsum(1 / np.arange(1, ROWS + 1))
    lengths = np.clip(rng.gamma(3.2, tokens / 3.2, 2 * pairs).astype(int) + 1, 1, int(3 * tokens))
    return np.searchsorted(chance / chance[-1], rng.random(lengths.sum())).clip(
        0, ROWS - 1).astype(np.int32), np.concatenate([[0], np.cumsum(lengths)])


def arrays(folder, pairs):
    "Ids and offsets of each feature."
    if folder is None: return {f: zipf(pairs, n, seed) for seed, (f, n) in enumerate(TOKENS.items())}
    return {f: (np.fromfile(folder / f'{f}.ids', np.int32), np.fromfile(folder / f'{f}.offsets', np.int64))
            for f in TOKENS if (folder / f'{f}.ids').exists()}


def learner(model, data, device):
    "A fresh one."
    rows = {f: int(data[f][0].max()) + 1 for f in MODELS[model]}
    return Resident([(torch.randn(rows[f], DIM, device=device) * .01).requires_grad_() for f in MODELS[model]],
                    [Sentences(*data[f], device) for f in MODELS[model]], batch=BATCH)


def rate(r, M, pairs, order):
    "Pairs per second of whole mega-batches."
    size = BATCH * M
    mega_batch(r, order[:size], np.arange(size), 'opposite')  # records
    wait, start = torch.cuda.synchronize if r.device.type == 'cuda' else (lambda: None), time.perf_counter()
    for k in range(0, pairs, size): mega_batch(r, order[k:k + size], np.arange(size), 'opposite')
    wait()
    return pairs / (time.perf_counter() - start)


def spread(values): return f'{np.median(values):>11,.0f} ({min(values):,.0f} to {max(values):,.0f})'


def blstm(device, M, pairs):
    "Pairs per second of the trainer's step for a BLSTM of twice 450."
    from dataclasses import replace

    import training
    from paranmt_lab.ground.fields import alter
    lab = replace(training.LAB, device=device)
    corpus = training.Corpus.create(f'blstm-{M}', lab)
    corpus.write_pairs(0, training.synthetic(pairs))
    c = alter(training.config('BLSTM', corpus.name, M, probes=0), hidden=10 if device == 'cpu' else 450)
    origin = training.Origin(c, lab)
    learner = training.EncoderLearner(origin, training.prepare(training.choose_pairs(corpus), origin, show=False))
    return [training.bare(learner, pairs) for _ in range(1 if device == 'cpu' else REPEAT + 1)][-REPEAT:]


def main(folder, device):
    torch.set_float32_matmul_precision('high')  # TF32
    small = device == 'cpu'
    data = arrays(folder, 40 * BATCH if small else 400_000)
    pairs = (len(next(iter(data.values()))[1]) - 1) // 2
    print(f'{date.today()}, {torch.cuda.get_device_name() if not small else "CPU"}, '
          f'torch {torch.__version__}, {pairs:,} pairs, {"synthetic" if folder is None else "from a folder"}')
    print(f'{"model":14} {"M":>3} {"pairs/s, graphs played":>36} '
          f'{"operations one by one":>36} {"5 x 5 million pairs":>20}')
    order = np.random.default_rng(0).permutation(pairs)
    for model in MODELS:
        if not set(MODELS[model]) <= set(data): continue
        for M in (1, 20, 40):
            some = max(pairs, BATCH * M) // (BATCH * M) * BATCH * M
            few = min(some, 40 * BATCH * M)
            played = [rate(learner(model, data, device), M, some, order) for _ in range(1 if small else REPEAT)]
            graphs = resident._record
            resident._record = lambda r, rooms: type('OneByOne', (),
                                                     dict(replay=lambda self: resident._step(r, rooms)))()
            try: single = [rate(learner(model, data, device), M, few, order) for _ in range(1 if small else REPEAT)]
            finally: resident._record = graphs
            print(f'{model:14} {M:3} {spread(played):>36} {spread(single):>36} '
                  f'{25e6 / np.median(played) / 60:16.1f} min', flush=True)
    for M in (1, 20, 40):
        try: rates = blstm(device, M, 400 if small else 40_000)
        except ImportError as e: return print(f'BLSTM: not available ({e})')
        print(f'{f"BLSTM, {20 if small else 900}":14} {M:3} {"-":>36} '
              f'{spread(rates):>36} {25e6 / np.median(rates) / 60:16.1f} min', flush=True)


if __name__ == '__main__':
    arguments = [a for a in sys.argv[1:] if a != '--cpu']
    if not torch.cuda.is_available() and '--cpu' not in sys.argv:
        sys.exit('no GPU here: nothing was measured (--cpu runs a few steps, to see that it works)')
    main(Path(arguments[0]) if arguments else None, 'cpu' if '--cpu' in sys.argv else 'cuda')
