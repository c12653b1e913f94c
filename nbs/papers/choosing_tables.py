"""The papers' tables out of the trainings in nbs/papers/choosing.json: ours, the paper's, and the difference.

    python nbs/papers/choosing_tables.py table KEY ...
        # backtranslation.4 to .7, .12, .13, paranmt.4 or .5: ours, the paper's, and the difference
    python nbs/papers/choosing_tables.py keep
        # the figures of these tables go to where `paranmt results table KEY` finds them"""
import sys
import tempfile
from pathlib import Path

import pandas as pd
from choosing import DOMAINS, FIRST, GROUPS, MODELS, SEEDS, WMT, kept, name_of, trainings
from choosing_corpora import OTHERS

from paranmt_lab.evaluation.tables import MEASUREMENTS, joined_table, keep_measured, readable_table
from paranmt_lab.training.sweep import interval

ON_TESTS = 'mean of 19 sets, last epoch'


def by_training():
    "One row a training of a seed that is complete: group, corpus, selection, model, seed, and Pearson x 100 on both."
    names = {name for group in GROUPS for name, *_ in trainings(group)}
    rows = [dict(corpus=WMT) | facts | dict(development=max(facts['epochs']))
            for name, facts in kept()['trainings'].items() if name in names]
    columns = ['group', 'corpus', 'selection', 'model', 'seed', 'pairs', 'available', 'development', 'test']
    every = pd.DataFrame(rows, columns=columns)
    there = every.groupby(['group', 'seed']).selection.transform('size')
    return every[there == every.group.map(lambda group: len(GROUPS[group]))]  # seeds of which no training is lacking


def by_config():
    "One row for the trainings that differ in their seed alone: means and ends of intervals, Pearson x 100."
    rows = []
    for names, part in by_training().groupby(['group', 'corpus', 'selection', 'model'], sort=False):
        row = dict(zip(('group', 'corpus', 'selection', 'model'), names))
        row |= dict(seeds=len(part), pairs=round(part.pairs.mean()), available=part.available.iloc[0])
        for figure in ('development', 'test'):
            row |= dict(zip((figure, f'{figure} low', f'{figure} high'), interval(part[figure])))
        rows.append(row)
    return pd.DataFrame(rows)


def tuned(groups, configs):
    "The config of some groups that STS 2017 chooses; None where there is no training."
    part = configs[configs.group.isin(groups)]
    return part.loc[part.development.idxmax()] if len(part) else None


def by_tenths(corpus=WMT):
    "STS 2017 by measure and tenth: the models side by side, and their mean with its interval."
    part = by_training()[lambda f: f.group.str.contains('tenths of ') & (f.corpus == corpus)]
    part = part.assign(measure=part.group.str.split().str[-2],
                       tenth=part.selection.str.rsplit('-', n=1).str[-1].astype(int))
    wide = part.pivot_table(index=['measure', 'tenth', 'seed'], columns='model', values='development')
    rows = []
    for (measure, number), runs in wide.groupby(['measure', 'tenth'], sort=False):
        runs = runs.dropna(axis=1, how='all').dropna()
        mean, low, high = interval(runs.mean(axis=1))
        rows.append(dict(measure=measure, tenth=number, **runs.mean(), mean=mean, low=low, high=high, seeds=len(runs),
                         models=', '.join(m for m in MODELS if m in runs)))
    rows.sort(key=lambda row: (-len(row['models'].split(', ')), row['measure'], row['tenth']))  # the paper's first
    columns = ['measure', 'tenth', *(m for m in MODELS if m in wide), 'mean', 'low', 'high', 'seeds', 'models']
    return pd.DataFrame(rows, columns=columns)


def by_megabatch():
    "STS 2017 of LSTM by M, which STS 2017 chooses: means over the seeds that were trained with both."
    rows = []
    for facts in kept()['trainings'].values():
        if facts['model'] != 'LSTM': continue
        group, _, large = facts['group'].partition(', M = ')
        rows.append(dict(group=group, selection=facts['selection'], seed=facts['seed'], M=int(large or 1),
                         development=max(facts['epochs'])))
    wide = pd.DataFrame(rows).pivot_table(index=['group', 'selection', 'seed'], columns='M', values='development')
    return wide.dropna().groupby(['group', 'selection'], sort=False).agg(['mean', 'size'])


