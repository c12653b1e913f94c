"""Bare training steps of several checkouts, turn by turn: the ratio that a shared machine, whose pace changes by the
minute, still tells.

    git worktree add --detach ../before REV
    python tests/benchmarks/turns.py . ../before [--model BLSTM] [--megabatch 40] [--threads 2] [--turns 9]
        [--pairs 4000]
    git worktree remove ../before

Each checkout has a process of its own, which takes the synthetic corpus of its own tests/benchmarks/training.py,
negatives from the opposite side, and a warm-up; then they work one after the other, in one order and in the reverse by
turns. Printed: pairs a second of each, and the ratio to the last checkout of the same turn; median, least and most."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kept import needs, pace, processor

CHILD = """
import sys
model, megabatch, threads, pairs = sys.argv[1], *map(int, sys.argv[2:])
sys.argv = ['training.py', 'opposite', 'synthetic']
import torch, training
from paranmt_lab.jobs.provenance import commit
torch.set_num_threads(threads)
name, corpus = next(training.corpora())
config = training.config(model, name, megabatch, probes=0)
ids, done = training.choose_pairs(corpus), pairs
if hasattr(training, 'Origin'):
    origin = training.Origin(config, training.LAB)
    data = training.prepare(ids, origin, show=False)
    learner = training.EncoderLearner(origin, data)
else:  # an older checkout
    data = training.prepare(corpus, ids, config, training.LAB, show=False)
    learner = (getattr(training, 'EncoderLearner', None) or training.Trainee)(config, data, training.LAB)
training.bare(learner, pairs, 0)
print(commit(), flush=True)
for line in sys.stdin:
    print(training.bare(learner, pairs, done), flush=True)
    done = (done + pairs) % (len(data) - pairs)
"""


def start(tree, model, megabatch, threads, pairs, **variables):
    "Process of a checkout, and its commit, once it is warm. `variables` are added to its environment."
    folders = os.pathsep.join(map(str, (tree, tree / 'tests/benchmarks')))
    errors = tempfile.TemporaryFile('w+')  # and progress bars: shown only where the process ends
    command = [sys.executable, '-W', 'ignore', '-c', CHILD, model, *map(str, (megabatch, threads, pairs))]
    environment = os.environ | {'PYTHONPATH': folders, 'OMP_NUM_THREADS': str(threads)} | variables
    process = subprocess.Popen(command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=errors, text=True)
    process.errors = errors
    return process, answer(process, tree)


def answer(process, tree):
    "The next line of a process, which has none if it ended."
    if line := process.stdout.readline().strip(): return line
    code = process.wait()
    process.errors.seek(0)
    sys.exit(f'{process.errors.read()[-2_000:]}\n'
             f'{tree}: the process ended with {code}; does its tests/benchmarks/training.py run?')


def turn(process, tree):
    "Pairs a second of one turn."
    print('go', file=process.stdin, flush=True)
    return float(answer(process, tree))


def spread(values, digits):
    return f'{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})'


if __name__ == '__main__':
    needs(words='CHECKOUT')
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('trees', nargs='+', type=lambda x: Path(x).resolve())
    p.add_argument('--model', default='BLSTM')
    for name, value in dict(megabatch=40, threads=2, turns=9, pairs=4_000).items():
        p.add_argument(f'--{name}', type=int, default=value)
    a = p.parse_args()
    print(f'{time.strftime("%Y-%m-%d %H:%M")}, {processor()}, '
          f'{os.cpu_count()} cores, {pace()}, load {os.getloadavg()[0]:.2f}; '
          f'{a.model}, M = {a.megabatch}, {a.threads} threads, {a.turns} turns of {a.pairs:,} pairs')
    started = [(*start(tree, a.model, a.megabatch, a.threads, a.pairs), tree) for tree in a.trees]
    rates = [[0.0] * a.turns for _ in started]
    for k in range(a.turns):
        for i in range(len(started))[::-1 if k % 2 else 1]: rates[i][k] = turn(started[i][0], started[i][2])
    for (process, commit, _), found in zip(started, rates):
        process.stdin.close()
        process.wait()
        print(f'{commit:12} {spread(found, 0):>22} pairs/s, '
              f'{spread([x / y for x, y in zip(found, rates[-1])], 2)} of the last')
