"""Uses of generators that `paranmt`, section 6, names: adversarial examples, and more training data for an encoder.

    python nbs/papers/generation_uses.py adversarial
        # generation.json, `adversarial`: how many predictions of an SST-2 classifier paraphrases turn, how many of
        # these a scorer of meaning keeps, and what training on paraphrases mends
    python nbs/papers/generation_uses.py augmentation
        # generation.json, `augmentation`: WORD and BLSTM with and without generated pairs, STS 2017, three seeds

The models `canonicaliser` and `syntactic`, the corpus `canonical` and the model all-MiniLM-L6-v2 must be there:
`generation.py` and `generation_syntax.py` make the first three. PARANMT_RESOURCES names the folder that holds `eval`
and `train`. Outputs of generators and finished trainings are kept in the workspace, folder `uses`, so that a stopped
step goes on where it was."""
import shutil
import sys
import time
import zlib

import numpy as np
import pandas as pd

from generation import FILE, SCORERS, written
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.evaluation.transfer import (
    GRIDS,
    TRANSFER,
    fit_regressions,
    principal_axes,
    targets,
    task_examples,
    usable_files,
)
from paranmt_lab.evaluation.uncertainty import RESAMPLES, draw_counts
from paranmt_lab.generation.engine import open_generator
from paranmt_lab.ground.fields import alter
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import atomic, read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.recipes.generation import APART
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train

SEEDS = 0, 1, 2
WORDS = 12              # Words of a sentence at most: those of the pairs that the syntactic network was trained on
CANDIDATES = 6          # Paraphrases of a sentence
BEAM = 4                # Of the syntactic network; a list of the canonicaliser has as many beams as sentences
TRAINED = 500           # Training examples whose paraphrases are added, of each seed
ALIKE = 0., .7, .8      # Cosines by all-MiniLM-L6 from which a paraphrase counts as one of the same meaning
GLOVE = 'train/vectors/glove-6b-100d-60k.txt.gz'


def kept(name, engine, texts, make, s):
    "A table that was made before by the same model of the same texts, or a new one."
    key = zlib.crc32(repr((sorted(engine.identity['files'].items()), CANDIDATES, BEAM, list(texts))).encode())
    path = s.workspace / f'uses/{name}-{key:08x}.parquet'
    if not path.exists():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as part: found.to_parquet(part)
    return pd.read_parquet(path)


# Adversarial examples

def sentence(text):
    "A text of SST, which is in lower case, with its first letter as in a sentence."
    text = written(text)
    return text[:1].upper() + text[1:]


def sentiment_examples(s):
    "Sentences of SST-2 by part (0 training, 1 development, 2 test), as people write them; label 0 or 1."
    task, folder = TRANSFER['SST'], s.resources / 'eval'
    found = task_examples(task, usable_files(task, folder), folder)
    found = found.assign(text=[sentence(text) for text in found.text], label=found.label.astype(int))
    return found.assign(short=found.text.str.count(r'\S+').between(4, WORDS))


def letters(texts): return texts.str.lower().str.replace(r'\W+', ' ', regex=True).str.strip()


def candidates(texts, lists):
    "A row for each paraphrase: the number of its sentence, and the text; no copies, and none twice."
    found = pd.DataFrame([(i, text) for i, of_one in enumerate(lists) for text in of_one if text.strip()],
                         columns=['row', 'text'])
    found = found[letters(found.text).to_numpy() != letters(pd.Series(texts)).to_numpy()[found.row]]
    return found[~found.assign(text=letters(found.text)).duplicated()].reset_index(drop=True)


def syntactic_paraphrases(engine, texts, s):
    "Paraphrases for the most frequent templates."
    def make():
        by_template = [[hs[0].text for hs in engine.paraphrase(texts, template, Decoding(BEAM))]
                       for template in engine.templates.template.head(CANDIDATES)]
        return candidates(texts, zip(*by_template))
    return kept('syntactic', engine, texts, make, s)


