"""Which pairs teach best: random pairs against a length, an overlap, and tenths of a measure.

    python nbs/papers/choosing.py pairs
        # the corpus `choosing` from wmt21-23, with its measures
    python nbs/papers/choosing.py run GROUP ...
        # trainings of some groups (all if none is named); figures go to nbs/papers/choosing.json
    python nbs/papers/choosing.py table KEY ...
        # backtranslation.5, .6, .7, .12 or paranmt.5: ours, the paper's, and the difference
    python nbs/papers/choosing.py keep
        # the figures of these tables go to where `paranmt table KEY` finds them

PARANMT_RESOURCES names the folder that holds `train/paraphrase`, `train/vectors` and `eval`. Every step goes on where
it was stopped; a training that is in the file is not done again. The trainings' folders are deleted once their
figures are kept, since each holds an encoder."""
import json
import shlex
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd

from paranmt_lab.corpus import Corpus, list_corpora, segment_of
from paranmt_lab.evaluation.results import NOT_AVAILABLE, read_results
from paranmt_lab.evaluation.tables import keep_measured
from paranmt_lab.fields import alter, flat
from paranmt_lab.filters.scoring import score
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.selection import Range, Selection, select
from paranmt_lab.settings import atomic, settings
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.training.sweep import interval

CORPUS, FILE = 'choosing', Path(__file__).with_name('choosing.json')
GLOVE = 'train/vectors/glove-6b-100d-60k.txt.gz'
SCORE = 'paraphrase_score@paraphrase-scorer'
SEEDS = 0, 1, 2
PAIRS = 7_500   # of every training that is compared with another by bounds: [0, 10] has 7,974 sources, the fewest
TENTH = 24_000  # pairs drawn from each tenth

# Grids of `backtranslation` sections 5.5 and 5.7; both ends of a range belong to it
LENGTHS = [(0, 10), (0, 15), (0, 20), (0, 30), (0, 100), (10, 20), (10, 30), (10, 100), (15, 25), (15, 30), (15, 100),
           (20, 30), (20, 100), (30, 100)]
LOWER, UPPER = (0., .1, .2, .3), (.6, .7, .8, .9, 1.)
# Of the cross product of these the part that changes what is chosen: few pairs share less than 0.3 of their words, and
# few share more than 0.6 of their trigrams
BOUNDS = {'unigram_overlap': list(product((0., .3), UPPER)), 'trigram_overlap': list(product(LOWER, (.6, 1.)))}

# The learning rate was chosen on STS 2017 with random pairs, of 0.005, 0.02 and 0.05: GloVe starts far from paraphrases
WORD = train_config('word', CORPUS, model='WORD', vectors=GLOVE, vocabulary=60_000, megabatch=20, epochs=3,
                    learning_rate=.02, probes=0)
TENTHS = {'WORD': alter(WORD, epochs=1),
          'TRIGRAM': train_config('trigram', CORPUS, model='TRIGRAM', vocabulary=50_000, megabatch=20, epochs=1,
                                  probes=0)}


def make_pairs(s):
    "The corpus: references beside the outputs of all systems, in random order, with its measures."
    if CORPUS not in list_corpora(s):
        found = pd.read_parquet(s.resources / 'train/paraphrase/wmt21-23.parquet').sample(frac=1, random_state=0)
        segments = [segment_of('wmt21-23', str(x)) for x in found.segment]
        pairs = found.rename(columns={'hypothesis': 'translation'}).assign(segment=segments, corpus='wmt21-23')
        pairs = pairs[['segment', 'corpus', 'source_lang', 'source', 'reference', 'translation', 'system']]
        pairs['system'] = pairs.system.astype(str)
        corpus = Corpus.create(CORPUS, s)
        for shard, start in enumerate(range(0, len(pairs), 100_000)):
            corpus.write_pairs(shard, pairs[start:start + 100_000])
    corpus = Corpus.open(CORPUS, s)
    score(corpus, ['reference_length', 'translation_length', *BOUNDS, 'paraphrase_score'], ['paraphrase-scorer'],
          workers=1)
    return corpus


