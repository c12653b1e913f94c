"""Which pairs teach best: sources, lengths, overlaps, costs, tenths of a measure, each against random pairs.

    python nbs/papers/choosing.py groups
        # the groups of trainings, and how many of each are done
    python nbs/papers/choosing.py run GROUP ...
        # trainings of some groups (all if none is named); figures go to nbs/papers/choosing.json

nbs/papers/choosing_corpora.py makes the corpora, choosing_tables.py the tables. PARANMT_RESOURCES names the folder that
holds `train/` and `eval`. Every step resumes; a training that is in the file is not done again.
The trainings' folders are deleted once their figures are kept, since each holds an encoder."""
import json
import shlex
import shutil
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

from choosing_corpora import FIRST, GLOVE, MINED, OTHERS, SAMPLE, SCORER, SOURCES, TRAINED, WMT
from corpus_statistics import DOMAINS

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.evaluation.results import read_results
from paranmt_lab.ground.fields import alter, flat
from paranmt_lab.ground.settings import atomic, settings
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.selection import Range, Selection, select
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train

FILE = Path(__file__).with_name('choosing.json')
SCORE = f'paraphrase_score@{SCORER}'
SEEDS = 0, 1, 2
PAIRS = 7_500          # of WMT within bounds: [0, 10] has 7,974 sources, the fewest
MINED_PAIRS = 6_500    # of our own translations within bounds
TENTH = 24_000         # of each tenth of the pairs of WMT
OWN_TENTHS = 1, 4, 7, 10  # trained on first, at other commits than the rest; the calibrated measures have no others
OTHER_TENTHS = 2, 3, 5, 6, 8, 9
# Pairs of each tenth of our own translations, of 11,000; an LSTM is slow
OWN_TENTH = {'WORD': 9_000, 'TRIGRAM': 9_000, 'LSTM': 4_500}
DOMAIN = 6_000         # of each domain of our own translations
SOURCE = 5_000         # of each source; the smallest has 5,154

THIRD = 2_500          # of each third of the sample that a large encoder has scored

# Grids of `backtranslation` sections 5.5 to 5.7; both ends of a range belong to it
LENGTHS = [(0, 10), (0, 15), (0, 20), (0, 30), (0, 100), (10, 20), (10, 30), (10, 100), (15, 25), (15, 30), (15, 100),
           (20, 30), (20, 100), (30, 100)]
LOWER, UPPER = (0., .1, .2, .3), (.6, .7, .8, .9, 1.)
# Of the cross product of these the part that changes what is chosen: few pairs share less than 0.3 of their words, and
# few share more than 0.6 of their longer n-grams
BOUNDS = {'unigram_overlap': list(product((0., .3), UPPER)), 'bigram_overlap': list(product(LOWER, (.6, 1.))),
          'trigram_overlap': list(product(LOWER, (.6, 1.))), 'sentence_bleu': list(product(LOWER, (.6, 1.)))}
# A part of the paper's bounds; up to a cost of 0.3, or from a probability of 0.9 on, there are too few pairs
QUALITY = {'translation_cost': [(0, high) for high in (.4, .7, 1.)],
           'translation_perplexity': [(0, high) for high in (25, 75, 200)],
           'reference_probability': [(low, 1) for low in (.3, .5, .7)]}
MEASURES = 'translation_score', 'trigram_overlap', SCORE      # of `paranmt.5`
CALIBRATED = 'p_strong@parabank', 'p_fluent@parabank'

# The learning rate was chosen on STS 2017 with random pairs, of 0.005, 0.02 and 0.05: GloVe starts far from paraphrases
WORD = train_config('word', WMT, model='WORD', vectors=GLOVE, vocabulary=60_000, megabatch=20, epochs=3,
                    learning_rate=.02, probes=0)