def best_paraphrases(engine, texts, s):
    "The n-best list of a beam."
    make = lambda: candidates(texts, [[h.text for h in hs]
                                      for hs in engine.translate(texts, Decoding(CANDIDATES, CANDIDATES))])
    return kept('n-best', engine, texts, make, s)


def shuffled(words, rng): return list(rng.permutation(words))


def shortened(words, rng):
    gone = int(rng.integers(len(words)))
    return words[:gone] + words[gone + 1:]


def disturbed(texts, change, seed):
    "Each sentence, changed at random several times."
    rng = np.random.default_rng(seed)
    return candidates(texts, [[' '.join(change(text.split(), rng)) for _ in range(CANDIDATES)] for text in texts])


class Sentiment:
    "A classifier of SST by the procedure of `evaluation/14_transfer`."
    def __init__(self, examples, encode):
        self.examples, self.encode, self.known = examples, encode, {}

    def features(self, texts):
        if new := [text for text in dict.fromkeys(texts) if text not in self.known]:
            self.known |= zip(new, np.asarray(self.encode(new), np.float32))
        return np.array([self.known[text] for text in texts])

    def predict(self, texts, more=None):
        "Train, with more examples if any are given; the classes of the texts, and the C that development chose."
        added = [] if more is None else [more.assign(part=0)]
        rows = pd.concat([self.examples, *added, pd.DataFrame(dict(text=texts, label=0, part=3))])
        part_n, label_n, grid = rows.part.to_numpy(), rows.label.to_numpy(), GRIDS['split']
        axes, y_nk = principal_axes(self.features(list(rows.text))), targets(label_n)
        trains_nf = np.repeat((part_n == 0)[:, None], len(grid), 1)
        said_nf = fit_regressions(axes, y_nk, trains_nf, grid)[:, :, 0] > 0
        right_f = (said_nf == label_n[:, None])[part_n == 1].mean(0)
        best = int(np.round(100 * right_f, 2).argmax())
        return said_nf[part_n == 3, best].astype(int), float(grid[best])


def share(values_n, seed=0):
    "Mean in percent, and the ends of its 95 % interval by the bootstrap over sentences."
    values_n = np.asarray(values_n, float)
    means = draw_counts(len(values_n), RESAMPLES, np.random.default_rng(seed)) @ values_n / len(values_n)
    low, high = np.percentile(100 * means, [2.5, 97.5])
    return dict(value=100 * float(values_n.mean()), low=float(low), high=float(high), n=len(values_n))


def turned_rows(attack, found, right_n, same):
    "Shares of the sentences whose right prediction a paraphrase turns, by the least similarity of such a paraphrase."
    rows = []
    for least in ALIKE:
        within = found[found.alike >= least] if least else found
        has_n = np.isin(np.arange(len(right_n)), within.row)
        turned_n = np.isin(np.arange(len(right_n)), within.row[~same[within.index]])
        rows.append(dict(attack=attack, least_similarity=least, **share(turned_n[right_n]),
                         with_paraphrase=100 * float(has_n[right_n].mean()),
                         paraphrases=len(within) / len(right_n),
                         words_alike=float(within.alike.mean()) if len(within) else None))
    return rows


def attacks_on(texts, s):
    "Name of an attack to its paraphrases of some sentences, with their similarity to the sentence."
    found = {}
    if (s.models / 'syntactic').is_dir():
        found['SCPN'] = syntactic_paraphrases(open_generator('generator:syntactic', s), texts, s)
    if (s.models / 'canonicaliser').is_dir():
        found['canonicaliser, 6-best'] = best_paraphrases(open_generator('generator:canonicaliser', s), texts, s)
    for seed in SEEDS:
        found[f'a word dropped, seed {seed}'] = disturbed(texts, shortened, seed)
        found[f'words in random order, seed {seed}'] = disturbed(texts, shuffled, seed)
    scorer = open_model(SCORERS[1], s)
    for name, of_one in found.items():
        same = scorer.similarity_pairwise(list(of_one.text), [texts[i] for i in of_one.row]) if len(of_one) else []
        found[name] = of_one.assign(alike=np.asarray(same, float))
    return found


