"""Pairs per second of the trainer, beside sentence-transformers and the textbook versions in PyTorch.

    python tests/benchmarks/training.py [what ...] [corpus ...] [model ...] [M ...] [opposite] [two] [keep]
        # exact mining peers ours scale flat, all of them unless told; corpora, models and M of `ours`, all unless told,
        # and its pool of negatives, both sides unless told; `two`: with two threads alone; `keep` writes the figures to
        # nbs/papers/speed.json

`ours`: the trainer that users call, from config to metrics (development scoring apart), and beside it the bare step
(mega-batches without a run folder), for WORD, TRIGRAM, WORD,TRIGRAM and BLSTM (150 + 150) at M = 1, 20, 40, 300
dimensions, batch 100, on a synthetic Zipf corpus (vocabulary 50,000, 13.3 words a sentence) and, where the resources
have it, on pairs of WMT 2021-23; with one thread and with two; and where the time goes (of averages all that is read,
for mining too, is forward, rows catch up there, and comparing is backward). `peers`: in the same run, turn by turn with
ours and in a process of their own, sentence-transformers' trainer (StaticEmbedding, in-batch loss, batch 100 and 2,048)
and EmbeddingBag with dense, fused and sparse Adam under our own objective. `exact`: losses of 300 steps against
torch.optim.Adam on the whole matrix. `mining`: the negatives of one mini-batch and of one mega-batch, screened, as a
plain product, and for a mini-batch as the trainer does it. `scale`: memory and pairs per second at 500,000 and
5,000,000 pairs (some ten minutes). `flat`: bare steps over EPOCHS passes, as hinges go flat, beside the same steps with
nothing left out, mega-batch by mega-batch by turns, two threads. Medians, least and most of REPEAT repetitions."""
import atexit
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from kept import keep, needs, peak, processor
from paranmt_lab.corpora.pairs import segment_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders import rows as scattered
from paranmt_lab.ground.settings import settings
from paranmt_lab.jobs.provenance import commit
from paranmt_lab.jobs.workers import keep_freed_memory
from paranmt_lab.training import averages, deferred, loop
from paranmt_lab.training.averages import AverageStep
from paranmt_lab.training.config import train_config
from paranmt_lab.training.data import MegaBatch, choose_pairs, prepare
from paranmt_lab.training.loop import EncoderLearner, train
from paranmt_lab.training.megabatch import batches_of, cosine, epoch_order, margin_loss, mine
from paranmt_lab.training.negatives import SMALL, half_is_fast, mine_compiled
from paranmt_lab.training.optimizer import DenseAdam
from paranmt_lab.training.origin import Origin
from paranmt_lab.training.steppers import AutogradStepper, CompiledStepper

REPEAT, PAIRS, EPOCHS, LETTERS = 3, 120_000, 4, 'abcdefghijklmnopqrstuvwxyzàâçèéêëîïôöûüß'
LAB = replace(settings(), workspace=Path(tempfile.mkdtemp()), resources=Path('/nowhere'), device='cpu')
atexit.register(shutil.rmtree, LAB.workspace, ignore_errors=True)  # gigabytes of checkpoints


def zipf_words(types, rng):
    "Made-up words of three to seven letters, all different."
    words = {''.join(rng.choice(list(LETTERS), n)) for n in rng.integers(3, 8, int(1.2 * types))}
    return np.array(sorted(words))[rng.permutation(len(words))[:types]]


def synthetic(pairs, types=50_000, seed=0):
    "Sentences whose words follow Zipf's law, of 13.3 words on average, no two sides alike."
    rng = np.random.default_rng(seed)
    words, chance = zipf_words(types, rng), 1 / np.arange(1, types + 1)
    lengths = np.clip(rng.gamma(3.2, 4.2, 2 * pairs).astype(int) + 1, 1, 30)
    drawn = words[np.searchsorted(np.cumsum(chance / chance.sum()), rng.random(lengths.sum())).clip(0, types - 1)]
    texts = [' '.join(s) for s in np.split(drawn, np.cumsum(lengths)[:-1])]
    return pd.DataFrame({'reference': texts[::2], 'translation': texts[1::2], 'segment': np.arange(pairs)})


