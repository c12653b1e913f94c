"""Experiments on the real pairs: one corpus of them, and the runs that are trained on it.

    python nbs/papers/learning.py pairs
        # the corpora `paraphrases` and `paraphrases-more`, from the resources
    python nbs/papers/learning.py own
        # `paraphrases-own` and `paraphrases-own4`: with back-translations of our own, which take an hour
    python nbs/papers/learning.py bitext
        # `paraphrases-bitext`: with English sentences beside what they are in seven other languages
    python nbs/papers/learning.py train NAME ...
        # runs, or all runs of a group, one after the other; finished ones are not trained again. learning.json keeps
        # the figures, the config and the commit of each
    python nbs/papers/learning.py best
        # models/paraphrase-best: corpora, runs and concatenation, some forty minutes of a core. It is the best on
        # STS 2017 of the concatenations of averages that were tried
    python nbs/papers/learning.py scorer
        # the encoder that ships, models/paraphrase-scorer, out of two of these runs, and what making it small costs

PARANMT_RESOURCES names the folder that holds `train/paraphrase` and `train/vectors`. Every step goes on where it was
stopped."""
import sys
from pathlib import Path

import pandas as pd

from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.pairs import segment_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder, concatenate
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.evaluation.graded import read_graded
from paranmt_lab.evaluation.results import read_results
from paranmt_lab.evaluation.sts import YEARLY, sts_sets, yearly_means
from paranmt_lab.evaluation.tasks import evaluate
from paranmt_lab.ground.fields import alter, flat
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.run import Run
from paranmt_lab.recipes.sources import make_paraphrases
from paranmt_lab.selection import Selection, select
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.translate.driver import translate_corpus

GLOVE = 'train/vectors/glove-6b-100d-60k.txt.gz'
SELECTIONS = (Selection('simplified', where="corpus IN ('asset', 'turkcorpus')"),  # what stands in for SimpWiki
              Selection('modern', where="corpus <> 'bible4'"))
# and how many pairs of two systems' outputs they hold for one source
CORPORA = {'paraphrases': 10, 'paraphrases-more': 40}


def write_corpus(name, parts, s):
    "A corpus of several tables of pairs, in random order; how many pairs it has."
    pairs, corpus = pd.concat(parts, ignore_index=True).sample(frac=1, random_state=0), Corpus.create(name, s)
    for shard, start in enumerate(range(0, len(pairs), 100_000)):
        corpus.write_pairs(shard, pairs[start:start + 100_000])
    return len(pairs)


def make_pairs(name, systems_each, s):
    "A corpus of all files, doubled pairs and pairs of one and the same sentence left out, in random order."
    make_paraphrases(name, s, systems_each)
    for selection in SELECTIONS: select(Corpus.open(name, s), selection)
    return Corpus.open(name, s).frame(['corpus']).corpus.value_counts()


def back_translated(s):
    "100,000 Czech sentences back-translated by the model that ships: of each the list of four that beam 12 gives."
    back, there = 'czech-100k-back', list_corpora(s)
    if back not in there or 'finished' not in Corpus.open(back, s).manifest('translate'):
        if 'czech-100k' not in there:
            bitext = pd.read_parquet(s.resources / 'train/bitext/cs-en.parquet').sample(100_000, random_state=0)
            Corpus.create('czech-100k', s).write_pairs(0, bitext.assign(source_lang='cs'))
        translate_corpus(Corpus.open('czech-100k', s), back, 'ct2:marian-cs-en-tiny', s, Decoding(12, n_best=4))
    return Corpus.open(back, s).frame(['segment', 'reference', 'translation', 'rank']).assign(corpus='own')


def letters(texts): return texts.str.casefold().str.replace(r'\W+', '', regex=True)


def sentences_of_tests(s):
    "All sentences of the STS sets on this machine, letters alone."
    there = sts_sets(s.resources)
    tests = pd.concat([read_graded(path) for path in there.path[there.available]])
    return set(letters(pd.concat([tests.sentence1, tests.sentence2])))