def judged_attacks(classifier, test, attacks, more=None):
    "Accuracy on the clean test set and on its short sentences, and the share that each attack turns."
    short = test[test.short]
    texts = [*test.text, *(text for found in attacks.values() for text in found.text)]
    said, c = classifier.predict(texts, more)
    right_n = said[:len(test)] == test.label.to_numpy()
    rows, at, right_short = [], len(test), right_n[test.short.to_numpy()]
    labels = short.label.to_numpy()
    for name, found in attacks.items():
        same = said[at:at + len(found)] == labels[found.row]
        rows += turned_rows(name, found, right_short, same)
        at += len(found)
    return dict(c=c, accuracy=share(right_n), accuracy_short=share(right_short), rows=rows)


def further_examples(examples, seed, s):
    "Paraphrases by the syntactic network of short training examples, with their labels; and the examples themselves."
    drawn = examples[(examples.part == 0) & examples.short].drop_duplicates('text').sample(TRAINED, random_state=seed)
    found = syntactic_paraphrases(open_generator('generator:syntactic', s), list(drawn.text), s)
    labels = drawn.label.to_numpy()[found.row]
    return {'paraphrases': pd.DataFrame(dict(text=found.text, label=labels)),
            'the same sentences again': pd.DataFrame(dict(text=drawn.text.to_numpy()[found.row], label=labels))}


def trained_on_paraphrases(classifier, test, attack, s):
    "Figures of a classifier of whole sentences: alone, with paraphrases of some, and with these sentences once more."
    rows = [dict(added='nothing', seed=0, examples=0, **judged_attacks(classifier, test, {'SCPN': attack}))]
    for seed in SEEDS:
        for name, more in further_examples(classifier.examples, seed, s).items():
            found = judged_attacks(classifier, test, {'SCPN': attack}, more)
            rows.append(dict(added=name, seed=seed, examples=len(more), **found))
    for row in rows: print(row, flush=True)
    return rows


def adversarial(s):
    "generation.json, `adversarial`."
    start, examples = time.process_time(), sentiment_examples(s)
    test = examples[examples.part == 2].reset_index(drop=True)
    classifier = Sentiment(examples[examples.part < 2], open_model(SCORERS[0], s).encode)
    attacks = attacks_on(list(test.text[test.short]), s)
    found = dict(plain=judged_attacks(classifier, test, attacks))
    print(found['plain']['accuracy'], *found['plain']['rows'], sep='\n', flush=True)
    # of the 67,349 training examples most are phrases; paraphrases of some sentences would be lost among them
    sentences = examples[(examples.part == 1) | (examples.part == 0) & examples.text.str.contains(r'[.!?]$')]
    found['trained'] = trained_on_paraphrases(Sentiment(sentences, classifier.features), test, attacks['SCPN'], s)
    save('adversarial', found | dict(features=SCORERS[0], scorer=SCORERS[1], words=WORDS, candidates=CANDIDATES,
                                     training=int((examples.part == 0).sum()), drawn=TRAINED,
                                     sentences=int((sentences.part == 0).sum())), start)


def save(step, found, start):
    "Write the figures of a step beside those of the others."
    facts = dict(made=provenance(), command=f'python nbs/papers/generation_uses.py {step}',
                 seconds=time.process_time() - start)
    write_json(FILE, read_json(FILE) | {step: facts | found})


# More training data

PAIRS = 10_000  # Pairs of an arm, of which the others are made
WORD = train_config('word', 'uses', model='WORD', vectors=GLOVE, vocabulary=60_000, megabatch=20, epochs=3,
                    learning_rate=.02, probes=0)