def wmt(pairs):
    "Reference and system output of WMT 2021-23, or None."
    path = settings().resources / 'train/paraphrase/wmt21-23.parquet'
    if not path.exists(): return None
    rows = pd.read_parquet(path).sample(pairs, random_state=0)
    return pd.DataFrame({'reference': rows.reference, 'translation': rows.hypothesis,
                         'segment': [segment_of('wmt', str(x)) for x in rows.segment]})


CORPORA = dict(synthetic=synthetic, wmt=wmt)


def corpora(pairs=PAIRS):
    "Name and corpus of what is asked for and there."
    for name in [name for name in CORPORA if name in sys.argv] or CORPORA:
        if (rows := CORPORA[name](pairs)) is None: continue
        corpus = Corpus.create(name, LAB)
        corpus.write_pairs(0, rows)
        yield name, corpus


POOL = 'opposite' if 'opposite' in sys.argv else 'both'  # where `ours` takes negatives from


def config(model, corpus, M, name='x', **fields):
    "The benchmark's settings: random vectors of 300 dimensions; a BLSTM of 150 in each direction, joined."
    return train_config(name, corpus, model=model, vocabulary=49_999,
                       megabatch=M, epochs=1, hidden=150, join='concat', **{'negatives': POOL} | fields)


@contextmanager
def threads(n):
    torch.set_num_threads(n)
    try: yield
    finally: torch.set_num_threads(1)


def bare(learner, pairs, done=0):
    "Pairs per second of mega-batches and nothing else."
    keep_freed_memory()  # as `fit` does
    size = learner.config.optimizer.batch_size * learner.config.mining.megabatch
    rows = np.arange(done, min(done + max(pairs, size), len(learner.data)))
    pieces, start = batches_of(rows, size), time.perf_counter()
    for rows in pieces:
        for _ in learner.mega_batch(rows): pass
    return sum(map(len, pieces)) / (time.perf_counter() - start)


PARTS = {'gathering': [(MegaBatch, '__init__'), (MegaBatch, 'take'), (AverageStep, 'gather')],
         'mining': [(loop, 'hardest_negatives')],
         'catching up': [(deferred.DeferredAdam, 'read')],
         'backward': [(torch.Tensor, 'backward'), (averages, '_compare')],
         'optimizer': [(deferred.DeferredAdam, 'step'), (AverageStep, 'learn')],
         'encoding for mining': [(AutogradStepper, 'encode'), (CompiledStepper, 'encode')],
         'forward': [(AutogradStepper, 'step'), (AverageStep, 'step'), (AverageStep, 'read')]}


@contextmanager
def clocks():
    "Seconds spent in each part of a step, what it calls left out."
    spent, stack, originals = defaultdict(float), [], []
    def timed(name, function):
        def call(*args, **kwargs):
            start = time.perf_counter()
            stack.append(0.0)
            try: return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                spent[name] += took - stack.pop()
                if stack: stack[-1] += took
        return call
    for name, places in PARTS.items():
        for owner, method in places:
            originals.append((owner, method, getattr(owner, method)))
            setattr(owner, method, timed(name, getattr(owner, method)))
    try: yield spent
    finally:
        for owner, method, function in originals: setattr(owner, method, function)


def spread(values): return f'{np.median(values):>9,.0f} ({min(values):,.0f} to {max(values):,.0f})'


MODELS = 'WORD', 'TRIGRAM', 'WORD,TRIGRAM', 'BLSTM'


