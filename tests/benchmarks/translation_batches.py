"""How many source pieces CTranslate2 should be given at once on a processor.

    python tests/benchmarks/translation_batches.py [--repeat 4] [--model marian-cs-en-tiny] [--sizes 128 256 512 2048]

Real Czech sentences (else the sample), the driver's own batches, nothing but `translate_batch`, one thread; 2,000
sentences in greedy search, fewer at beams 4 and 12. All sizes turn by turn; sentences a CPU second, median, and the
ratio to the last size of the same turn."""
import argparse
import time

import numpy as np

from paranmt_lab.engines.ct2 import batches_of
from paranmt_lab.engines.protocol import Decoding, length_limit
from paranmt_lab.ground.models import open_model
from translation import sentences

EVERY = {1: 1, 4: 3, 12: 8}  # beam to which sentences are taken


def rate(engine, batches, options, n):
    "Sentences a CPU second."
    start = time.process_time()
    for batch in batches:
        engine.model.translate_batch(batch, max_decoding_length=length_limit(len(batch[0]), 256), **options)
    return n / (time.process_time() - start)


def main(o):
    (rows, where), engine = sentences(1000), open_model(f'ct2:{o.model}')
    print(f'{where}; {o.model}, {engine.model.compute_type}, {o.repeat} turns')
    for beam, every in EVERY.items():
        sources, batches = rows.source.tolist()[::every], {}
        parts = [part for text in sources for part in engine.pieces.cut(text)[0]]
        for engine.batch_tokens in o.sizes:
            batches[engine.batch_tokens] = batches_of(parts, engine.at_once(Decoding(beam)))[1]
        # the first warms up
        turns = np.array([[rate(engine, of, engine.options(Decoding(beam)), len(sources)) for of in batches.values()]
                          for _ in range(o.repeat + 1)][1:])
        ratios = turns / turns[:, -1:]
        for i, size in enumerate(o.sizes):
            print(f'beam {beam:2}, {size:5} pieces: {np.median(turns[:, i]):6.1f} sentences/s, '
                  f'{np.median(ratios[:, i]):.2f} times ({ratios[:, i].min():.2f} to {ratios[:, i].max():.2f})',
                  flush=True)


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--repeat', type=int, default=4)
    p.add_argument('--model', default='marian-cs-en-tiny')
    p.add_argument('--sizes', type=int, nargs='+', default=[128, 256, 512, 2048])
    main(p.parse_args())
