"""The corpora that nbs/papers/choosing.py trains on, each with the measures that choose from it.

    python nbs/papers/choosing_corpora.py wmt
        # `choosing`: references beside the outputs of the systems of WMT 2021 to 2023: two minutes
    python nbs/papers/choosing_corpora.py czech
        # `czech-back`: 110,000 Czech sentences back-translated by the model that ships, lists of four: six minutes of
        # a core; `czech-first`: the best of each list; `czech-mined` and `czech-apart`: a division of the sources
    python nbs/papers/choosing_corpora.py models
        # `marian-de-en-tiny`, `marian-fr-en-tiny`: 2,500 steps, half an hour of a core each
    python nbs/papers/choosing_corpora.py others
        # `german-first`, `french-first`: the best of four translations of 40,000 sentences each: two minutes each
    python nbs/papers/choosing_corpora.py judges
        # the language model and the classifier of `backtranslation.7`, trained on `czech-apart`; their measures
    python nbs/papers/choosing_corpora.py sources
        # `choosing-sources`: captions, verses, simplifications and what else the resources have
    python nbs/papers/choosing_corpora.py encoders
        # `czech-9k`: a sample with paraphrase scores of three encoders: five minutes, most of them to train one

PARANMT_RESOURCES names the folder that holds `train/`. Every step goes on where it was stopped."""
import sys

import numpy as np
import pandas as pd

from paranmt_lab.bitext.importing import import_bitext
from paranmt_lab.classifier.config import ClassifierConfig
from paranmt_lab.classifier.training import ship_classifier, train_classifier
from paranmt_lab.corpora.derive import derive, sample_corpus
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.pairs import segment_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.filters.lm_training import train_lm
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.fields import build
from paranmt_lab.ground.settings import settings
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.translate.config import NmtConfig
from paranmt_lab.translate.driver import translate_corpus
from paranmt_lab.translate.training import ship, train_nmt

WMT, FIRST, MINED, APART = 'choosing', 'czech-first', 'czech-mined', 'czech-apart'
SOURCES, SAMPLE = 'choosing-sources', 'czech-9k'
GLOVE = 'train/vectors/glove-6b-100d-60k.txt.gz'
SCORER, PUBLISHED, CALIBRATION = 'paraphrase-scorer', 'st:all-MiniLM-L6-v2', 'calibration:parabank'
TRAINED = 'best-TRIGRAM'  # TRIGRAM on all pairs of WMT, the best encoder by STS 2017 of those that are trained here
OVERLAPS = 'unigram_overlap', 'trigram_overlap', 'bigram_overlap', 'sentence_bleu'
LENGTHS = 'reference_length', 'translation_length'
OTHERS = {'de': 'german', 'fr': 'french'}  # languages whose translation models are trained here
OTHER = 40_000          # sources of each that are translated
OTHER_STEPS = 2_500     # of these models; the one that ships had 12,000 of twice the size
# Kept out of the training of these models, and domains of software, which they see a fifth as often
HELD_OUT = {'tatoeba-test-v2021': 1000, 'multi30k-val': -1, 'newstest2017': -1, 'newstest2014': -1}
SOFTWARE = ('libreoffice-help', 'libreoffice-l10n-{}', 'inkscape', 'gnome-user-docs', 'gramps', 'gimp-data',
            'evolution-common', 'gnucash-common', 'installation-guide', 'aptitude-common', 'freeciv-data')
CZECH = 110_000         # sources that are translated, drawn at random from 153,930
MINED_SOURCES = 60_000  # of these, to choose pairs from; the others train what judges
LISTS = 40_000          # lists and references that the classifier and the language model learn from, as in the paper
SAMPLED = 9_000         # pairs that a large encoder scores
# What the resources hold beside WMT, and the name of each as a source of pairs
FILES = {'asset': 'simplifications', 'turkcorpus': 'simplifications', 'multi30k-captions': 'captions',
         'bible4': 'verses', 'tatoeba-pivot': 'everyday'}


def write(name, pairs, s):
    "A corpus of some pairs."
    corpus = Corpus.create(name, s)
    for shard, start in enumerate(range(0, len(pairs), 100_000)):
        corpus.write_pairs(shard, pairs[start:start + 100_000])


def make_wmt(s):
    "References beside the outputs of all systems."
    if WMT not in list_corpora(s):
        found = pd.read_parquet(s.resources / 'train/paraphrase/wmt21-23.parquet')
        segments = [segment_of('wmt21-23', str(x)) for x in found.segment]
        pairs = found.rename(columns={'hypothesis': 'translation'}).assign(segment=segments, corpus='wmt21-23')
        pairs = pairs[['segment', 'corpus', 'source_lang', 'source', 'reference', 'translation', 'system']]
        write(WMT, pairs.astype({'system': str}).sample(frac=1, random_state=0), s)
    score(Corpus.open(WMT, s), [*LENGTHS, *OVERLAPS, 'paraphrase_score'], [SCORER], workers=1)


def some_rows(corpus, keep, name, s):
    "A corpus of those rows for which `keep` holds, a function of rank and segment."
    rows = corpus.frame(['rank', 'segment'])
    return derive([corpus], name, dict(rows=name), keep(rows).to_numpy(), s=s)