# The long form: a figure of ours as a table of the papers names it

def _row(dataset, config, task='STS', figure='test', protocol=ON_TESTS, **facts):
    value, low, high = (config[f'{figure}{end}'] / 100 for end in ('', ' low', ' high'))
    return dict(task=task, dataset=dataset, metric='pearson', value=value, low=low, high=high, protocol=protocol,
                system='AVG', seeds=', '.join(map(str, SEEDS[:int(config.seeds)]))) | facts


# Rows of a table, and the groups that each chooses from
FILTERS = {
    'backtranslation.6': {'random': ['random'], 'length': ['length']},
    'backtranslation.7': {'random': ['random of lists'], 'translation cost': ['translation_cost'],
                          'language model': ['translation_perplexity'],
                          'reference classification': ['reference_probability']},
    'backtranslation.12': {'random': ['random'], 'unigram overlap': ['unigram_overlap'],
                           'bigram overlap': ['bigram_overlap'], 'trigram overlap': ['trigram_overlap'],
                           'BLEU': ['sentence_bleu']}}


def bounds_of(selection):
    "The bounds that the name of a selection ends in."
    _, low, high = selection.rsplit('-', 2)
    return f'[{low}, {high}]'


def filter_rows(key):
    "`backtranslation.6`, `.7` or `.12`: the bounds that STS 2017 chooses, and how they do on the other sets."
    rows, configs = [], by_config()
    for name, groups in FILTERS[key].items():
        best = tuned(groups, configs)
        if best is None: continue
        chosen = '' if name == 'random' else f'; {bounds_of(best.selection)} chosen on STS 2017'
        rows.append(_row(name, best, training='NMT', protocol=ON_TESTS + chosen))
        same = configs[(configs.model == 'GRAN') & (configs.corpus == best.corpus)
                       & (configs.selection == best.selection)]
        if chosen: chosen += ' for AVG'
        rows += [_row(name, other, training='NMT', protocol=ON_TESTS + chosen, system='GRAN')
                 for _, other in same.iterrows()]
    return rows


def length_rows():
    "`backtranslation.5`: a partition of the lengths."
    named = by_config()[lambda f: f.group == 'length'].set_index('selection')
    names = {f'{low}-{high}': name_of('length', low, high) for low, high in ((0, 10), (10, 20), (20, 30), (30, 100))}
    return [_row(name, named.loc[selection], training='NMT') for name, selection in names.items()]


# Of `backtranslation.4`: the source of the paper that a source of ours is compared with, in the same language
NEAREST = {'simplifications': 'SimpWiki', 'wmt-cs': 'News', 'wmt-de': 'News', 'own-news': 'News',
           'german-news': 'News', 'french-news': 'News'}
LANGUAGES = {'own': 'cs'} | {name: language for language, name in OTHERS.items()}  # of our own translations


def named_source(selection):
    "Language and name of a source, as the table calls them."
    kind, _, part = selection.partition('-')
    if kind == 'wmt': return part or 'all', 'wmt21-23'
    if kind not in LANGUAGES: return 'en', selection
    return LANGUAGES[kind], 'our own translations' + (f', {part}' if part else '')


def source_rows():
    "`backtranslation.4`: each source at the same number of pairs."
    rows = []
    for _, config in by_config()[lambda f: f.group.str.startswith('sources')].iterrows():
        language, dataset = named_source(config.selection)
        rows.append(_row(dataset, config, task=language, counterpart=NEAREST.get(config.selection, ''),
                         protocol=f'{ON_TESTS}, {config.pairs:,} pairs',
                         system='GRAN' if config.model == 'GRAN' else 'AVG'))
    return rows


LARGER = {'wmt-24000': 'CC-DE 24k', 'wmt-168000': 'CC-DE 168k', 'simplifications-all': 'SimpWiki 168k'}


