"""How fast the recurrent encoders are beside torch's own LSTM over packed sequences.

    python tests/benchmarks/recurrent.py [threads] [batches]     # 1, 12

Synthetic Zipf words of a vocabulary of 50,000, about 13.3 a sentence, embeddings of 300, states of 150 in each
direction (GRAN: 300 in one). A training step is 400 sentences forward and backward (100 pairs and their negatives),
encoding 200 sentences without gradient. Both sides take the same batches in turn. torch's look-up reads every token's
embedding and its gradient ends there; ours goes on to the embedding matrix. Median, least and most milliseconds on the
clock, median of CPU milliseconds, after one pass that compiles."""
import platform
import subprocess
import sys
import time
from datetime import date

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from paranmt_lab.encoders.gran import Gran
from paranmt_lab.encoders.recurrent import Lstm
from paranmt_lab.tokens.text import Packed

ROWS, DIM, HIDDEN, TRAINED, ENCODED = 50_000, 300, 150, 400, 200


def batches(times, sentences, seed):
    "Packed sentences of Zipf words with gamma lengths."
    rng, cdf = np.random.default_rng(seed), np.cumsum(1 / np.arange(1, ROWS + 1))
    for _ in range(times):
        offsets = np.r_[0, np.cumsum(np.clip(rng.gamma(3.2, 4.2, sentences).astype(int) + 1, 1, 30))]
        yield Packed(torch.from_numpy(np.searchsorted(cdf / cdf[-1], rng.random(offsets[-1])).clip(
            0, ROWS - 1).astype(np.int32)), torch.from_numpy(offsets))


def by_torch(theirs, matrix, packed):
    "torch.nn.LSTM over packed sequences, mean over time."
    lengths = packed.offsets.diff()
    x_lnd = matrix[pad_sequence(packed.ids.long().split(lengths.tolist()))].requires_grad_(torch.is_grad_enabled())
    h, _ = pad_packed_sequence(theirs(pack_padded_sequence(x_lnd, lengths, enforce_sorted=False))[0])
    return h.sum(0) / lengths[:, None]


def measure(models, packed):
    "Seconds and CPU seconds of each model on each batch, in turn."
    found = {name: [] for name in models}
    for p in packed:
        for name, (run, parameters) in models.items():
            wall, cpu = time.perf_counter(), time.process_time()
            vector_nd = run(Packed(p.ids, p.offsets))
            if torch.is_grad_enabled(): vector_nd.sum().backward()
            found[name].append((time.perf_counter() - wall, time.process_time() - cpu))
            for q in parameters: q.grad = None
    return {name: np.array(times) * 1e3 for name, times in found.items()}


def main(threads=1, times=12):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layers = dict(BLSTM=Lstm('word', ROWS, DIM, HIDDEN, bidirectional=True),
                  **{'BLSTM, peepholes': Lstm('word', ROWS, DIM, HIDDEN, bidirectional=True, peepholes=True),
                     'GRAN': Gran('word', ROWS, DIM, DIM), 'GRAN, GRU': Gran('word', ROWS, DIM, DIM, cell='gru')})
    for layer in layers.values(): layer.sparse = True
    theirs = torch.nn.LSTM(DIM, HIDDEN, bidirectional=True)
    models = {name: (lambda p, layer=layer: layer({'word': p}), list(layer.parameters()))
              for name, layer in layers.items()}
    models['BLSTM, torch.nn.LSTM'] = (lambda p: by_torch(theirs, layers['BLSTM'].weight_rd.detach(), p),
                                      list(theirs.parameters()))
    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], capture_output=True, text=True).stdout.strip()
    print(f'{date.today()}, {commit}, {platform.machine()}, {threads} threads, '
          f'torch {torch.__version__}, {times} batches')
    for what, sentences, grad in (('training', TRAINED, True), ('encoding', ENCODED, False)):
        with torch.set_grad_enabled(grad):
            measure(models, batches(times, sentences, 0))
            for name, ms in measure(models, batches(times, sentences, 0)).items():
                (wall, cpu), least, most = np.median(ms, 0), ms[:, 0].min(), ms[:, 0].max()
                print(f'{what} {sentences}  {name:22} {wall:8.1f} ms ({least:.1f} to {most:.1f}), CPU {cpu:8.1f} ms')


if __name__ == '__main__': main(*map(int, sys.argv[1:]))
