"""What nbs/papers/corpus_statistics.ipynb shows: the sources of a bitext, and how translations differ from references.

    python nbs/papers/corpus_statistics.py sources [keep]
        # paranmt.1: six domains of the Czech bitext; words of 9,000 references a domain: a minute
    python nbs/papers/corpus_statistics.py parses [keep]
        # paranmt.1: parses of 1,000 references a domain by Debian's link-grammar: four minutes on one core
    python nbs/papers/corpus_statistics.py scores [keep]
        # paranmt.1: paraphrase scores of 2,000 translations a domain, greedy: two minutes
    python nbs/papers/corpus_statistics.py differences [keep]
        # backtranslation.9: ten languages of WMT 2021 to 2023: a minute

PARANMT_RESOURCES names the folder that holds `train/`. `keep` writes the figures to
paranmt_lab/evaluation/measured/, domain by domain; a domain that is there is passed over, so a run that was stopped
goes on. `paranmt results table KEY` shows paranmt.1 and backtranslation.9. (A file `statistics.py` here would
hide Python's own module of that name.)"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.evaluation.tables import MEASUREMENTS, keep_measured, measured
from paranmt_lab.filters.measures import paraphrase_score
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.statistics.describe import (
    average,
    difference_statistics,
    parse_statistics,
    statistics_frame,
    word_statistics,
)
from paranmt_lab.statistics.idf import text_counts, wordfreq_counts

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import processor

# Our domains: the values of `corpus` that belong to each, and the paper's source that is nearest
DOMAINS = {'captions': (('multi30k-train',), ''), 'everyday': (('tatoeba-test-v2021',), 'CzEng 1.6'),
           'news': (tuple(f'newstest{year}' for year in range(2009, 2018)), 'News Commentary'),
           'stories': (('wesnoth',), ''), 'manuals': (('libreoffice-help',), 'Common Crawl'),
           'interfaces': (('libreoffice-l10n-cs',), '')}
SEED, SEEDS = 0, (0, 1, 2)
WORDS, PARSES, SCORES = 9_000, 1_000, 2_000  # sentences of a domain; the smallest domain has 9,747
ENGINE, SCORER, PARSER = 'ct2:marian-cs-en-tiny', 'paraphrase-scorer', 'link:en'
KEEP = 'keep' in sys.argv[1:]


def bitext(language, s):
    "The bitext of a language, or an error in words."
    path = s.resources / f'train/bitext/{language}-en.parquet'
    if not path.exists(): sys.exit(f'not available: {path} is not here; PARANMT_RESOURCES names the folder of train/')
    return pd.read_parquet(path).astype({'corpus': str})


def domains(s):
    "Each domain of the Czech bitext: its name, its distinct pairs in a seeded order."
    every = bitext('cs', s)
    for name, (corpora, _) in DOMAINS.items():
        yield name, every[every.corpus.isin(corpora)].sample(frac=1, random_state=SEED).reset_index(drop=True)


def done(table, dataset, metric, config):
    "Whether a figure is kept already."
    rows = measured(table)
    return KEEP and bool(((rows.dataset == dataset) & (rows.metric == metric) & (rows.config == config)).any())


def report(table, frame, config, seeds=SEED):
    "Print figures, and keep them if asked to."
    shown = frame[['task', 'dataset', 'metric', 'value', 'low', 'high', 'n', 'protocol']].round(4)
    print(shown.to_string(index=False, header=False), flush=True)
    command = ' '.join(['python nbs/papers/corpus_statistics.py', *(a for a in sys.argv[1:])])
    origin = dict(config=config, command=command, machine=processor(), seeds=str(seeds))
    if KEEP: keep_measured(table, frame, MEASUREMENTS, **origin)


def of_domain(name, statistics):
    frame = statistics_frame({name: statistics})
    return frame.assign(task='cs', counterpart=DOMAINS[name][1])


def sources(s):
    "Lengths, rare words, entropies and repetition of the references."
    others = pd.concat([bitext(x, s).reference for x in ('de', 'es', 'fi', 'fr', 'ru', 'sv')])
    words, sentences = wordfreq_counts(), text_counts(others, 'references of six other bitexts')
    config = f'{WORDS:,} references a domain'
    for name, pairs in domains(s):
        if done('paranmt.1', name, 'word entropy', config): continue
        texts = pairs.reference[:WORDS].tolist()
        found = word_statistics(texts, words, seed=SEED)
        found += [x for x in word_statistics(texts, sentences, resamples=50, seed=SEED) if x.name.startswith('IDF')]
        size = pd.DataFrame([dict(dataset=name, metric='million pairs', value=len(pairs) / 1e6, n=len(pairs),
                                  task='cs', counterpart=DOMAINS[name][1], low=np.nan, high=np.nan, protocol='')])
        report('paranmt.1', pd.concat([of_domain(name, found), size], ignore_index=True), config)


def parses(s):
    "Entropy of the top two levels of parses, and the sentences without a parse."
    parser = open_model(PARSER, s, 'Parser')
    config = f'{PARSES:,} references a domain, {PARSER}'
    for name, pairs in domains(s):
        if done('paranmt.1', name, 'parse entropy', config): continue
        found = parse_statistics(pairs.reference[:PARSES].tolist(), parser, seed=SEED)
        report('paranmt.1', of_domain(name, found), config)


def scores(s):
    "Paraphrase score of references and our translations."
    engine, scorer = open_model(ENGINE, s, 'Translator'), open_model(SCORER, s, 'Encoder')
    config = f'{SCORES:,} translations a domain by {ENGINE}, greedy; the engine was trained on most of these pairs'
    for name, pairs in domains(s):
        if done('paranmt.1', name, 'paraphrase score', config): continue
        part = pairs[:SCORES]
        translations = [h[0].text for h in engine.translate(part.source.tolist(), Decoding(1))]
        values = np.asarray(paraphrase_score(part.reference.tolist(), translations, scorer), float)
        report('paranmt.1', of_domain(name, average('paraphrase score', values, seed=SEED, protocol=SCORER)), config)


def one_each(pairs, seed):
    "One reference and one system's output of each source, at random; 1,000 Czech sources occur in several segments."
    return pairs.sample(frac=1, random_state=seed).drop_duplicates(['source_lang', 'source']).sort_values('segment')


def of_three(pairs):
    "Differences with three random choices of systems: their mean, and the lowest and highest end of their intervals."
    frames = []
    for seed in SEEDS:
        chosen = one_each(pairs, seed)
        found = difference_statistics(chosen.reference.tolist(), chosen.hypothesis.tolist(), seed=seed)
        frames.append(statistics_frame({'': found}))
    ends = pd.concat(frames).groupby('metric', sort=False)
    return frames[0].assign(value=ends.value.mean().to_numpy(), low=ends.low.min().to_numpy(),
                            high=ends.high.max().to_numpy())


def differences(s):
    "Reference minus translation, one system's output a source, of each language and of all."
    path = s.resources / 'train/paraphrase/wmt21-23.parquet'
    if not path.exists(): sys.exit(f'not available: {path} is not here')
    every = pd.read_parquet(path).astype({'source_lang': str, 'system': str})
    config = 'one system a source, mean of three random choices; the interval spans all three'
    for language in [*sorted(every.source_lang.unique()), 'all']:
        name = 'wmt21-23'
        rows = measured('backtranslation.9')
        if KEEP and ((rows.task == language) & (rows.config == config)).any(): continue
        pairs = every if language == 'all' else every[every.source_lang == language]
        frame = of_three(pairs).assign(task=language, dataset=name, counterpart='All' if language == 'all' else 'News')
        report('backtranslation.9', frame, config, ','.join(map(str, SEEDS)))


if __name__ == '__main__':
    parts = dict(sources=sources, parses=parses, scores=scores, differences=differences)
    asked = [a for a in sys.argv[1:] if a != 'keep']
    if len(asked) != 1 or asked[0] not in parts: sys.exit(__doc__)
    parts[asked[0]](settings())