def make_own(best, s):
    "`paraphrases` and the `best` of our own translations of each sentence, without sentences of STS sets and copies."
    tests = sentences_of_tests(s)
    own = back_translated(s).query('rank <= @best').drop(columns='rank')
    a, b = letters(own.reference), letters(own.translation)
    seen, same = a.isin(tests) | b.isin(tests), a == b
    own = (fit := own[~seen & ~same]).drop_duplicates(['reference', 'translation'])
    name = 'paraphrases-own' + (f'{best}' if best > 1 else '')
    pairs = write_corpus(
        name, [Corpus.open('paraphrases', s).frame(['segment', 'reference', 'translation', 'corpus']), own], s)
    return dict(corpus=name, pairs=pairs, own=len(own), held_a_test_sentence=int(seen.sum()),
                same=int((same & ~seen).sum()), doubled=len(fit) - len(own))


LANGUAGES = 'cs', 'de', 'es', 'fi', 'fr', 'ru', 'sv'


def make_bitext(s):
    "`paraphrases-more` and bitext of seven languages, a segment for an English sentence; no STS sentences, no copies."
    pairs = Corpus.open('paraphrases-more', s).frame(['segment', 'reference', 'translation', 'corpus'])
    bitext = pd.concat([pd.read_parquet(s.resources / f'train/bitext/{lang}-en.parquet').assign(corpus=f'bitext {lang}')
                        for lang in LANGUAGES], ignore_index=True).rename(columns={'source': 'translation'})
    a, b = letters(bitext.reference), letters(bitext.translation)
    seen, same = a.isin(sentences_of_tests(s)), a == b
    known = dict(zip(letters(pairs.reference), pairs.segment))
    bitext = ((fit := bitext.assign(segment=[known.get(x) or segment_of('bitext', x) for x in a])[~seen & ~same])
              .drop_duplicates(['reference', 'translation']))
    return dict(pairs=write_corpus('paraphrases-bitext', [pairs, bitext], s), **bitext.corpus.value_counts(),
                held_a_test_sentence=int(seen.sum()), same=int((same & ~seen).sum()), doubled=len(fit) - len(bitext))


WORD = train_config('word', 'paraphrases', model='WORD', vectors=GLOVE,
                    vocabulary=60_000, min_count=2, megabatch=40, epochs=4)
TRIGRAM = train_config('trigram', 'paraphrases', model='TRIGRAM', vocabulary=50_000, min_count=3,
                       megabatch=40, epochs=2)
PART = alter(WORD, name='part', limit=150_000, epochs=1)  # of the pairs, for what reads word by word
FALLING = dict(learning_rate=2e-3, cooldown=1.)
GRAMS = {'TRIGRAM': 50_000, 'FOURGRAM': 100_000, 'FIVEGRAM': 150_000}  # size of the vocabulary
MORE_WORD = alter(WORD, name='more-word', corpus='paraphrases-more', epochs=3)
MORE_GRAMS = {model: alter(TRIGRAM, name=f'more-{model.lower()}', corpus='paraphrases-more', model=model,
                           vocabulary=size, **FALLING) for model, size in GRAMS.items() if model != 'FIVEGRAM'}


def runs(group, base, **levers):
    "Runs of a group: the base, and the base with a lever moved (a dictionary of fields)."
    return [alter(base, name=f'{group}-{name}', **fields) for name, fields in levers.items()]