TENTHS = {'WORD': alter(WORD, epochs=1)}
# Learning rates of these: of 0.001, 0.005 and 0.02, of which STS 2017 chooses the first with random pairs of WMT
TRIGRAM = train_config('trigram', FIRST, model='TRIGRAM', vocabulary=50_000, megabatch=20, epochs=2, probes=0)
# Learning rate chosen alike, of 0.001, 0.003 and 0.01; the words of a pair are shuffled as in section 5.2. M = 1 chosen
# alike too, of 1, 4 and 10: hard negatives from the first step on make an LSTM collapse on some sets of so few pairs
LSTM = alter(WORD, corpus=FIRST, model='LSTM', hidden=100, epochs=2, megabatch=1, learning_rate=.003, scramble=.3)
# Of 0.001, 0.003 and 0.01, of which STS 2017 chooses the last with random pairs of WMT
GRAN = alter(WORD, model='GRAN', hidden=100, epochs=2, megabatch=1, learning_rate=.01, scramble=.3)
MODELS = {'WORD': alter(WORD, corpus=FIRST), 'TRIGRAM': TRIGRAM, 'LSTM': LSTM}
ON_SOURCES = alter(WORD, corpus=SOURCES)


def bounded(name, *ranges, n=PAIRS):
    "One random pair of each source within the bounds, and of these a sample."
    return Selection(name, ranges=tuple(Range(*r, closed=True) for r in ranges), exclude_equal=True,
                     one_per_source='random', n=n)


def short(measure): return measure.partition('@')[0]


def tenth(measure, number, n=TENTH):
    "A sample of one tenth; several pairs of a source may be in it."
    return Selection(f'{short(measure)}-tenth-{number}', fold_measure=measure, folds=(number,), n=n)


def tenths_of(measure, base, n, numbers=range(1, 11)):
    "Trainings on each tenth, or on some."
    return [(tenth(measure, k, n), base) for k in numbers]


def name_of(measure, low, high): return f'{measure}-{low:g}-{high:g}'


def within(measure, grid, base, n):
    "Trainings on the pairs within each of some bounds."
    return [(bounded(name_of(measure, *bounds), (measure, *bounds), n=n), base) for bounds in grid]


def two_tenths(measure, folds, n, most=0):
    "A sample of two tenths, of sides that are not too long."
    name = f"{measure.replace('@', '-')}-tenths-{'-'.join(map(str, folds))}" + (f'-max-{most}' if most else '')
    return Selection(name, fold_measure=measure, folds=folds, max_length=most, exclude_equal=True, n=n)


def third(measure, number):
    "A sample of one third, for a large encoder has scored few pairs."
    return Selection(f"{measure.replace('@', '-')}-third-{number}", fold_measure=measure, folds=(number,), fold_count=3,
                     exclude_equal=True, n=THIRD)


def some(name, where='', n=0, **more):
    "A sample of the pairs that meet a condition."
    return Selection(name, where=where, exclude_equal=True, n=n, **more)


def one_of(names): return f"corpus IN ({', '.join(map(repr, names))})"


def sources():
    "Of `backtranslation.4`: languages of WMT, domains of our own translations, and what people wrote."
    wmt = {f'wmt {lang}': f"source_lang = '{lang}'" for lang in ('cs', 'de', 'ha', 'ru', 'zh')}
    own = {name: one_of(DOMAINS[name][0]) for name in ('news', 'captions')} | {'': ''}
    people = {name: one_of([name]) for name in ('simplifications', 'captions', 'verses', 'everyday')}
    parts = {'wmt': (wmt | {'wmt': ''}, WORD), 'people': (people, ON_SOURCES)}
    for kind, corpus in (('own', FIRST), *((name, f'{name}-first') for name in OTHERS.values())):
        parts[kind] = {f'{kind} {name}'.strip(): where for name, where in own.items()}, alter(WORD, corpus=corpus)
    return {f'sources {part}': [(some(name, where, SOURCE), base) for name, where in wheres.items()]
            for part, (wheres, base) in parts.items()}


SIZES = {'wmt': (WORD, '', (24_000, 100_000, 168_000)), 'own': (MODELS['WORD'], '', (24_000, 0)),
         'simplifications': (ON_SOURCES, one_of(['simplifications']), (24_000, 0))}