def ours(models=MODELS, sizes=(1, 20, 40)):
    "The trainer and the bare step."
    print(f'\nnegatives from: {POOL}\n{"corpus":10} {"model":13} '
          f'{"M":>3} {"threads":>7} {"trainer, pairs/s":>30} {"bare step, pairs/s":>30}   share of the bare step')
    for name, corpus in corpora():
        for model in models:
            slow = model == 'BLSTM'
            for M in sizes:
                for n in ((2,) if 'two' in sys.argv else (1, 2)):
                    with threads(n):
                        c, found, steps = config(model, name, M, probes=0), [], []
                        data = prepare(choose_pairs(corpus), Origin(c, LAB), show=False)
                        learner = EncoderLearner(Origin(c, LAB), data)
                        bare(learner, 4_000)
                        for k in range(REPEAT):
                            steps.append(bare(learner, 2_000 if slow else 12_000, 4_000 + 8_000 * k))
                        with clocks() as spent: bare(learner, 4_000, 36_000)
                        for k in range(REPEAT):
                            found.append(trained(config(model, name, M, f'{name}-{model}-{M}-{n}-{k}'.replace(
                                ',', '-').lower(), limit={'WORD': 0, 'BLSTM': 20_000}.get(model, 40_000)), n))
                    total = sum(spent.values())
                    keep(f'training {name} {model} M={M} threads={n} {POOL}, {processor()}',
                         corpus=name, model=model, M=M, threads=n, pool=POOL, trainer=found, bare=steps, parts=spent)
                    print(f'{name:10} {model:13} {M:3} {n:7} {spread(found):>30} {spread(steps):>30}   ' + ', '.join(
                        f'{part} {t / total:.0%}' for part, t in sorted(spent.items(), key=lambda p: -p[1])),
                          flush=True)


@contextmanager
def nothing_left_out():
    "Work on zeros as on everything else."
    worth, scattered.WORTH = scattered.WORTH, 0
    try: yield
    finally: scattered.WORTH = worth


def flat(models=('WORD', 'TRIGRAM', 'BLSTM'), sizes=(40,)):
    "Share of active hinges and pairs per second of each mega-batch, of the bare step and with nothing left out."
    keep_freed_memory()
    print(f'\nnegatives from: {POOL}\n{"corpus":10} {"model":13} '
          f'{"M":>3} {"active hinges":>14} {"bare step, pairs/s":>30} {"nothing left out":>30}   times')
    for name, corpus in corpora():
        for model in models:
            for M in sizes:
                c = config(model, name, M, probes=0, limit=40_000 if model == 'BLSTM' else 0)
                data = prepare(choose_pairs(corpus, limit=c.data.limit), Origin(c, LAB), show=False)
                ways = [(EncoderLearner(Origin(c, LAB), data), how) for how in (nullcontext, nothing_left_out)]
                found = defaultdict(list)
                with threads(2):
                    for n, rows in enumerate(rows for epoch in range(EPOCHS)
                                             for rows in batches_of(epoch_order(len(data), 0, epoch), 100 * M)):
                        took, active = {}, {}
                        for k in (0, 1) if n % 2 else (1, 0):
                            learner, how = ways[k]
                            figures = []
                            with how(): took[k] = seconds(lambda: figures.extend(learner.step(rows)))
                            active[k] = np.mean([f.sums['active'] for f in figures])
                        for what, x in dict(active=active[0], active_all=active[1],
                                            rate=len(rows) / took[0], rate_all=len(rows) / took[1]).items():
                            found[what].append(x)
                keep(f'flat {name} {model} M={M} {POOL}', corpus=name, model=model,
                     M=M, pool=POOL, pairs=len(data), **found)
                table = pd.DataFrame(found)[1:]  # kernels are loaded in the first mega-batch
                table['times'] = table.rate / table.rate_all
                for share, part in table.groupby(pd.cut(table.active, [0, .1, .2, .3, .4, .5, 1]), observed=True):
                    print(f'{name:10} {model:13} {M:3} {share.left:6.0%} to {share.right:4.0%} '
                          f'{spread(part.rate):>30} {spread(part.rate_all):>30}   {part.times.median():.2f} '
                          f'({part.times.min():.2f} to {part.times.max():.2f})', flush=True)