def back_translated(language, name, engine, number, s):
    "Lists of four translations of some sentences of a bitext."
    if name not in list_corpora(s):
        bitext = pd.read_parquet(s.resources / f'train/bitext/{language}-en.parquet')
        pairs = bitext.drop_duplicates(['source', 'reference']).sample(frac=1, random_state=0)
        write(name, pairs.drop_duplicates('source')[:number].assign(source_lang=language), s)
    back = translate_corpus(Corpus.open(name, s), f'{name}-back', engine, s, Decoding(4, n_best=4))
    if 'finished' not in back.manifest('translate'): sys.exit('stopped; the same command goes on')
    return back


def best_of_lists(back, name, s): return some_rows(back, lambda rows: rows['rank'] == 1, name, s)


def model_of(language): return f'marian-{language}-en-tiny'


def make_models(s):
    "Translation models of the size of the one that ships, trained for a shorter time; their cards say how good."
    for language in OTHERS:
        pairs = import_bitext(s.resources / f'train/bitext/{language}-en.parquet', f'{language}-en', s).frame()
        pairs, name = pairs.astype({'corpus': str}), model_of(language)
        domains = set(pairs.corpus)
        held_out = {domain: number for domain, number in HELD_OUT.items() if domain in domains}
        software = [domain.format(language) for domain in SOFTWARE]
        weights = {'tatoeba-test-v2021': 2.} | {domain: .2 for domain in software if domain in domains}
        config = NmtConfig(name, f'{language}-en', source_lang=language, held_out=held_out, weights=weights,
                           steps=OTHER_STEPS, warmup=400, short_first=800, evaluate_every=500)
        run = train_nmt(config, pairs, s)
        if not run.finished: sys.exit('stopped; the same command goes on')
        if (s.models / name / 'README.md').exists(): continue
        print(ship(run, s.models / name, 'python nbs/papers/choosing_corpora.py models').to_string(index=False))


def make_others(s):
    "Our own back-translations from other languages: the best of each list."
    for language, name in OTHERS.items():
        back = back_translated(language, name, f'ct2:{model_of(language)}', OTHER, s)
        print(name, f'{best_of_lists(back, f"{name}-first", s).rows:,} pairs')


def make_czech(s):
    "Our own back-translations, and their division."
    back = back_translated('cs', 'czech', 'ct2:marian-cs-en-tiny', CZECH, s)
    every = np.sort(back.frame(['segment']).segment.unique())
    mined = np.random.default_rng(0).choice(every, MINED_SOURCES, replace=False)
    first = best_of_lists(back, FIRST, s)
    some_rows(back, lambda rows: rows.segment.isin(mined), MINED, s)
    some_rows(back, lambda rows: ~rows.segment.isin(mined), APART, s)
    score(first, [*LENGTHS, 'trigram_overlap', 'paraphrase_score'], [SCORER], workers=1)
    score(first, ['p_strong', 'p_fluent'], [CALIBRATION], workers=1)


def make_judges(s):
    "A language model and a classifier that have seen no source of `czech-mined`, and what they say of its pairs."
    facts = train_lm(Corpus.open(APART, s), 'czech-lm', s, LISTS)
    print('language model', facts['measured'])
    config = build(ClassifierConfig, name='czech-classifier', corpus=APART, lists=LISTS, vectors=GLOVE,
                   vocabulary=30_000, min_count=2, checkpoint_every=600.)
    run = train_classifier(config, s, show=False)
    print('classifier', run.finished)
    if not (s.models / 'czech-classifier').exists(): ship_classifier(run, s.models / 'czech-classifier')
    names = [*LENGTHS, 'translation_cost', 'translation_perplexity', 'lm_seen', 'reference_probability']
    print(score(Corpus.open(MINED, s), names, ['lm:czech-lm', 'classifier:czech-classifier'], workers=1).to_string())


def letters(texts):
    "Letters and digits alone: one file writes brackets as the Penn Treebank does, and spaces around commas."
    return texts.str.casefold().str.replace('-lrb-|-rrb-', '', regex=True).str.replace(r'\W+', '', regex=True)


def make_sources(s):
    "Pairs of sentences without machine translation, a domain for each source."
    if SOURCES in list_corpora(s): return
    parts = []
    for file, name in FILES.items():
        found = pd.read_parquet(s.resources / f'train/paraphrase/{file}.parquet')
        pairs = found.rename(columns={'sentence1': 'reference', 'sentence2': 'translation'})
        if name == 'simplifications': found['segment'] = letters(found.sentence1)  # both files simplify the same ones
        segments = [segment_of(name, str(x)) for x in found.segment]
        parts.append(pairs.assign(corpus=name, segment=segments)[['segment', 'corpus', 'reference', 'translation']])
    write(SOURCES, pd.concat(parts).sample(frac=1, random_state=0), s)


def make_encoders(s):
    "A sample of the best translations; paraphrase scores of our scorer, a published encoder and one trained here."
    sample = sample_corpus([Corpus.open(FIRST, s)], SAMPLE, SAMPLED, s=s)
    run = train(train_config(TRAINED, WMT, model='TRIGRAM', vocabulary=50_000, megabatch=20, epochs=2, probes=0), s)
    print('STS 2017 after each epoch', run.metrics().development.dropna().round(2).tolist())
    for model in (SCORER, PUBLISHED, TRAINED):
        print(score(sample, ['paraphrase_score'], [model], workers=1).to_string())


MAKERS = dict(wmt=make_wmt, czech=make_czech, models=make_models, others=make_others, judges=make_judges,
              sources=make_sources, encoders=make_encoders)

if __name__ == '__main__':
    if not sys.argv[1:] or set(sys.argv[1:]) - set(MAKERS): sys.exit(__doc__)
    for what in sys.argv[1:]: MAKERS[what](settings())
