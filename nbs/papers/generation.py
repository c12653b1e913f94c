"""A canonicaliser as in `paranmt`, section 6: its pairs, its training, its figures on held-out pairs.

    python nbs/papers/generation.py pairs
        # the corpus `canonical`: short pairs of the resources that the scorer calls paraphrases
    python nbs/papers/generation.py train
        # the run and the model `canonicaliser`; some forty minutes of one core
    python nbs/papers/generation.py transformer
        # the run and the model `canonicaliser-transformer` on the same pairs, for the same time
    python nbs/papers/generation.py measure
        # generation.json: held-out pairs, JFLEG's development set, planted errors, twenty examples of our own sample

PARANMT_RESOURCES names the folder that holds `train/paraphrase` and `eval/jfleg`. Every step goes on where it was
stopped."""
import sys

import numpy as np
import pandas as pd

from paranmt_lab.corpus import Corpus, segment_of
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.training import ship_generator, train_generator
from paranmt_lab.models import open_model
from paranmt_lab.settings import settings

WORDS = 20           # Words of a sentence at most
SCORE = .7           # Paraphrase score of a pair at least
HELD_OUT = dict(news=400, captions=200, tatoeba=200, simplified=200) # Segments kept from training, by domain
CAPTIONS = 40_000    # Pairs of captions at most: they are loose paraphrases
FILES = dict(captions=['multi30k-captions'], tatoeba=['tatoeba-pivot', 'newstest-2refs'],
             simplified=['asset', 'turkcorpus'])


def read(file, s): return pd.read_parquet(s.resources / f'train/paraphrase/{file}.parquet')


def short(pairs):
    "Pairs of 3 to `WORDS` words on both sides that differ."
    words = [pairs[side].str.count(r'\S+') for side in ('reference', 'translation')]
    return pairs[words[0].between(3, WORDS) & words[1].between(3, WORDS) & (pairs.reference != pairs.translation)]


def news(s):
    "References with systems' translations, and one system's translation with another's."
    found = read('wmt21-23', s).rename(columns=dict(hypothesis='translation'))
    mixed = found.drop_duplicates(['segment', 'translation']).sample(frac=1, random_state=0)
    place = mixed.groupby('segment').cumcount()
    other = (place + 1) % mixed.groupby('segment').translation.transform('size')
    beside = pd.merge(mixed.assign(place=other)[['segment', 'translation', 'place']],
                      mixed.assign(place=place)[['segment', 'translation', 'place']], on=['segment', 'place'])
    systems = beside.rename(columns=dict(translation_x='reference', translation_y='translation'))
    columns = ['segment', 'reference', 'translation']
    return pd.concat([found[columns], systems[columns]]).assign(corpus='news')


def others(domain, s):
    "Pairs of files with two sentences; those of two translations in both directions."
    found = pd.concat([read(file, s).assign(segment=lambda f: file + f.segment.astype(str)) for file in FILES[domain]])
    found = found.rename(columns=dict(sentence1='reference', sentence2='translation')).assign(corpus=domain)
    if domain == 'captions': return short(found).sample(CAPTIONS, random_state=0)
    if domain == 'simplified': return found
    turned = found.rename(columns=dict(reference='translation', translation='reference'))
    return pd.concat([found, turned])


def make_pairs(s):
    "The corpus; pairs of held-out segments have a domain of their own."
    pairs = short(pd.concat([news(s), *(others(domain, s) for domain in FILES)], ignore_index=True))
    pairs = pairs.drop_duplicates(['reference', 'translation']).sample(frac=1, random_state=0, ignore_index=True)
    similar = open_model('paraphrase-scorer', s).similarity(list(pairs.reference), list(pairs.translation))
    pairs, rng = pairs[similar >= SCORE].reset_index(drop=True), np.random.default_rng(0)
    for domain, n in HELD_OUT.items():
        within = pairs.corpus == domain
        segments = rng.choice(pairs.segment[within].unique(), n, replace=False)
        pairs.loc[within & pairs.segment.isin(segments), 'corpus'] = f'{domain}, held out'
    pairs['segment'] = [segment_of(str(x)) for x in pairs.segment]
    corpus = Corpus.create('canonical', s)
    for shard, start in enumerate(range(0, len(pairs), 100_000)):
        corpus.write_pairs(shard, pairs[start:start + 100_000])
    print(pairs.corpus.value_counts().to_string())


def config(name, **changes):
    "Config of a training; sizes and steps are chosen for forty minutes of a core."
    held_out = {f'{domain}, held out': -1 for domain in HELD_OUT}
    common = dict(corpus='canonical', held_out=held_out, max_words=15, pieces=4_000, batch_tokens=1_600,
                  evaluate_every=500, checkpoint_every=100, development=100)
    return GeneratorConfig(name, **common | changes)


LSTM = config('canonicaliser', dim=192, hidden=256, dropout=.1, steps=2_400, warmup=200, learning_rate=2e-3,
              cooldown=.4, short_first=800, average=.998)


def train(config, s):
    pairs = Corpus.open('canonical', s).frame(['reference', 'translation', 'corpus']).astype(dict(corpus=str))
    run = train_generator(config, pairs, s)
    if run.finished: print(ship_generator(run, s, f'python nbs/papers/generation.py {sys.argv[1]}').to_string())


if __name__ == '__main__':
    s, step = settings(), sys.argv[1] if len(sys.argv) > 1 else ''
    if step == 'pairs': make_pairs(s)
    elif step == 'train': train(LSTM, s)
    else: raise SystemExit(__doc__)
