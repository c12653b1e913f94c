"""What a card changes, beside the same on the processor: one command of at most eight minutes.

    python tests/benchmarks/gpu.py              # writes build/gpu.json after each figure, so that a kill loses nothing
    python tests/benchmarks/gpu.py --quick      # tiny sizes, some 20 seconds, to see that it runs
    python tests/benchmarks/gpu.py keep         # also for nbs/papers/speed.ipynb: nbs/papers/speed.json, part `gpu`

Without a card the processor's part is measured, and the card's is noted as not measured; a figure that fails is noted
with its error. `scale`: five epochs of five million drawn pairs with WORD, extrapolated where the time does not allow
all. `training`: each stepper of the library (`one by one`: the resident one without a graph), pairs a second, and pairs
and seconds until Pearson's r times 100 with the sample's graded pairs is `--goal`; seconds are of steps alone, recorded
graphs among them. sentence-transformers: StaticEmbedding of the same words, MultipleNegativesRankingLoss, batches of
2,048 and a rate of 0.2, in a plain loop. Pairs: the sample's references with the shipped model's translations, and WMT
of train/paraphrase where the resources have it, else made-up pairs."""
import argparse
import math
import os
import signal
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # works from a checkout that is not installed

from gpu_translation import NotMeasured, agreement, large, require, translated
from kept import ROOT, keep, pace, peak, processor
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.names import Recurrent
from paranmt_lab.encoders.sentence_encoder import ByCosine, build_encoder
from paranmt_lab.evaluation.tasks import development_score
from paranmt_lab.ground.settings import write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.tokens.subwords import vocabulary_file
from paranmt_lab.tokens.text import Vocabulary, tokenize
from paranmt_lab.training import resident
from paranmt_lab.training.config import train_config
from paranmt_lab.training.data import TrainingData, choose_pairs, prepare
from paranmt_lab.training.loop import EncoderLearner
from paranmt_lab.training.origin import Origin
from paranmt_lab.training.steppers import AutogradStepper, CompiledStepper, ResidentStepper
from training import LAB, synthetic, wmt, zipf_words

MODELS, CARD, EPOCHS, BEAM = ('WORD', 'TRIGRAM', 'BLSTM', 'GRAN'), 'cuda', 5, 12
WAYS = {'compiled': CompiledStepper, 'resident': ResidentStepper, 'one by one': ResidentStepper,
        'autograd': AutogradStepper}
UNITS = dict(seconds='s for five epochs', pairs_per_second='pairs/s', pairs_to_goal='pairs to the goal',
             seconds_to_goal='s to the goal', sentences_per_second='sentences/s', hours='hours for 51.4 million',
             same='of the texts the same on both', card_gib='GiB of the card', process_gib='GiB of the process')


@dataclass(frozen=True)
class Size:
    "Pairs to train on, sentences of the sample, pairs of `scale`; entries, embeddings, states; the large model."
    pairs: int = 60_000
    sample: int = 1_200
    scale: int = 5_000_000
    types: int = 50_000
    dim: int = 300
    hidden: int = 150
    large: tuple = 512, 6, 512  # width, layers, sentences of a batch
    most: float = math.inf      # seconds of a figure


QUICK = Size(200, 12, 1_000, 1_000, 20, 10, (32, 1, 8), .1)


@contextmanager
def limit(seconds):
    "Stop what takes far longer than it may."
    def late(number, frame): raise NotMeasured(f'it took more than {seconds:.0f} seconds')
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally: signal.setitimer(signal.ITIMER_REAL, 0)


