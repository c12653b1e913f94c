"""A syntactically controlled network (SCPN) as in `paranmt`, section 6: pairs, parses, training, figures.

    python nbs/papers/generation_syntax.py pairs
        # the corpus `syntactic`: pairs of at most twelve words that the scorer calls paraphrases
    python nbs/papers/generation_syntax.py parses
        # the parses of both sides by Link Grammar, and the parser's rate
    python nbs/papers/generation_syntax.py templates
        # generation.json, `syntax`: frequencies of templates, and how often a copy has the template of the other side
    python nbs/papers/generation_syntax.py train
        # the run and the model `syntactic`, on the pairs in both directions; minutes of a GPU

PARANMT_RESOURCES names the folder that holds `train/paraphrase`. Every step resumes where it was stopped."""
import sys
import time

import numpy as np
import pandas as pd

from generation import FILE, FILES, SCORE, news, others
from paranmt_lab.corpus import Corpus, segment_of
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.templates import corpus_trees, count_templates
from paranmt_lab.generation.training import generator_pairs, ship_generator, train_generator
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.models import open_model
from paranmt_lab.parsing.columns import parse_corpus, parses_by_id
from paranmt_lab.parsing.trees import read_tree, top_levels
from paranmt_lab.settings import read_json, settings, write_json

PARSER, WORDS, STEPS = 'link:en', 12, 3_000
MOST = dict(news=9_000, captions=5_000, tatoeba=6_000, simplified=2_000)  # Pairs of a domain at most
HELD_OUT = dict(news=150, captions=100, tatoeba=100, simplified=50)       # Segments kept from training, by domain


def make_pairs(s):
    "The corpus; pairs of held-out segments have a domain of their own, and no pair comes in both directions."
    found = pd.concat([news(s), *(others(domain, s) for domain in FILES)], ignore_index=True)
    words = [found[side].str.count(r'\S+') for side in ('reference', 'translation')]
    found = found[words[0].between(3, WORDS) & words[1].between(3, WORDS)]
    plain = [found[side].str.lower().str.replace(r'\W+', ' ', regex=True) for side in ('reference', 'translation')]
    found = found[plain[0] != plain[1]]
    both = pd.Series([min(a, b) + '\n' + max(a, b) for a, b in zip(found.reference, found.translation)], found.index)
    found = found[~both.duplicated()].sample(frac=1, random_state=0)
    similar = open_model('paraphrase-scorer', s).similarity(list(found.reference), list(found.translation))
    found = found[similar >= SCORE]
    found = pd.concat([part.head(MOST[domain]) for domain, part in found.groupby('corpus')]).sample(
        frac=1, random_state=1, ignore_index=True)
    rng = np.random.default_rng(0)
    for domain, n in HELD_OUT.items():
        within = found.corpus == domain
        segments = rng.choice(found.segment[within].unique(), n, replace=False)
        found.loc[within & found.segment.isin(segments), 'corpus'] = f'{domain}, held out'
    found['segment'] = [segment_of(str(x)) for x in found.segment]
    Corpus.create('syntactic', s).write_pairs(0, found)
    print(found.corpus.value_counts().to_string())


def parse(s):
    "Parse the corpus, and keep the counts and the rate."
    start = time.time()
    counts = parse_corpus(Corpus.open('syntactic', s), PARSER)
    sentences = sum(side['sentences'] for side in counts.values())
    path = s.corpora / 'syntactic/parse-rate.json'
    if not path.exists(): write_json(path, dict(counts, sentences_per_second=sentences / (time.time() - start)))
    print(path.read_text(encoding='utf-8'))


def templates(s):
    "Frequencies of templates, and the share of pairs whose sides have the same one: the match of a copy."
    corpus = Corpus.open('syntactic', s)
    pairs = corpus.frame(['pair_id', 'corpus'])
    parses = parses_by_id(corpus, PARSER, pairs.pair_id)
    shapes = parses.map(lambda text: top_levels(read_tree(text)) if isinstance(text, str) else None)
    both = shapes.notna().all(axis=1)
    same = (shapes.reference == shapes.translation)[both]
    counts = count_templates(corpus_trees(corpus, PARSER))
    copies = pd.DataFrame(dict(domain=pairs.corpus[both], same=same)).groupby('domain').same.agg(['size', 'mean'])
    covered = {str(n): float(counts.covered[n - 1]) for n in (1, 5, 20, 100)}
    found = dict(made=provenance(), command='python nbs/papers/generation_syntax.py templates', pairs=len(pairs),
                 parsed=read_json(s.corpora / 'syntactic/parse-rate.json'), templates=len(counts), covered=covered,
                 frequent=counts.head(10).to_dict('records'), copies=copies.reset_index().to_dict('records'))
    write_json(FILE, read_json(FILE) | dict(syntax=found))


CONFIG = GeneratorConfig('syntactic', 'syntactic', architecture='syntax', parser=PARSER, dim=128, hidden=160,
                         pieces=2_500, held_out={f'{domain}, held out': -1 for domain in HELD_OUT},
                         max_words=WORDS, longest_parse=70, batch_tokens=6_000, steps=7_000, warmup=200,
                         learning_rate=2e-3, cooldown=.6, short_first=0, average=.998, dropout=.3, patience=6,
                         evaluate_every=500, checkpoint_every=500, development=300)


def both_directions(s):
    "The parsed pairs, and the same with their sides changed; held-out pairs in one direction."
    found = generator_pairs(Corpus.open('syntactic', s), CONFIG)
    turned = found.rename(columns=dict(reference='translation', translation='reference', first_parse='second_parse',
                                       second_parse='first_parse'))
    return pd.concat([found, turned[~turned.corpus.str.endswith('held out')]], ignore_index=True)


def train(s):
    "Train both networks, or resume."
    run = train_generator(CONFIG, both_directions(s), s)
    if run.finished: print(ship_generator(run, s, 'python nbs/papers/generation_syntax.py train').to_string())


if __name__ == '__main__':
    s, step = settings(), sys.argv[1] if len(sys.argv) > 1 else ''
    if step == 'pairs': make_pairs(s)
    elif step == 'parses': parse(s)
    elif step == 'templates': templates(s)
    elif step == 'train': train(s)
    else: raise SystemExit(__doc__)