def trained(c, n):
    "Pairs per second of a whole run, from its own metrics, without the first hundred steps, which load kernels."
    metrics = train(c, replace(LAB, workers=n), show=False).metrics()
    rates = metrics.pairs_per_second.dropna() if 'pairs_per_second' in metrics else pd.Series([np.nan])
    return len(rates[1:]) / (1 / rates[1:]).sum() if len(rates) > 1 else rates.mean()


def embedding_bag(kind, data, M, pairs):
    "Pairs per second of the textbook version: EmbeddingBag, whole mega-batches encoded and mined, torch's optimizers."
    bag = torch.nn.EmbeddingBag(len(data.vocabularies['word']), 300,
                                mode='mean', include_last_offset=True, sparse=kind == 'sparse')
    optimizer = (torch.optim.SparseAdam(bag.parameters()) if kind == 'sparse'
                 else torch.optim.Adam(bag.parameters(), fused=kind == 'fused'))
    vectors = lambda mega, k: bag(*((p := mega.take(k)['word']).ids, p.offsets))
    start, done = time.perf_counter(), 0
    for rows in batches_of(np.arange(max(pairs, 100 * M)), 100 * M):
        mega = MegaBatch(data, rows)
        with torch.no_grad(): every = vectors(mega, np.arange(2 * len(rows))).view(len(rows), 2, -1)
        p1, p2 = mine(*every.unbind(1), mega.segments, 'opposite')
        for batch in torch.arange(len(rows)).split(100):
            a, b, p, q = vectors(mega, torch.cat([2 * batch, 2 * batch + 1, p1[batch], p2[batch]]).numpy()).chunk(4)
            margin_loss(cosine(a, b), torch.stack([cosine(a, p), cosine(b, q)])).backward()
            optimizer.step(); optimizer.zero_grad()
        done += len(rows)
    return done / (time.perf_counter() - start)


def sentence_transformers(corpus, batch, pairs):
    "Pairs per second of its trainer: StaticEmbedding over the same words, in-batch negatives, no mining."
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers
    rows = corpus.frame(['reference', 'translation'], limit=pairs)
    types = {w for text in rows.reference.tolist() + rows.translation.tolist() for w in text.split()}
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(['[UNK]', *sorted(types)][:50_000])}, '[UNK]'))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_weights=np.random.default_rng(
        0).normal(0, .01, (50_000, 300)).astype(np.float32))], device='cpu')
    arguments = SentenceTransformerTrainingArguments(
        tempfile.mkdtemp(dir=LAB.workspace), per_device_train_batch_size=batch, num_train_epochs=1, report_to='none',
        save_strategy='no', logging_strategy='no', disable_tqdm=True, use_cpu=True, learning_rate=1e-3)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_pandas(rows),
                                         loss=MultipleNegativesRankingLoss(model))
    start = time.perf_counter()
    trainer.train()
    return len(rows) / (time.perf_counter() - start)


PEERS = {f'EmbeddingBag, {kind} Adam, M={M}, opposite pool': ('bag', kind, M, n)
         for kind, n in (('dense', 2_000), ('fused', 4_000), ('sparse', 12_000)) for M in (1, 40)}
PEERS |= {f'sentence-transformers, batch {b:,}': ('static', b, n) for b, n in ((100, 10_000), (2048, 40_000))}


@cache
def of_peers():
    "Corpus and arrays of the process that the peers run in."
    torch.set_num_threads(2)
    name, corpus = next(corpora())
    return corpus, prepare(choose_pairs(corpus), Origin(config('WORD', name, 1), LAB), show=False)


def peer(who, kept=False):
    "Pairs per second of a peer, in a process of its own with the C library's memory settings, or with ours (`keep`)."
    corpus, data = of_peers()
    if kept: keep_freed_memory()
    what, *arguments = PEERS[who]
    kind, M, n = arguments if what == 'bag' else (None, None, None)
    return embedding_bag(kind, data, M, n) if what == 'bag' else sentence_transformers(corpus, *arguments)


