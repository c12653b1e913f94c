"""What nbs/papers/translation.ipynb shows: how well the models translate what they were not trained on, and
back-translation from start to end.

    python nbs/papers/translation.py bleu [MODEL ...] [PAIR ...] [keep]
        # marian-cs-en-tiny and apertium:spa-eng, greedy and beam 12
    python nbs/papers/translation.py run SENTENCES ... [keep]
        # so many real Czech sentences at beam 12, 4 best: rate and peak memory
    python nbs/papers/translation.py memory SENTENCES ... [keep]
        # the driver's own memory on so many made-up sentences, with an engine that does nothing
    python nbs/papers/translation.py shortlists [keep]
        # shortlists of several sizes against the whole vocabulary: speed, BLEU, scores

PARANMT_RESOURCES names the folder that holds `train/bitext`. `keep` writes the figures to nbs/papers/translation.json.
The benchmarks of speed keep theirs in the same file:

    python tests/benchmarks/translation.py keep
    python tests/benchmarks/engines.py keep"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from sacrebleu.metrics import BLEU

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding, Hypothesis
from paranmt_lab.ground.models import find_model, open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.translate.data import split_held_out
from paranmt_lab.translate.driver import translate_corpus
from paranmt_lab.translate.shortlist import learn_candidates, make_shortlist

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import TRANSLATION, keep, peak

DOMAINS = ('tatoeba-test-v2021', 'multi30k-val', 'newstest2017', 'newstest2014')
BEAMS = (1, 12)
# language of a pair of Apertium: its bitext, and what is drawn of it as for our models; the latest news that there is
RULES = {'spa': ('es', {'tatoeba-test-v2021': 1000, 'newstest2013': -1})}
MODEL, PAIR = 'marian-cs-en-tiny', 'apertium:spa-eng'


def bitext(language, s):
    "Bitext of a language with English, or nothing where it is not here."
    path = s.resources / f'train/bitext/{language}-en.parquet'
    return pd.read_parquet(path).astype({'corpus': str}) if path.exists() else None


def card_of(model, s): return (find_model(model, s) / 'README.md').read_text()


def card_facts(model, s):
    "Data and work of a model, from its card."
    return {what.lower(): re.search(rf'\*\*{what}\*\*: (.*?)\.?\n', card_of(model, s))[1] for what in ('Data', 'Work')}


def parts(model, s):
    "Pairs that a model was trained on, and its held-out pairs, drawn again as its card says; the numbers must agree."
    card = card_of(model, s)
    config = json.loads(re.search(r'```json\n(.*?)\n```', card, re.S)[1])
    pairs = bitext(config['source_lang'], s)
    if pairs is None: return None, None
    part = split_held_out(pairs, config['held_out'], config['seed'])
    found = pairs[part == 'held out']
    said = re.search(r'held out: ([\d,]+)|([\d,]+) pairs are held out', card)  # as written now, and until November 2026
    number = int((said[1] or said[2]).replace(',', ''))
    if len(found) != number:
        raise ValueError(f'{len(found):,} pairs are held out and the card of {model} says {number:,}: '
                         'this is not the bitext that it was trained on')
    return pairs[part == 'train'], found


def held_out(model, s): return parts(model, s)[1]


def for_rules(pair, s):
    "Pairs that Apertium is measured on. Nothing was trained on them."
    language, drawn = RULES.get(pair.split('-')[0], ('', {}))
    pairs = bitext(language, s) if language else None
    return None if pairs is None else pairs[split_held_out(pairs, drawn) == 'held out']


def measured(engine, part, beam):
    "BLEU of one domain, with the half width of its 95 % interval by a thousand resamplings."
    start = time.perf_counter()
    found = [hypotheses[0].text for hypotheses in engine.translate(part.source.tolist(), Decoding(beam))]
    seconds, metric = time.perf_counter() - start, BLEU()
    score = metric.corpus_score(found, [part.reference.tolist()], n_bootstrap=1000)
    facts = json.loads(score.format(width=2, signature=str(metric.get_signature()), is_json=True))
    return dict(beam=beam, sentences=len(part), bleu=facts['score'],
                interval=facts['confidence_var'], lengths=round(score.sys_len / score.ref_len, 3),
                seconds=round(seconds, 1), signature=str(metric.get_signature()))


def bleu(name, s):
    "BLEU of a model, or of Apertium, on every domain that it can be asked of."
    rules = name.startswith('apertium:')
    try: engine = open_model(name if rules else f'ct2:{name}', s)
    except FileNotFoundError as e: print(f'{name}: not available: {e}'); return
    pairs = for_rules(name.partition(':')[2], s) if rules else held_out(name, s)
    if pairs is None: print(f'{name}: not available: its bitext is not in {s.resources}'); return
    domains = sorted(pairs.corpus.unique()) if rules else [d for d in DOMAINS if d in set(pairs.corpus)]
    rows = [dict(domain=d) | measured(engine, pairs[pairs.corpus == d], beam)
            for d in domains for beam in ((1,) if rules else BEAMS)]
    print(name, pd.DataFrame(rows).drop(columns='signature').to_string(index=False),
          rows[0]['signature'], sep='\n', flush=True)
    keep(f'bleu {name}', TRANSLATION, system=name, identity=engine.identity,
         rows=rows, **({} if rules else card_facts(name, s)))


def run(n, s):
    "The driver's command on `n` sentences of the real bitext in a workspace of its own, all of it with one process."
    pairs = bitext('cs', s)
    if pairs is None: sys.exit(f'the Czech bitext is not in {s.resources}')
    with tempfile.TemporaryDirectory() as folder:
        lab = replace(s, workspace=Path(folder))
        Corpus.create('czech', lab).write_pairs(0, pairs.sample(n, random_state=0).assign(source_lang='cs'))
        command = [sys.executable, '-m', 'paranmt_lab', 'translate',
                   'czech', 'back', '--engine-workers', '1', '--n-best', '4']
        start = time.perf_counter()
        _, status, used = os.wait4(subprocess.Popen(command, env=dict(os.environ, PARANMT_WORKSPACE=folder)).pid, 0)
        if status: sys.exit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
        seconds, facts = time.perf_counter() - start, Corpus.open('back', lab).manifest('translate')
    # GiB
    figures = dict(sentences=n, distinct=facts['sources'], pairs=facts['pairs'],
                   beam=12, n_best=4, workers=1, seconds=round(seconds, 1), rate=round(n / seconds, 2),
                   translating=round(facts['seconds'], 1), memory=round(used.ru_maxrss / 2**20, 3))
    print(figures, flush=True)
    keep(f'run {n}', TRANSLATION, **figures)


SIZES = 25, 50, 100, 200, 400  # candidates of a source piece
TURNS, TESTED = 3, ('tatoeba-test-v2021', 'newstest2017')


def shortlists(s):
    "Shortlists learnt from the training pairs, and none, on 500 held-out sentences of each domain, by turns, beam 12."
    train, held = parts(MODEL, s)
    if train is None: sys.exit(f'the Czech bitext is not in {s.resources}')
    whole, found = open_model(f'ct2:{MODEL}', s), {}
    tested = pd.concat([held[held.corpus == domain].sample(500, random_state=0) for domain in TESTED])
    start = time.perf_counter()
    chance, counts = learn_candidates(whole, train)
    learnt = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        engines = ({None: whole} | {size: type(whole)(make_shortlist(whole, chance, Path(folder) / f'{size}', size))
                                    for size in SIZES})
        seconds = {size: [] for size in engines}
        for _ in range(TURNS):
            for size, engine in engines.items():
                start = time.process_time()
                found[size] = [hypotheses[0] for hypotheses in engine.translate(tested.source.tolist(), Decoding(12))]
                seconds[size].append(time.process_time() - start)
    rows = [compared(size, found[size], found[None], np.array(seconds[None]) / seconds[size], tested)
            for size in engines]
    print(pd.DataFrame(rows).round(3).to_string(index=False), flush=True)
    keep(f'shortlists {MODEL}', TRANSLATION, **counts, learnt=round(learnt, 1),
         turns=TURNS, sentences=len(tested), rows=rows)


def compared(size, few, whole, times, tested):
    "One line: speed, share of equal translations, BLEU of each domain, and scores beside those without a shortlist."
    alike = np.array([a.text == b.text for a, b in zip(few, whole)])
    a, b = (np.array([h.score for h in hypotheses])[alike] for hypotheses in (few, whole))
    bleu = {domain: round(BLEU().corpus_score([h.text for h, there in zip(few, tested.corpus == domain) if there],
                                              [tested.reference[tested.corpus == domain].tolist()]).score, 2)
            for domain in TESTED}
    return dict(each=size, times=round(float(np.median(times)), 3), least=round(float(times.min()), 3),
                most=round(float(times.max()), 3), alike=round(float(alike.mean()), 4), **bleu,
                higher=round(float((a - b).mean()), 4), correlation=round(float(np.corrcoef(a, b)[0, 1]), 4))


class Idle:
    "An engine that has four things to say of whatever it is given."
    identity, halved = {'engine': 'idle'}, 0

    def translate(self, sources, decoding, advance=None):
        if advance: advance(len(sources), len(sources), 0)
        return [[Hypothesis(f'{text} {k}', -1. - k, 1) for k in range(4)] for text in sources]


def memory(n):
    "Memory that the driver adds to its process, for `n` distinct sentences of fourteen words in shards of 100,000."
    words, draw = np.array([f'word{k}' for k in range(20_000)]), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        lab = replace(settings(), workspace=Path(folder))
        bitext = Corpus.create('bitext', lab)
        for shard, first in enumerate(range(0, n, 100_000)):
            texts = [' '.join(row) for row in words[draw.integers(0, len(words), (min(100_000, n - first), 14))]]
            bitext.write_pairs(shard,
                               pd.DataFrame(dict(source=texts, reference=texts, source_lang='cs', corpus='made up')))
        before = peak() / 2**10
        translate_corpus(bitext, 'pairs', Idle(), lab, Decoding(12, n_best=4), show=False)
    return before, peak() / 2**10  # GiB


if __name__ == '__main__':
    what, *names = [a for a in sys.argv[1:] if a != 'keep'] or ['']
    if what == 'shortlists': shortlists(settings())
    elif what == 'bleu':
        for name in names or (MODEL, PAIR): bleu(name, settings())
    elif what == 'run' and names:
        for n in names: run(int(n), settings())
    elif what == 'memory' and names:
        for n in map(int, names):
            with ProcessPoolExecutor(1, get_context('spawn')) as other: before, most = other.submit(memory, n).result()
            print(f'{n:,} sentences: {most:.3f} GiB, of which {before:.3f} before the driver began', flush=True)
            keep(f'memory {n}', TRANSLATION, sentences=n, before=round(before, 3), memory=round(most, 3))
    else: sys.exit(__doc__)