class Report:
    "Figures, printed and written as they come."
    def __init__(self, path, end, facts):
        self.path, self.end, self.facts, self.rows, self.plan = path, end, facts, [], []

    def add(self, part, what, device, weight, call):
        "Plan a figure: `call` gets the device and its share of the seconds."
        self.plan.append((part, what, device, weight, call))

    def measure(self, most):
        "Take all figures; who needs less time than its share leaves it to the others."
        there = ['cpu', CARD][:1 + torch.cuda.is_available()]
        while self.plan:
            part, what, device, weight, call = self.plan[0]
            left, weights = self.end - time.perf_counter(), sum(w for _, _, d, w, _ in self.plan if d in there)
            self.note(dict(part=part, what=what, device=device)
                      | (self.tried(call, device, left, left * weight / weights, most) if device in there
                         else {'not measured': 'no card here'}))
            del self.plan[0]

    def tried(self, call, device, left, share, most):
        "Figures, or why there are none; 0.6 of a share is for measuring, the rest for preparing."
        try:
            if left < 1: raise NotMeasured('the time was over')
            with limit(left if share > most else min(left, 1.5 * share + 10)):
                return call(device, min(.6 * share, most))
        except NotMeasured as e: return {'not measured': str(e)}
        except Exception as e: return {'not measured': f'{type(e).__name__}: {e}'[:400]}
        finally: torch.cuda.empty_cache()

    def note(self, row):
        "Print a row and write all."
        self.rows.append(row)
        figures = [f'{row[k]:,.{0 if row[k] >= 100 else 2}f} {unit}' for k, unit in UNITS.items() if k in row]
        notes = [f'{name}: {row[name]}' for name in ('not measured', 'note') if name in row]
        print(f"{row['part']:17} {row['what']:27} {row['device']:5} {', '.join(figures + notes)}", flush=True)
        write_json(self.path, self.facts | dict(rows=self.rows))


def machine(minutes, goal):
    "Facts of the machine."
    memory, driver = Path('/proc/meminfo'), Path('/proc/driver/nvidia/version')
    facts = provenance() | dict(processor=processor(), cores=os.cpu_count(), minutes=minutes, goal=goal) | pace()
    if memory.exists(): facts['memory_gib'] = round(int(memory.read_text().split()[1]) / 2**20, 1)
    if not torch.cuda.is_available(): return facts | dict(card=None)
    card = torch.cuda.get_device_properties(0)
    return facts | dict(card=card.name, card_gib=round(card.total_memory / 2**30, 1), cuda=torch.version.cuda,
                        driver=driver.read_text().splitlines()[0] if driver.exists() else 'unknown')


def pairs_of(rows, size):
    "Pairs to train on, and where they are from."
    columns, texts = ['reference', 'translation', 'segment'], []
    try: translated('cpu', min(20, size.most), LAB, rows.source.tolist(), 1, texts)
    except (NotMeasured, OSError): texts = []
    own = rows[:len(texts)].assign(translation=texts, segment=np.arange(len(texts)))
    more, name = wmt(size.pairs), 'WMT 2021-23'
    if more is None: more, name = synthetic(size.pairs, size.types), 'made-up ones'
    pairs = pd.concat([own[columns], more.assign(segment=more.segment + len(own))[columns]], ignore_index=True)
    return pairs, f'{len(own):,} pairs of the sample and {len(more):,} of {name}'


def config(model, size):
    return train_config('gpu', 'pairs', model=model, vocabulary=size.types - 1, dim=size.dim, hidden=size.hidden,
                        join='concat', epochs=EPOCHS, probes=0)


@contextmanager
def one_by_one():
    "A step of the resident stepper is not recorded as a graph."
    def single(learner, rooms): return type('Steps', (), dict(replay=lambda self: resident._step(learner, rooms)))()
    graphs, resident._record = resident._record, single
    try: yield
    finally: resident._record = graphs


class Clock:
    "Pairs done and the seconds of their steps; `look` is called at ten moments, with both."
    def __init__(self, device, seconds, look=lambda done, spent: None):
        self.device, self.end, self.look, self.between = device, time.perf_counter() + seconds, look, seconds / 10
        self.done, self.spent, self.due = 0, 0., seconds / 10

    def step(self, pairs, call):
        "Time a step; whether there is time for another."
        start = time.perf_counter()
        call()
        if self.device == CARD: torch.cuda.synchronize()
        self.spent, self.done = self.spent + time.perf_counter() - start, self.done + pairs
        if self.spent >= self.due:
            self.due = self.spent + self.between
            self.look(self.done, self.spent)
        return time.perf_counter() < self.end


def learn(learner, clock, epochs):
    "Train until the time is over, or for so many epochs."
    for epoch in range(epochs):
        learner.at.epoch = epoch
        for rows in learner.batches():
            if not clock.step(len(rows), lambda: list(learner.mega_batch(rows))): return