def sizes():
    "Of `backtranslation.13`: more and more pairs of a source; 0 takes all."
    return {f'sizes {name}': [(some(f"{name} {n or 'all'}", where, n), base) for n in numbers]
            for name, (base, where, numbers) in SIZES.items()}


# Group to its trainings: (selection, config)
ON_WMT = {'random': [(bounded('random'), WORD)], 'length': within('translation_length', LENGTHS, WORD, PAIRS)}
ON_WMT['length'] = [(replace(choice, name=choice.name.replace('translation_', '')), base)
                    for choice, base in ON_WMT['length']]
ON_WMT |= {m: within(m, grid, WORD, PAIRS) for m, grid in BOUNDS.items()}
ON_WMT |= {f'tenths of {short(m)} WORD': tenths_of(m, TENTHS['WORD'], TENTH) for m in (SCORE, 'trigram_overlap')}
ON_MINED = {'random of lists': [(bounded('random', n=MINED_PAIRS), alter(WORD, corpus=MINED))]}
ON_MINED |= {m: within(m, grid, alter(WORD, corpus=MINED), MINED_PAIRS) for m, grid in QUALITY.items()}
OWN = {f'domains {model}': [(some(name, one_of(corpora), DOMAIN), base) for name, (corpora, _) in DOMAINS.items()]
       + [(some('mixture', n=DOMAIN), base)] for model, base in MODELS.items()}
OWN |= {f'own tenths of {short(m)} {model}': tenths_of(m, base, OWN_TENTH[model], OWN_TENTHS)
        for model, base in MODELS.items() for m in MEASURES}
OWN |= {f'other own tenths of {short(m)} {model}': tenths_of(m, base, OWN_TENTH[model], OTHER_TENTHS)
        for model, base in MODELS.items() for m in MEASURES}
OWN |= {f'own tenths of {short(m)} WORD': tenths_of(m, MODELS['WORD'], OWN_TENTH['WORD'], OWN_TENTHS)
        for m in CALIBRATED}
OWN |= {f'top {model}': [(some('random max 30', n=OWN_TENTH[model], max_length=30), base)]
        + [(two_tenths(m, (9, 10), OWN_TENTH[model], 30), base) for m in (SCORE, CALIBRATED[0])]
        for model, base in MODELS.items()}
ENCODERS = SCORE, 'paraphrase_score@all-MiniLM-L6-v2', f'paraphrase_score@{TRAINED}'
ON_SAMPLE = alter(WORD, corpus=SAMPLE, epochs=8)
CHOOSERS = [(third(m, number), ON_SAMPLE) for m in ENCODERS for number in (2, 3)]
ELSE = sources() | sizes()
ELSE['choosers'] = [(some('random', n=THIRD), ON_SAMPLE), *CHOOSERS]
# The bounds that STS 2017 chooses for WORD, and the sources that the paper has in some form
CHOSEN = {'length': (20, 30), 'unigram_overlap': (0, .6), 'bigram_overlap': (0, 1), 'trigram_overlap': (0, .6),
          'sentence_bleu': (.1, 1)}
CHOSEN_OF_LISTS = {'translation_cost': (0, 1), 'translation_perplexity': (0, 75), 'reference_probability': (.5, 1)}


def chosen(group, bounds):
    "Trainings of GRAN within the bounds of one group that STS 2017 chooses for WORD."
    name = name_of(group, *bounds)
    return [(choice, alter(GRAN, corpus=base.data.corpus)) for choice, base in (ON_WMT | ON_MINED)[group]
            if choice.name == name]


GRANS = {'random GRAN': [(bounded('random'), GRAN)],
         'random of lists GRAN': [(bounded('random', n=MINED_PAIRS), alter(GRAN, corpus=MINED))]}