def bounded(name, *ranges, n=PAIRS):
    "One random pair of each source within the bounds, and of these a sample."
    return Selection(name, ranges=tuple(Range(*r, closed=True) for r in ranges), exclude_equal=True,
                     one_per_source='random', n=n)


def tenth(measure, number):
    "A sample of one tenth; several pairs of a source may be in it."
    return Selection(f'{measure.partition("@")[0]}-tenth-{number}', fold_measure=measure, folds=(number,), n=TENTH)


def name_of(measure, low, high): return f'{measure}-{low:g}-{high:g}'


# Group to (selection, base of the training)
RANDOM = {'random': [(bounded('random'), WORD)]}
BY_LENGTH = {'length': [(bounded(name_of('length', *b), ('translation_length', *b)), WORD) for b in LENGTHS]}
BY_OVERLAP = {m: [(bounded(name_of(m, *b), (m, *b)), WORD) for b in grid] for m, grid in BOUNDS.items()}
BY_TENTH = {f'tenths of {measure.partition("@")[0]} {model}': [(tenth(measure, k), base) for k in range(1, 11)]
            for model, base in TENTHS.items() for measure in (SCORE, 'trigram_overlap')}
GROUPS = RANDOM | BY_LENGTH | BY_OVERLAP | BY_TENTH


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
    facts = dict(pairs=run.finished['pairs'], epochs=scores, test=round(100 * tests.value.mean(), 3),
                 test_sets=len(tests), seconds=round(time.perf_counter() - start, 1))
    shutil.rmtree(run.folder)
    return facts


def trainings(group):
    "(name, selection, config) of a group, the seeds outermost: a group that is cut short has whole seeds."
    for seed in SEEDS:
        for choice, base in GROUPS[group]:
            choice, model = replace(choice, seed=seed), base.encoder.model
            name = f'{choice.name} {model} seed {seed}'
            yield name, choice, alter(base, name=name.replace(' ', '-'), seed=seed, selection=choice.name)


def run(groups, s):
    "Trainings of some groups that are not in the file yet."
    corpus, made = Corpus.open(CORPUS, s), provenance()
    command = shlex.join(['python', 'nbs/papers/choosing.py', *sys.argv[1:]])
    made = {k: made[k] for k in ('commit', 'device', 'machine', 'python', 'torch')} | dict(command=command)
    for group in groups:
        for name, choice, config in trainings(group):
            if name in kept()['trainings']: continue
            record = select(corpus, choice, force=True)
            facts = dict(group=group, selection=choice.name, model=config.encoder.model, seed=choice.seed,
                         available=record['steps'][-2]['pairs'], ids=record['ids']) | measured(config, s)
            figures = kept()
            figures['trainings'][name] = facts | dict(date=provenance()['date'])
            differing = {k: v for k, v in flat(config).items() if k not in ('name', 'seed', 'selection')}
            figures['groups'][group] = made | dict(config=differing)
            keep(figures)
            print(f"{name:45} {facts['pairs']:6} pairs STS17 {max(facts['epochs']):.2f} test {facts['test']:.2f} "
                  f"{facts['seconds']} s", flush=True)


# What comes of it: figures in the long form, and the papers' tables

LAST_EPOCH = 'mean of 19 sets, the last epoch; 95 % interval of Student over the seeds'


def by_training():
    "One row a training of a seed that is complete: group, selection, model, seed, and Pearson x 100 on both."
    rows = [facts | dict(development=max(facts['epochs'])) for facts in kept()['trainings'].values()]
    columns = ['group', 'selection', 'model', 'seed', 'pairs', 'available', 'development', 'test']
    every = pd.DataFrame(rows, columns=columns)
    there = every.groupby(['group', 'seed']).selection.transform('size')
    return every[there == every.group.map(lambda group: len(GROUPS[group]))]  # seeds of which no training is lacking