GROUPS = {
    'word-rate': runs('word-rate', WORD, flat1=dict(), fall1=dict(cooldown=1.),
                      fall3=dict(learning_rate=3e-3, cooldown=1.)),
    'trigram-rate': runs('trigram-rate', TRIGRAM, flat1=dict(), fall2=FALLING,
                         fall5=dict(learning_rate=5e-3, cooldown=1.)),
    'grams': [alter(TRIGRAM, name=model.lower(), model=model, vocabulary=size, **FALLING)
              for model, size in GRAMS.items() if model != 'TRIGRAM'],
    'opposite': [alter(base, name=f'{base.encoder.model.lower()}-opposite', negatives='opposite') for base in (
        WORD, *(alter(TRIGRAM, model=model, vocabulary=size, **FALLING) for model, size in GRAMS.items()))],
    'mega-word': [alter(WORD, name=f'word-M{m}-s{seed}', megabatch=m, seed=seed)
                  for m, seed in ((1, 0), (20, 0), (40, 1), (40, 2))],
    'mega-trigram': [alter(TRIGRAM, name=f'trigram-M{m}-s{seed}', megabatch=m, seed=seed, **FALLING)
                     for m, seed in ((1, 0), (20, 0), (40, 1), (40, 2))],
    'mega-lstm': [alter(PART, name=f'lstm-M{m}', model='LSTM', hidden=300, megabatch=m) for m in (40, 1, 20)],
    # with 40 an LSTM of so few pairs takes all captions for one
    'blstm': [alter(PART, name='blstm', model='BLSTM', hidden=300, megabatch=1)],
    # what two cores have time for
    'large': [alter(PART, name=f'{model.lower()}-{dim}', model=model, hidden=dim // sides, join='concat',
                    limit=limit, megabatch=1)
              for dim, limit in ((900, 20_000), (4096, 1_000)) for model, sides in (('LSTM', 1), ('BLSTM', 2))],
    # 300 dimensions of the same few pairs
    'small': [alter(PART, name=f'{model.lower()}-300-of-{limit}', model=model, hidden=300 // sides, join='concat',
                    limit=limit, megabatch=1)
              for limit in (20_000, 1_000) for model, sides in (('LSTM', 1), ('BLSTM', 2))],
    'grown': [alter(PART, name=f'lstm-M{m}-grown', model='LSTM', hidden=300, megabatch=m, grow=1_500 // m)
              for m in (20, 40)] + runs('word', WORD, grown=dict(grow=300)),
    'added': [alter(WORD, name='word-plus-trigram', model='WORD+TRIGRAM', dim=100, epochs=2), alter(
        PART, name='word-plus-trigram-plus-lstm', model='WORD+TRIGRAM+LSTM', dim=100, hidden=100, megabatch=1)],
    'simplified': [alter(WORD, name='simplified-word', selection='simplified', learning_rate=5e-3, cooldown=1.,
                         epochs=10), alter(TRIGRAM, name='simplified-trigram', selection='simplified', **FALLING)],
    'word-random': runs('word-random', WORD, d300=dict(vectors='', dim=300),
                        fall300=dict(vectors='', dim=300, cooldown=1., epochs=2)),
    'more': [MORE_WORD, *MORE_GRAMS.values(),
             alter(PART, name='more-blstm', corpus='paraphrases-more', model='BLSTM',
                   hidden=150, join='concat', limit=900_000, megabatch=10, grow=500, scramble=.3, cooldown=1.)],
    'word-levers': runs('more-word', MORE_WORD, M100=dict(megabatch=100)),
    'trigram-levers': runs('more-trigram', MORE_GRAMS['TRIGRAM'], d600=dict(dim=600)),
    'averaged': [alter(base, name=f'{base.run.name}-mean', learning_rate=1e-3, cooldown=0., average=.5)
                 for base in (MORE_WORD, *MORE_GRAMS.values())],
    'margin': runs('word', WORD, **{'margin-0.2': dict(margin=.2), 'margin-0.6': dict(margin=.6)}),
    'masked': runs('word', WORD, **{'ceiling': dict(apart=.05), 'ceiling-late': dict(apart=.05, apart_from=2),
                                    'judged': dict(judge='paraphrase-scorer', judge_above=.8)}),
    'own': runs('word', WORD, own=dict(corpus='paraphrases-own'), own4=dict(corpus='paraphrases-own4'))
    + runs('trigram', TRIGRAM, own=dict(corpus='paraphrases-own', **FALLING)),
    'bitext': [alter(base, name=f'bitext-{base.encoder.model.lower()}', corpus='paraphrases-bitext',
                     vocabulary=2 * base.encoder.vocabulary, learning_rate=1e-3, cooldown=0., average=.5)
               for base in (MORE_WORD, *MORE_GRAMS.values())],
    'modern': [alter(base, name=f'modern-{base.encoder.model.lower()}', selection='modern')
               for base in (MORE_WORD, MORE_GRAMS['TRIGRAM'])],
}


def chosen(names):
    "Configs of some groups and runs."
    every = {c.run.name: [c] for configs in GROUPS.values() for c in configs} | GROUPS
    if unknown := [name for name in names if name not in every]:
        sys.exit(f"{', '.join(unknown)}: no group or run of that name; groups are {', '.join(GROUPS)}")
    return [c for name in names for c in every[name]]


CONFIGS = {c.run.name: c for group in GROUPS.values() for c in group}
FIGURES = Path(__file__).with_name('learning.json')


def finished(name, s):
    "The run of a name, if it is finished and its config is the script's; else None."
    if not (s.runs / name / 'config.json').is_file(): return None
    run, wanted = Run.open(s.runs, name), flat(CONFIGS[name]) if name in CONFIGS else {}
    as_configured = all(run.config.get(field, value) == value for field, value in wanted.items())
    return run if run.finished and as_configured else None


def scores(results):
    "Pearson's r x 100 by task and data set."
    there = results[results.task.isin(YEARLY) & (results.status == 'ok') & (results.metric == 'pearson')]
    return {f'{r.task} {r.dataset}': round(100 * r.value, 4) for r in there.itertuples()}


def facts(run):
    "The figures of a finished run, with its config and the commit that trained it."
    metrics, done = run.metrics(), run.finished
    # a run of few steps logs none
    rate = round(metrics.pairs_per_second.median()) if 'pairs_per_second' in metrics else None
    epochs = metrics.development.dropna().round(3).tolist() if 'development' in metrics else []
    results = run.folder / 'results.parquet'
    return dict(date=done['date'], commit=done['commit'], config=run.config, model=run.config['model'],
                pairs=done['pairs'], dim=done['dim'], rate=rate, epochs=epochs,
                scores=scores(read_results(results)) if results.is_file() else {})


def known_figures(path=FIGURES):
    "What earlier runs left in learning.json."
    return read_json(path) if path.exists() else dict(made={}, runs={}, beside={}, negatives={})


def keep(run, path=FIGURES):
    "Write the figures of a finished run into learning.json, in place of those of an earlier run of that name."
    known = known_figures(path)
    known['runs'][run.name] = facts(run)
    write_json(path, known)


def train_runs(names, s):
    "Train runs and those of some groups, keep their figures, print STS 2017 after each epoch."
    for config in chosen(names):
        run = train(config, s)
        keep(run)
        print(f"{run.name:30} STS17 {' '.join(f'{x:.2f}' for x in facts(run)['epochs'])}", flush=True)


def yearly_figures(encoder, s):
    "Pearson's r x 100 on STS by year, and the mean of three years."
    years = 100 * yearly_means(evaluate(encoder, s=s)).set_index('year').value
    return years.rename(str).to_dict() | {'mean of 2012, 2014, 2015': years[[2012, 2014, 2015]].mean()}


# runs, and how many of their types are kept
SCORER = {'more-word-mean': {'word': 45_000}, 'more-trigram-mean': {'trigram': 20_000}}


def make_scorer(s):
    "WORD,TRIGRAM of fewer rows in int8; STS of each stage, mean of a year's sets."
    whole = [SentenceEncoder.load(s.runs / name / 'encoder') for name in SCORER]
    fewer = [encoder.pruned(types) for encoder, types in zip(whole, SCORER.values())]
    folder = concatenate(*fewer).save(s.models / 'paraphrase-scorer', dtype='int8')
    stages = {'as trained': whole, 'fewer rows': fewer, 'and int8': [SentenceEncoder.load(folder)],
              'WORD of fewer rows': fewer[:1], 'TRIGRAM of fewer rows': fewer[1:]}
    figures = {name: yearly_figures(concatenate(*encoders), s) for name, encoders in stages.items()}
    return pd.DataFrame(figures).T.round(2)


# Of the 24 concatenations of averages in learning.json this one is the best on STS 2017. To concatenate averages, and
# nothing that holds a BLSTM, which STS 2017 prefers, was decided on the years.
BEST = 'more-word-mean', 'bitext-trigram', 'bitext-fourgram'


def make_best(s):
    "Three averages side by side, with all that it takes; mean of a year's sets."
    for name, systems_each in CORPORA.items(): make_pairs(name, systems_each, s)
    make_bitext(s)
    train_runs(BEST, s)
    encoder = SentenceEncoder.load(concatenate(*(SentenceEncoder.load(s.runs / name / 'encoder') for name in BEST))
                                   .save(s.models / 'paraphrase-best'))
    return yearly_figures(encoder, s)


if __name__ == '__main__':
    what, *names = sys.argv[1:] or ['']
    if what == 'pairs':
        for name, systems_each in CORPORA.items():
            print(name, make_pairs(name, systems_each, settings()).to_string(), sep='\n')
    elif what == 'own':
        for best in (1, 4): print(make_own(best, settings()))
    elif what == 'bitext': print(make_bitext(settings()))
    elif what == 'train': train_runs(names, settings())
    elif what == 'best': print(pd.Series(make_best(settings())).round(2).to_string())
    elif what == 'scorer': print(make_scorer(settings()).to_string())
    else: sys.exit(__doc__)