def size_rows():
    "`backtranslation.13`: more pairs of the same source."
    configs = by_config()[lambda f: f.group.str.startswith('sizes')].sort_values(['group', 'pairs'])
    return [_row(f"{config.selection.partition('-')[0]} {config.pairs / 1e3:.0f}k", config,
                 counterpart=LARGER.get(config.selection, '')) for _, config in configs.iterrows()]


def domain_rows():
    "`paranmt.4`: each domain of our own translations at the same number of pairs, by model."
    configs = by_config()[lambda f: f.group.str.startswith('domains')]
    nearest = {name: paper for name, (_, paper) in DOMAINS.items()}
    return [_row(config.selection, config, task='STS17', figure='development', system=config.model,
                 counterpart=nearest.get(config.selection, ''), protocol=f'best epoch, {config.pairs:,} pairs')
            for _, config in configs.iterrows()]


def tenth_rows():
    "`paranmt.5`: the best tenth of each measure, of those that were trained on."
    rows, tenths = [], by_tenths(FIRST)
    for name, part in tenths.groupby('measure', sort=False):
        best = part.loc[part['mean'].idxmax()]
        figures = pd.Series({'test': best['mean'], 'test low': best.low, 'test high': best.high, 'seeds': best.seeds})
        system = f'mean of {best.models}' if ',' in best.models else best.models
        rows.append(_row(name.replace('_', ' '), figures, task='STS17', system=system,
                         protocol=f'tenth {best.tenth}, the best of those trained on'))
    return rows


ROWS = {'backtranslation.4': source_rows, 'backtranslation.5': length_rows, 'backtranslation.13': size_rows,
        'paranmt.4': domain_rows, 'paranmt.5': tenth_rows}
KEYS = sorted([*ROWS, *FILTERS])


def measured_rows(key):
    "Our figures for one of the papers' tables, in the long form of results."
    return ROWS[key]() if key in ROWS else filter_rows(key)


SAID = {  # corpus and training behind the figures of a table
    'backtranslation.4': 'WORD from GloVe, three epochs; random pairs of each source',
    'backtranslation.7': 'WORD from GloVe, three epochs, 6,500 pairs, one of our four translations of a source',
    'backtranslation.13': 'WORD from GloVe, three epochs; several pairs of a source',
    'paranmt.4': 'Czech bitext translated by our own model, the best of four; three epochs of WORD, two of others',
    'paranmt.5': '9,000 pairs (LSTM: 4,500) of a tenth of 110,000 Czech sentences, translated by our own model'}
OTHERWISE = 'WORD from GloVe, three epochs, 7,500 pairs of wmt21-23, one a source'


def keep_table(key, folder=MEASUREMENTS):
    "Write our figures of a table where `paranmt results table` finds them."
    rows = measured_rows(key)
    groups = kept()['groups']
    commits = ', '.join(dict.fromkeys(facts['commit'] for facts in groups.values()))
    if rows:
        keep_measured(key, pd.DataFrame(rows), folder, command='python nbs/papers/choosing.py run', machine='AMD EPYC',
                      config=SAID.get(key, OTHERWISE), commit=commits)


def table(key):
    "Ours, the paper's, and the difference, as `paranmt results table` prints them; the paper's alone without ours."
    with tempfile.TemporaryDirectory() as folder:
        keep_table(key, Path(folder))
        joined = joined_table(key, Path(folder))
    ours = joined[joined.ours.notna()]
    readable = readable_table(ours if len(ours) else joined)
    return readable.drop(columns=['metric', 'training'], errors='ignore')


def main(what, keys):
    "Print tables, or keep them all."
    if unknown := set(keys) - set(KEYS): sys.exit(f"no table {', '.join(unknown)}; there are {', '.join(KEYS)}")
    for key in keys or KEYS:
        if what == 'table': print(key, table(key).to_string(index=False), sep='\n')
        else:
            (MEASUREMENTS / f'{key}.csv').unlink(missing_ok=True)
            keep_table(key)


if __name__ == '__main__':
    what, *words = sys.argv[1:] or ['']
    if what not in ('table', 'keep'): sys.exit(__doc__)
    main(what, words)