class Goal:
    "Notes when a development score is reached."
    def __init__(self, goal, system): self.goal, self.system, self.best, self.reached = goal, system, -math.inf, {}

    def __call__(self, done, spent):
        score = development_score(self.system(), LAB)[0]
        self.best = max(self.best, score)
        if score >= self.goal and not self.reached: self.reached = dict(pairs_to_goal=done, seconds_to_goal=spent)

    def figures(self, clock):
        "All that is known at the end."
        self(clock.done, clock.spent)
        note = {} if self.reached else dict(note=f'at best {self.best:.1f}, the goal was not reached')
        return dict(pairs_per_second=clock.done / clock.spent, pairs=clock.done, best=self.best) | self.reached | note


def fresh(device, model, data, size, kind=None):
    "A learner, after another one has loaded the kernels."
    origin = Origin(config(model, size), replace(LAB, device=device))
    first = EncoderLearner(origin, data, kind=kind)
    list(first.mega_batch(first.batches()[0]))
    return EncoderLearner(origin, data, kind=kind)


def trained(device, seconds, model, way, data, size, goal):
    "Rate of a stepper, and what it takes to the goal."
    with one_by_one() if way == 'one by one' else nullcontext():
        learner = fresh(device, model, data(model), size, WAYS[way])
        clock = Clock(device, seconds, Goal(goal, learner.snapshot))
        learn(learner, clock, 10**6)
    return clock.look.figures(clock)


class Theirs(ByCosine):
    "A model of sentence-transformers, to be scored."
    def __init__(self, model): self.encode = lambda texts, **_: model.encode(list(texts), show_progress_bar=False)


def peer(device, seconds, pairs, size, goal):
    "The same of sentence-transformers."
    require('sentence_transformers')
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    words = Vocabulary.build(map(tokenize, [*pairs.reference, *pairs.translation]), size.types - 1).tokens
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(['[UNK]', *words])}, '[UNK]'))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    torch.manual_seed(0)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=size.dim)], device=device)
    loss, optimizer = MultipleNegativesRankingLoss(model), torch.optim.Adam(model.parameters(), .2)
    def step(rows):
        sides = [model.preprocess(rows[side].tolist()) for side in ('reference', 'translation')]
        loss([{k: x.to(device) for k, x in side.items() if torch.is_tensor(x)} for side in sides], None).backward()
        optimizer.step(), optimizer.zero_grad()
    draw, n = np.random.default_rng(0), min(2_048, len(pairs))
    clock = Clock(device, seconds, Goal(goal, lambda: Theirs(model)))
    while clock.step(n, partial(step, pairs.iloc[draw.choice(len(pairs), n, replace=False)])): pass
    return clock.look.figures(clock)


def drawn(pairs, size):
    "Arrays of word numbers that follow Zipf's law, 13.3 a sentence, as a training reads them."
    folder, draw, end = LAB.workspace / f'drawn-{pairs}', np.random.default_rng(0), 0
    if folder.exists(): return TrainingData(folder)
    folder.mkdir()
    Vocabulary(zipf_words(size.types, draw).tolist()).save(folder / vocabulary_file('word'))
    for name in ('pair_id', 'segment'): np.arange(pairs).tofile(folder / name)
    with (folder / 'word.ids').open('wb') as ids, (folder / 'word.offsets').open('wb') as offsets:
        np.zeros(1, np.int64).tofile(offsets)
        for k in range(0, pairs, 250_000):
            lengths = np.clip(draw.gamma(3.2, 4.2, 2 * min(250_000, pairs - k)).astype(int) + 1, 1, 30)
            (np.exp(draw.random(lengths.sum(), np.float32) * np.log(size.types)) - 1).astype(np.int32).tofile(ids)
            (end + np.cumsum(lengths)).tofile(offsets)
            end += lengths.sum()
    return TrainingData(folder)