def by_config():
    "One row for the trainings that differ in their seed alone: means and ends of intervals, Pearson x 100."
    rows = []
    for names, some in by_training().groupby(['group', 'selection', 'model'], sort=False):
        row = dict(zip(('group', 'selection', 'model'), names))
        row |= dict(seeds=len(some), available=some.available.iloc[0])
        for figure in ('development', 'test'):
            row |= dict(zip((figure, f'{figure} low', f'{figure} high'), interval(some[figure])))
        rows.append(row)
    return pd.DataFrame(rows)


def tuned(groups, configs):
    "The config of some groups that STS 2017 chooses, and the same for random pairs."
    some = configs[configs.group.isin(groups)]
    return some.loc[some.development.idxmax()] if len(some) else None


# Row of a table, the groups it chooses from, and the paper's figure for AVG; no group: nothing here has that measure
ROWS = {
    'backtranslation.6': [('None (random)', ['random'], 65.5), ('Length', ['length'], 66.0)],
    'backtranslation.7': [('None (random)', ['random'], 65.5), ('Translation cost', [], 65.4),
                          ('Language model', [], 65.5), ('Reference classification', [], 65.5)],
    'backtranslation.12': [('Random', ['random'], 65.5), ('Unigram overlap', ['unigram_overlap'], 66.1),
                           ('Bigram overlap', [], 65.5), ('Trigram overlap', ['trigram_overlap'], 65.4),
                           ('BLEU score', [], 65.3)],
}


def shown(value, low, high): return f'{value:.1f} [{low:.1f}, {high:.1f}]' if low == low else f'{value:.1f}'


LENGTHS_5 = (0, 10), (10, 20), (20, 30), (30, 100)

def by_lengths():
    "`backtranslation.5`: a partition of the lengths, our WORD beside the paper's AVG."
    configs = by_config().set_index('selection')
    paper = dict(zip(LENGTHS_5, (65.7, 65.6, 65.3, 65.0)))
    rows = [(f'{low}-{high}', configs.loc[name_of('length', low, high)], theirs)
            for (low, high), theirs in paper.items() if name_of('length', low, high) in configs.index]
    return pd.DataFrame([dict(length=name, ours=shown(c.test, c['test low'], c['test high']), paper=theirs,
                              difference=round(c.test - theirs, 1), seeds=c.seeds) for name, c, theirs in rows])


def by_filter(key):
    "`backtranslation.6`, `.7` or `.12`: the bounds that STS 2017 chooses, and how they do on the other sets."
    configs, rows = by_config(), []
    for name, groups, theirs in ROWS[key]:
        best = tuned(groups, configs)
        if best is None:
            rows.append(dict(filter=name, ours=NOT_AVAILABLE, paper=theirs))
            continue
        rows.append(dict(filter=name, chosen=best.selection, ours=shown(best.test, best['test low'], best['test high']),
                         paper=theirs, difference=round(best.test - theirs, 1), seeds=best.seeds,
                         development=shown(*best[['development', 'development low', 'development high']])))
    return pd.DataFrame(rows).astype({'seeds': 'Int64'}).fillna({'chosen': '', 'development': ''})


def by_tenths():
    "STS 2017 by measure and tenth: the models side by side, and their mean with its interval."
    some = by_training()[lambda f: f.group.str.startswith('tenths')]
    some = some.assign(measure=some.group.str.split().str[2],
                       tenth=some.selection.str.rsplit('-', n=1).str[-1].astype(int))
    wide = some.pivot_table(index=['measure', 'tenth', 'seed'], columns='model', values='development').dropna()
    wide['mean'] = wide.mean(axis=1)
    rows = []
    for (measure, number), runs in wide.groupby(['measure', 'tenth']):
        mean, low, high = interval(runs['mean'])
        rows.append(dict(measure=measure, tenth=number, **runs.drop(columns='mean').mean(), mean=mean, low=low,
                         high=high, seeds=len(runs)))
    return pd.DataFrame(rows, columns=['measure', 'tenth', *TENTHS, 'mean', 'low', 'high', 'seeds'])


