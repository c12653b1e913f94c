"""Training steps beside other busy processes: what a second thread is worth on a machine that is shared.

    git worktree add --detach ../before REV
    python tests/benchmarks/neighbour.py [--models WORD TRIGRAM BLSTM] [--neighbours 0 1] [--turns 7]
        [--before ../before] [keep]
    git worktree remove ../before

Trainers work turn by turn: one thread, two threads, and two threads of an older checkout where one is named. Beside
them run 0, 1 or more processes that only compute. Printed and kept: pairs a second, and the ratio to one thread in the
same turn; median, least and most."""
import argparse
import multiprocessing
import os
import time
from pathlib import Path

from kept import keep, pace, processor
from turns import spread, start, turn

ROOT = Path(__file__).resolve().parents[2]


def compute():
    "A neighbour: one core's worth of work, without end."
    while True: sum(range(10_000))


def measure(model, neighbours, turns, pairs, before=None):
    "Rates of each trainer beside some neighbours, by turns: name to a rate for each turn."
    trainers = {'one thread': (ROOT, 1), 'two threads': (ROOT, 2)}
    if before: trainers['two threads, before'] = before, 2
    busy = [multiprocessing.Process(target=compute, daemon=True) for _ in range(neighbours)]
    for process in busy: process.start()
    started = {name: start(tree, model, 40, n, pairs)[0] for name, (tree, n) in trainers.items()}
    rates = {name: [] for name in started}
    for k in range(turns):
        for name in list(started)[::-1 if k % 2 else 1]: rates[name].append(turn(started[name], trainers[name][0]))
    for process in busy: process.terminate()
    for process in started.values():
        process.stdin.close()
        process.wait()
    return rates


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--models', nargs='+', default=['WORD', 'TRIGRAM', 'BLSTM'])
    p.add_argument('--neighbours', nargs='+', type=int, default=[0, 1])
    p.add_argument('--turns', type=int, default=7)
    p.add_argument('--seconds', type=float, default=2, help='about how long a turn of one thread takes')
    p.add_argument('--before', type=lambda x: Path(x).resolve(), help='an older checkout')
    p.add_argument('keep', nargs='?', help='write the figures to nbs/papers/speed.json')
    a = p.parse_args()
    print(f'{time.strftime("%Y-%m-%d %H:%M")}, {processor()}, {os.cpu_count()} cores, '
          f'{pace()}, load {os.getloadavg()[0]:.2f}')
    rows, speed = [], dict(WORD=30_000, TRIGRAM=8_000, BLSTM=1_000)
    for model in a.models:
        for neighbours in a.neighbours:
            mega_batches = int(speed.get(model, 500) * a.seconds) // 4_000
            pairs = 4_000 * min(max(mega_batches, 1), 25)  # the synthetic corpus has 120,000
            rates = measure(model, neighbours, a.turns, pairs, a.before)
            for name, found in rates.items():
                ratio = [x / y for x, y in zip(found, rates['one thread'])]
                rows.append(dict(model=model, neighbours=neighbours, variant=name, rates=found, ratios=ratio))
                print(f'{model:8} {neighbours} beside  {name:20} {spread(found, 0):>26} pairs/s', end='  ')
                print(f'{spread(ratio, 2)} of one thread', flush=True)
    keep('neighbour', rows=rows)