def scale(device, seconds, size):
    "Five epochs of very many pairs, and the most memory."
    if (path := Path('/proc/self/clear_refs')).exists(): path.write_text('5')  # the peak begins anew
    if device == CARD: torch.cuda.reset_peak_memory_stats()
    learner, whole = fresh(device, 'WORD', drawn(size.scale, size), size), EPOCHS * size.scale
    learn(learner, clock := Clock(device, seconds), EPOCHS)
    card = dict(card_gib=torch.cuda.max_memory_allocated() / 2**30) if device == CARD else {}
    note = {} if clock.done == whole else dict(note=f'extrapolated from {clock.done:,} pairs')
    return dict(seconds=clock.spent * whole / clock.done, pairs_per_second=clock.done / clock.spent, pairs=clock.done,
                process_gib=peak() / 2**10) | card | note


def encoded(device, seconds, model, sentences, data, size):
    "Sentences a second, from text to vectors."
    threads = os.cpu_count() if device == 'cpu' else 1
    encoder = build_encoder(model, data(model).vocabularies, size.dim, recurrent=Recurrent(hidden=size.hidden))
    encoder.layer.to(device)
    encoder.encode(sentences[:2_000])
    start, n = time.perf_counter(), 0
    while not n or time.perf_counter() - start < seconds:
        n += len(encoder.encode(sentences[n % len(sentences):][:16_384], threads=threads))
    return dict(sentences_per_second=n / (time.perf_counter() - start))


def main(o):
    start, size = time.perf_counter(), QUICK if o.quick else Size()
    torch.set_num_threads(1 if o.quick else os.cpu_count())
    report = Report(o.output, start + 60 * o.minutes, machine(o.minutes, o.goal))
    print(', '.join(f'{k} {v}' for k, v in report.facts.items()))
    if not torch.cuda.is_available(): print('no card here: the processor is measured alone')
    rows = pd.read_csv(LAB.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).drop_duplicates('source')[:size.sample]
    pairs, report.facts['trained_on'] = pairs_of(rows, size)
    (corpus := Corpus.create('pairs', LAB)).write_pairs(0, pairs)
    ids, sentences, texts = choose_pairs(corpus), pairs.reference.tolist(), {'cpu': [], CARD: []}
    def data(model): return prepare(ids, Origin(config(model, size), LAB), show=False)
    for device in texts:
        report.add('scale', f'WORD, {size.scale:,} pairs', device, 7, partial(scale, size=size))
        for model in MODELS:
            for way in [w for w in WAYS if o.quick or w != ('one by one' if device == 'cpu' else 'compiled')]:
                if way != 'autograd' and model in ('BLSTM', 'GRAN') or way == 'compiled' and device == CARD: continue
                call = partial(trained, model=model, way=way, data=data, size=size, goal=o.goal)
                report.add('training', f'{model}, {way}', device, 2, call)
        call = partial(peer, pairs=pairs, size=size, goal=o.goal)
        report.add('training', 'WORD, sentence-transformers', device, 2, call)
        for model in MODELS[:3]:
            call = partial(encoded, model=model, sentences=sentences, data=data, size=size)
            report.add('encoding', model, device, 1, call)
        call = partial(translated, s=LAB, sources=rows.source.tolist(), beam=BEAM, texts=texts[device])
        report.add('translation', f'beam {BEAM}', device, 2.5, call)
        for beam in (1, 4, BEAM):
            call = partial(large, beam=beam, folder=LAB.workspace / 'large', size=size.large)
            report.add('large translation', f'beam {beam}', device, 1, call)
    report.plan.sort(key=lambda f: (f[0] != 'scale', f[0] != 'scale' and f[2] == 'cpu'))  # what is slow comes last
    report.add('translation', 'agreement', CARD, .1, partial(agreement, ours=texts['cpu'], theirs=texts[CARD]))
    report.measure(size.most)
    keep('gpu', **report.facts, rows=report.rows)
    print(f'{o.output}, after {(time.perf_counter() - start) / 60:.1f} minutes')


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('keep', nargs='?', choices=['keep'], help='also write nbs/papers/speed.json')
    p.add_argument('--minutes', type=float, default=8, help='all together')
    p.add_argument('--goal', type=float, default=62, help='development score, Pearson times 100')
    p.add_argument('--output', type=Path, default=ROOT / 'build/gpu.json')
    p.add_argument('--quick', action='store_true', help='tiny sizes')
    main(p.parse_args())