GRANS |= {f'{group} GRAN': chosen(group, bounds) for group, bounds in (CHOSEN | CHOSEN_OF_LISTS).items()}
GRANS['sources GRAN'] = [(choice, alter(GRAN, corpus=base.data.corpus)) for part in ('wmt', 'people')
                         for choice, base in sources()[f'sources {part}']
                         if choice.name in ('wmt cs', 'wmt de', 'simplifications')]
GROUPS = ON_WMT | ON_MINED | OWN | ELSE | GRANS


def kept():
    "Figures so far: `groups` with their configs, `trainings` with their facts, `speed` of selections, by name."
    return json.loads(FILE.read_text()) if FILE.exists() else dict(groups={}, trainings={}, speed={})


def keep(figures):
    "Write the figures, a training or a group on a line."
    parts = [f'"{part}": {{\n' + ',\n'.join(f'  {json.dumps(name)}: {json.dumps(facts)}'
                                           for name, facts in rows.items()) + '\n}' for part, rows in figures.items()]
    with atomic(FILE) as part: part.write_text('{' + ',\n'.join(parts) + '}\n')


def measured(config, s):
    "Train, and give STS 2017 after each epoch, and the mean over the other sets of the last epoch; Pearson x 100."
    start = time.perf_counter()
    run = train(config, s, show=False)
    scores = run.metrics().development.dropna().round(3).tolist()
    rows = read_results(run.folder / 'results.parquet').query("status == 'ok' and metric == 'pearson'")
    tests = rows[rows.task.str.fullmatch('STS1[2-5]')]
    facts = dict(pairs=run.finished['pairs'], epochs=scores, test=round(100 * float(tests.value.mean()), 3),
                 test_sets=len(tests), seconds=round(time.perf_counter() - start, 1))
    shutil.rmtree(run.folder)
    return facts


def trainings(group):
    "(name, selection, config) of a group, the seeds outermost: a group that is cut short has whole seeds."
    for seed in SEEDS:
        for choice, base in GROUPS[group]:
            corpus, model = base.data.corpus, base.encoder.model
            choice = replace(choice, seed=seed, name=choice.name.replace(' ', '-'))
            name = f'{choice.name} {model} seed {seed}' + (f' of {corpus}' if corpus != WMT else '')
            yield name, choice, alter(base, name=name.replace(' ', '-'), seed=seed, selection=choice.name)


def run(groups, s):
    "Trainings of some groups that are not in the file yet."
    made = provenance()
    command = shlex.join(['python', 'nbs/papers/choosing.py', *sys.argv[1:]])
    made = {k: made[k] for k in ('commit', 'device', 'machine', 'python', 'torch')} | dict(command=command)
    for group in groups:
        for name, choice, config in trainings(group):
            if name in kept()['trainings']: continue
            record = select(Corpus.open(config.data.corpus, s), choice, force=True)
            facts = dict(group=group, corpus=config.data.corpus, selection=choice.name, model=config.encoder.model,
                         seed=choice.seed, available=record['steps'][-2]['pairs'], ids=record['ids'])
            facts |= measured(config, s)
            figures = kept()
            figures['trainings'][name] = facts | dict(date=provenance()['date'])
            differing = {k: v for k, v in flat(config).items() if k not in ('name', 'seed', 'selection')}
            figures['groups'][group] = made | dict(config=differing)
            keep(figures)
            print(f"{name:60} {facts['pairs']:6} pairs STS17 {max(facts['epochs']):.2f} test {facts['test']:.2f} "
                  f"{facts['seconds']} s", flush=True)


def report():
    "The groups, how many trainings each has, and how many are done."
    done = kept()['trainings']
    for group in GROUPS:
        names = [name for name, *_ in trainings(group)]
        print(f'{group:45} {len(names):4} trainings, {sum(name in done for name in names):4} done')


if __name__ == '__main__':
    what, *words = sys.argv[1:] or ['']
    if unknown := [w for w in words if what == 'run' and w not in GROUPS]: sys.exit(f'no group {unknown}; see `groups`')
    if what == 'groups': report()
    elif what == 'run': run(words or list(GROUPS), settings())
    else: sys.exit(__doc__)