def peers():
    "WORD beside other programs, on the synthetic corpus, two threads, turn by turn."
    name, corpus = next(corpora())
    with threads(2), ProcessPoolExecutor(1, get_context('spawn')) as other:
        data = prepare(choose_pairs(corpus), Origin(config('WORD', name, 1), LAB), show=False)

        def ours(M, pool):
            return bare(EncoderLearner(Origin(config('WORD', name, M, probes=0, negatives=pool), LAB), data), 40_000)

        contenders = {f'ours, M={M}, {pool} pool': partial(ours, M, pool)
                      for M, pool in ((1, 'opposite'), (40, 'opposite'), (40, 'both'))}
        contenders |= {who: (lambda who=who: other.submit(peer, who).result()) for who in PEERS}
        found = defaultdict(list)
        for _ in range(REPEAT + 1):
            for who, run in contenders.items(): found[who].append(run())
        kept = [who for who in PEERS if 'transformers' in who]
        for _ in range(REPEAT + 1):  # at the end, since there is no way back
            for who in kept: found[f'{who}, freed memory kept'].append(other.submit(peer, who, True).result())
    found = {who: rates[1:] for who, rates in found.items()}  # the first time warms up
    base = np.array(found['ours, M=40, opposite pool'])
    print(f'\n{"WORD, synthetic, two threads":55} {"pairs/s":>30}   times slower than ours at M=40, opposite pool')
    for who, rates in found.items():
        ratio = base / rates
        keep(f'peers {who}', who=who, rates=rates, ratio=ratio.tolist())
        print(f'{who:55} {spread(rates):>30}   {np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f})')


def grown(pairs, shards=250_000):
    "A corpus of that many synthetic pairs, made shard by shard."
    corpus = Corpus.create(f'grown-{pairs}', LAB)
    for shard, first in enumerate(range(0, pairs, shards)):
        rows = synthetic(min(shards, pairs - first), seed=shard + 1)
        corpus.write_pairs(shard, rows.assign(segment=rows.segment + first))
    return corpus


def one_size(pairs):
    "Seconds of preparing, pairs per second of an epoch, and the most memory that was held, in a process of its own."
    torch.set_num_threads(2)
    corpus, c = grown(pairs), config('WORD', f'grown-{pairs}', 40, f'grown-{pairs}')
    before, start = peak() / 2**10, time.perf_counter()
    data = prepare(choose_pairs(corpus), Origin(c, LAB), show=False)
    prepared = time.perf_counter() - start
    arrays = sum(path.stat().st_size for path in data.folder.iterdir()) / 2**30
    rate, seconds = trained(c, 2), time.perf_counter() - start - prepared
    # GiB
    return dict(pairs=pairs, prepared=prepared, arrays=arrays, rate=rate,
                seconds=seconds, before=before, memory=peak() / 2**10)


def scale():
    "The same trainer on ten times the pairs."
    print(f'\n{"WORD, M=40, 2 threads":>22} {"preparing":>10} {"arrays":>9} '
          f'{"epoch":>9} {"pairs/s":>9} {"most memory":>12} (of which before training began)')
    for pairs in (500_000, 5_000_000):
        with ProcessPoolExecutor(1, get_context('spawn')) as other: f = other.submit(one_size, pairs).result()
        keep(f'scale {pairs}', **f)
        print(f'{f["pairs"]:22,} {f["prepared"]:8.0f} s {f["arrays"]:5.2f} '
              f'GiB {f["seconds"]:7.0f} s {f["rate"]:9,.0f} {f["memory"]:8.2f} GiB ({f["before"]:.2f})', flush=True)


def mining():
    "Milliseconds for the negatives of a mini-batch and of a mega-batch."
    keep_freed_memory()
    for pairs, times in ((100, 70), (4_000, 7)): mined(pairs, times)