# Both as in choosing.ipynb, which chose the learning rates on STS 2017, on pairs of WMT
BLSTM = alter(WORD, model='BLSTM', hidden=100, epochs=2, megabatch=1, learning_rate=.003, scramble=.3)
MODELS = {'WORD': WORD, 'BLSTM': BLSTM}
# Kinds of the pairs of an arm; the same ones twice take as many steps as with others
ARMS = {'real': ('real',), 'real twice': ('real', 'real'), 'real + generated': ('real', 'generated'),
        'real + further real': ('real', 'further'), 'generated': ('generated',)}


def generated_pairs(pairs, s):
    "Each reference with the best of four paraphrases that differs from it in more than case and punctuation."
    engine, texts = open_generator('generator:canonicaliser', s), list(pairs.reference)
    make = lambda: candidates(texts, [[h.text for h in hs] for hs in engine.translate(texts, Decoding(4, 4))])
    first = kept('pairs', engine, texts, make, s).drop_duplicates('row')
    return pairs.iloc[first.row].assign(translation=first.text.to_numpy())


def drawn_pairs(seed, kinds, s):
    "Pairs by their kind, one of a segment; the generated ones have the segments and references of the real ones."
    every = Corpus.open('canonical', s).frame(['segment', 'reference', 'translation', 'corpus'])
    every = every[~every.corpus.str.endswith(APART)].sample(frac=1, random_state=seed)
    every = every.drop_duplicates('segment', ignore_index=True)
    if len(every) < 2 * PAIRS: raise ValueError(f'{len(every)} segments, expected at least {2 * PAIRS}')
    real, further = every[:PAIRS], every[PAIRS:2 * PAIRS]
    return dict(real=real, further=further) | (dict(generated=generated_pairs(real, s)) if 'generated' in kinds else {})


def trained_figures(config, pairs, seed, s):
    "STS 2017 after each epoch, in percent, of an encoder trained on some pairs."
    name = f'uses-{config.run.name}-{seed}'
    for folder in (s.corpora / name, s.runs / name): shutil.rmtree(folder, ignore_errors=True)
    Corpus.create(name, s).write_pairs(0, pairs.sample(frac=1, random_state=seed))
    run = train(alter(config, name=name, corpus=name, seed=seed), s, show=False)
    scores = run.metrics().development.dropna().round(3).tolist()
    for folder in (s.corpora / name, s.runs / name): shutil.rmtree(folder)
    return scores


def augmentation(s):
    "generation.json, `augmentation`; a training that was done by the same models is not done again."
    start = time.process_time()
    path = s.workspace / 'uses/augmentation.json'
    rows = read_json(path)['rows'] if path.exists() else []
    identity = zlib.crc32(repr(sorted(open_generator('generator:canonicaliser', s).identity['files'].items())).encode())
    wanted = [(seed, model, arm) for seed in SEEDS for model in MODELS for arm in ARMS]
    rows = [row for row in rows if row['generator'] in (0, identity)]
    done = {(row['seed'], row['model'], row['arm']) for row in rows}
    for seed, model, arm in wanted:
        if (seed, model, arm) in done: continue
        parts = drawn_pairs(seed, ARMS[arm], s)
        pairs = pd.concat([parts[kind] for kind in ARMS[arm]], ignore_index=True)
        scores = trained_figures(alter(MODELS[model], name=model), pairs, seed, s)
        rows.append(dict(model=model, arm=arm, seed=seed, pairs=len(pairs), epochs=scores,
                         generator=identity if 'generated' in ARMS[arm] else 0))
        write_json(path, dict(rows=rows))
        save('augmentation', dict(rows=rows, pairs=PAIRS), start)
        print(rows[-1], flush=True)


if __name__ == '__main__':
    steps = dict(adversarial=adversarial, augmentation=augmentation)
    step = sys.argv[1] if len(sys.argv) > 1 else ''
    if step not in steps: raise SystemExit(__doc__)
    steps[step](settings())