def best_tenths():
    "`paranmt.5`: the best tenth of each measure."
    tenths, rows = by_tenths(), []
    for measure, name, theirs in (('translation_score', 'Translation score', 83.2),
                                  ('trigram_overlap', 'Trigram overlap', 83.1),
                                  ('paraphrase_score', 'Paraphrase score', 83.3)):
        some = tenths[tenths.measure == measure]
        if not len(some):
            rows.append(dict(filter=name, ours=NOT_AVAILABLE, paper=theirs))
            continue
        best = some.loc[some['mean'].idxmax()]
        rows.append(dict(filter=name, tenth=best.tenth, ours=shown(best['mean'], best.low, best.high), paper=theirs,
                         difference=round(best['mean'] - theirs, 1), seeds=best.seeds))
    return pd.DataFrame(rows).astype({'seeds': 'Int64', 'tenth': 'Int64'})


def _row(dataset, config, task='STS', figure='test', protocol=LAST_EPOCH, **facts):
    "A figure of ours as a table of the papers names it."
    value, low, high = (config[f'{figure}{end}'] / 100 for end in ('', ' low', ' high'))
    return dict(task=task, dataset=dataset, metric='pearson', value=value, low=low, high=high, protocol=protocol,
                system='AVG', training='NMT', seeds=', '.join(map(str, SEEDS[:config.seeds]))) | facts


def measured_rows(key):
    "Our figures for one of the papers' tables, in the long form of results."
    configs = by_config()
    if key == 'paranmt.5':
        best = [(name, by_tenths()[lambda t: t.measure == measure])
                for measure, name in (('trigram_overlap', 'trigram overlap'), ('paraphrase_score', 'paraphrase score'))]
        return [_row(name, pd.Series(dict(tenths.loc[tenths['mean'].idxmax()])).rename(
                    {'mean': 'test', 'low': 'test low', 'high': 'test high'}), task='STS17', system='WORD', training='',
                     protocol='the best of ten tenths, chosen on this set') for name, tenths in best if len(tenths)]
    if key == 'backtranslation.5':
        named = configs.set_index('selection')
        names = {f'{low}-{high}': name_of('length', low, high) for low, high in LENGTHS_5}
        return [_row(name, named.loc[selection]) for name, selection in names.items() if selection in named.index]
    named = {name.replace(' score', '').replace('None (random)', 'random'): tuned(groups, configs)
             for name, groups, _ in ROWS[key]}
    return [_row(name if name == 'BLEU' else name.lower(), best, protocol=f'{LAST_EPOCH}; bounds chosen on STS 2017')
            for name, best in named.items() if best is not None]


def keep_tables():
    "Write our figures of all tables where `paranmt table` finds them."
    made = kept()['groups']['random']
    for key in TABLES:
        if rows := measured_rows(key):
            keep_measured(key, pd.DataFrame(rows), command='python nbs/papers/choosing.py run', machine='AMD EPYC',
                          config='WORD from GloVe on 7,500 to 24,000 pairs of wmt21-23, three epochs, '
                                 f"made at commit {made['commit']}")


TABLES = {'backtranslation.5': by_lengths, 'paranmt.5': best_tenths} | {key: partial(by_filter, key) for key in ROWS}


if __name__ == '__main__':
    what, *words = sys.argv[1:] or ['']
    if what == 'pairs': print(make_pairs(settings()).measures())
    elif what == 'run': run(words or list(GROUPS), settings())
    elif what == 'table' and words and set(words) <= set(TABLES):
        for key in words: print(key, TABLES[key]().to_string(index=False), sep='\n')
    elif what == 'keep': keep_tables()
    else: sys.exit(__doc__)