def mined(pairs, times, dim=300):
    "The same of so many pairs, for vectors that differ and for nearly equal ones; `SMALL` pairs are not screened."
    torch.manual_seed(0)
    ways = (dict(screened=partial(mine_compiled, half=half_is_fast()), plain=mine)
            | (dict(alone=mine_compiled) if pairs <= SMALL else {}))
    print(f'\nmilliseconds for the negatives of {pairs:,} pairs, {dim} dimensions, opposite pool: '
          + ''.join(f'{name:>28}' for name in ways))
    for spread in (1., .01):
        sides = torch.randn(dim) + spread * torch.randn(2, pairs, dim)
        for n in (1, 2):
            with threads(n):
                found = {}
                for name, search in ways.items():
                    search(*sides, torch.arange(pairs), 'opposite')
                    found[name] = [1e3 * seconds(lambda: search(*sides, torch.arange(pairs), 'opposite'))
                                   for _ in range(times)]
            mean = torch.nn.functional.normalize(sides, dim=2).mean((0, 1)).square().sum().item()
            keep(f'mining {spread} threads={n} pairs={pairs}', pairs=pairs,
                 dim=dim, mean_cosine=mean, threads=n, **found)
            print(f'mean cosine {mean:.3f}, {n} thread{"s" * (n > 1)}: '
                  + ''.join(f'{spread_of(x):>28}' for x in found.values()), flush=True)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def spread_of(values): return f'{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})'


class DenseAutograd(AutogradStepper):
    "The reference with torch.optim.Adam on whole matrices."
    def __init__(self, layer, config, data, ranks):
        super().__init__(layer, config, data, ranks)
        self.optimizer = DenseAdam(self.parameters, config.learning_rate)
        layer.train_with(sparse=False)
        for parameter in self.parameters.values(): del parameter.scattered


def exact(steps=300):
    "Losses against torch.optim.Adam on whole matrices: the same start, the same pairs and negatives."
    name, corpus = next(corpora())
    c = config('WORD', name, 1, probes=0)
    data = prepare(choose_pairs(corpus), Origin(c, LAB), show=False)
    losses, negatives, search = [], [], loop.hardest_negatives

    def noted(*pairs):
        negatives.append(search(*pairs))
        return negatives[-1]

    try:
        with threads(2):
            for kind in (None, DenseAutograd):
                remembered = iter(negatives)
                loop.hardest_negatives = (lambda *pairs: next(remembered)) if kind else noted
                learner = EncoderLearner(Origin(c, LAB), data, kind=kind)
                pieces = batches_of(np.arange(100 * steps), 100)
                losses.append([step.loss for rows in pieces for step in learner.mega_batch(rows)])
    finally: loop.hardest_negatives = search
    gap = np.abs(np.subtract(*losses))
    keep('exact', deferred=losses[0], dense=losses[1])
    print(f'\nlosses of {steps} steps against dense torch.optim.Adam (WORD, 50,000 x 300): '
          f'largest difference {gap.max():.1e}, at the last step {gap[-1]:.1e}; '
          f'the loss went from {losses[1][0]:.3f} to {losses[1][-1]:.3f}')


if __name__ == '__main__':
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'
    torch.set_num_threads(1)
    print(f'{time.strftime("%Y-%m-%d")}, commit {commit()}, {os.cpu_count()} CPU cores, '
          f'torch {torch.__version__}, load before the start {os.getloadavg()[0]:.2f}')
    models, sizes = [a for a in sys.argv[1:] if a in MODELS], [int(a) for a in sys.argv[1:] if a.isdigit()]
    parts = [a for a in sys.argv[1:] if a not in (*MODELS, *CORPORA, 'opposite', 'two', 'keep') and not a.isdigit()]
    if not parts or 'peers' in parts: needs('datasets', 'accelerate', 'sentence_transformers')
    what = {'exact': exact, 'mining': mining, 'peers': peers,
            'ours': lambda: ours(models or MODELS, sizes or (1, 20, 40)),
            'scale': scale, 'flat': lambda: flat(models or ('WORD', 'TRIGRAM', 'BLSTM'), sizes or (40,))}
    for part in parts or what: what[part]()
