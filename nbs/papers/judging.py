"""What tells a reference from a translation: classifiers on the real pairs of WMT 2021 to 2023, for
nbs/papers/judging.ipynb.

    python nbs/papers/judging.py corpus
        # the corpus `wmt`: 402,580 pairs of ten source languages, the systems' translations of a segment as its list
    python nbs/papers/judging.py back
        # the corpus `back`: 6,000 Czech sentences by the model that ships, beam 4, its four best, as the paper's lists
    python nbs/papers/judging.py train NAME ... [keep]
        # runs, or all runs of a group, one after the other; finished ones are only measured
    python nbs/papers/judging.py logistic NAME ... [keep]
        # logistic regression over words, and over words and word pairs, on the same lists: an independent classifier
    python nbs/papers/judging.py correlations NAME ... [keep]
        # P(R) of finished runs beside repetition, IDF and length
    python nbs/papers/judging.py differences wmt|back [keep]
        # repetition, IDF and length of references less those of translations
    python nbs/papers/judging.py examples NAME ... [keep]
        # P(R) of sentences of our own
    python nbs/papers/judging.py tables
        # backtranslation.8 and .10 of `paranmt results table`, from the figures that were kept; nothing is trained

PARANMT_RESOURCES names the folder that holds `train/paraphrase`, `train/bitext` and `train/vectors`. `keep` writes the
figures to nbs/papers/judging.json. Every step goes on where it was stopped."""
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from paranmt_lab.annotation.table3 import wilson
from paranmt_lab.classifier.config import L2_GRID, ClassifierConfig
from paranmt_lab.classifier.lists import random_translations, read_lists
from paranmt_lab.classifier.training import accuracies, train_classifier
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.pairs import segment_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.evaluation.tables import keep_measured
from paranmt_lab.filters.probability import reference_probability
from paranmt_lab.ground.fields import alter, build
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import read_json, settings
from paranmt_lab.jobs.run import Run
from paranmt_lab.selection import Selection, list_selections, select
from paranmt_lab.tokens.text import ngrams, tokenize
from paranmt_lab.translate.driver import translate_corpus

sys.path.append(str(Path(__file__).resolve().parents[2] / 'tests/benchmarks'))
from kept import ROOT, keep

PATH = ROOT / 'nbs/papers/judging.json'
GLOVE = 'train/vectors/glove-6b-100d-60k.txt.gz'
LANGUAGES = 'cs', 'de', 'ha', 'he', 'is', 'ja', 'liv', 'ru', 'uk', 'zh'
BITEXT = 'cs', 'de', 'es', 'fi', 'fr', 'ru', 'sv'
COUNTED = 200_000 # English sentences of the bitext whose words give the IDF
BACK = 6_000      # Czech sentences that the shipped model translates
SAMPLED = 100_000 # pairs of a correlation, as in the paper


def make_corpus(s):
    "The corpus `wmt`, and a selection for each source language; pairs of each."
    if 'wmt' not in list_corpora(s):
        pairs = pd.read_parquet(s.resources / 'train/paraphrase/wmt21-23.parquet')
        pairs = pairs.rename(columns={'hypothesis': 'translation'}).astype({'source_lang': str, 'system': str})
        pairs = pairs.assign(corpus='wmt' + pairs.pop('year').astype(str),
                             segment=[segment_of('wmt21-23', str(x)) for x in pairs.segment])
        corpus = Corpus.create('wmt', s)
        for shard, start in enumerate(range(0, len(pairs), 100_000)):
            corpus.write_pairs(shard, pairs[start:start + 100_000])
    corpus = Corpus.open('wmt', s)
    for language in set(LANGUAGES) - set(list_selections(corpus)):
        select(corpus, Selection(language, where=f"source_lang = '{language}'"))
    return corpus.frame(['source_lang']).source_lang.value_counts()


def make_back(s):
    "Lists of one small system: Czech sentences, back-translated by the model that ships; pairs."
    if 'cs-en' not in list_corpora(s):
        bitext = pd.read_parquet(s.resources / 'train/bitext/cs-en.parquet').sample(BACK, random_state=0)
        Corpus.create('cs-en', s).write_pairs(0, bitext.assign(source_lang='cs'))
    translate_corpus(Corpus.open('cs-en', s), 'back', 'ct2:marian-cs-en-tiny', s, Decoding(4, n_best=4))
    return Corpus.open('back', s).rows


WORD = build(ClassifierConfig, name='word', corpus='wmt', lists=20_000, vectors=GLOVE, vocabulary=30_000, min_count=2,
             checkpoint_every=600.)
LSTM = alter(WORD, name='lstm', model='LSTM')


def seeds(base, *numbers): return [alter(base, name=f'{base.run.name}-s{seed}', seed=seed) for seed in numbers]


def grid(base):
    "The paper's grid: how the negative is chosen, and the penalty on embeddings."
    return [alter(base, name=f'{base.run.name}-{negative}-{l2:g}', negative=negative, l2=l2)
            for negative in ('random', 'hardest') for l2 in L2_GRID if (negative, l2) != ('random', 0.)]


GROUPS = {
    'word': seeds(WORD, 0, 1, 2),
    'lstm': seeds(LSTM, 0, 1, 2),
    'word-grid': grid(WORD),
    'lstm-grid': grid(LSTM),
    'each': [alter(WORD, name=f'word-{language}', selection=language) for language in LANGUAGES],
    'back': seeds(alter(WORD, name='back', corpus='back'), 0, 1, 2),
    'more': [alter(WORD, name=f'word-{lists}', lists=lists) for lists in (5_000, 10_000)],
}


def chosen(names):
    "Configs of some groups and runs."
    every = {c.run.name: [c] for configs in GROUPS.values() for c in configs} | GROUPS
    if unknown := [name for name in names if name not in every]:
        sys.exit(f"{', '.join(unknown)}: no group or run of that name; groups are {', '.join(GROUPS)}")
    return [c for name in names for c in every[name]]


def by_language(run):
    "Accuracy of a finished run on its test lists, over all and by source language; `lists` is their number."
    test = pd.read_parquet(run.folder / 'test.parquet')
    parts = [('all', test), *test.groupby('source_lang')]
    return pd.DataFrame([dict(language=name, lists=len(part), **accuracies(part)) for name, part in parts])


def train_runs(names, s):
    "Train runs and measure them; accuracy of each, a row for each language."
    frames = []
    for config in chosen(names):
        run = train_classifier(config, s, show=False)
        if not run.finished: return sys.exit(130)
        found, metrics, c = by_language(run), run.metrics(), run.config
        seconds = round(read_json(run.folder / 'progress.json')['seconds'])
        keep(f'run {run.name}', PATH, model=c['model'], negative=c['negative'], l2=c['l2'], seed=c['seed'],
             selection=c['selection'], lists=run.finished['lists'], types=run.finished['types'], trained=seconds,
             development=round(metrics.accuracy.max(), 4), epoch=int(metrics.epoch[metrics.accuracy.idxmax()]) + 1,
             rows=found.round(4).to_dict('records'))
        print(f'{run.name:24} {found.accuracy[0]:.4f} {found.accuracy_references[0]:.4f} '
              f'{found.accuracy_translations[0]:.4f} {seconds} s', flush=True)
        frames.append(found.assign(run=run.name))
    return pd.concat(frames, ignore_index=True)


def logistic(names, s):
    "Accuracy of scikit-learn's logistic regression over tf-idf on the lists of some runs, one translation of each."
    rows = []
    for name in names:
        run = Run.open(s.runs, name)
        pairs = pd.read_parquet(run.folder / 'pairs.parquet', columns=['pair_id', 'segment', 'split'])
        lists, rng = read_lists(Corpus.open(run.config['corpus'], s), pairs), np.random.default_rng(0)
        sentences, labels = {}, {}
        for split in ('train', 'test'):
            own = lists.rows(split)
            drawn = [lists.translations[k] for k in random_translations(lists, own, rng)]
            sentences[split], labels[split] = [*lists.table.reference[own], *drawn], np.repeat([1, 0], len(own))
        for n in (1, 2):
            cut = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, lowercase=False, ngram_range=(1, n),
                                  min_df=2, sublinear_tf=True)
            model = LogisticRegression(max_iter=300).fit(cut.fit_transform(sentences['train']), labels['train'])
            accuracy = model.score(cut.transform(sentences['test']), labels['test'])
            rows.append(dict(run=name, ngrams=n, accuracy=round(float(accuracy), 4)))
    keep('logistic', PATH, rows=rows)
    return pd.DataFrame(rows)


def repetition(tokens, n, least=1):
    "Share of a sentence's n-grams that have been there before; words of fewer than `least` characters do not count."
    found = ngrams([t for t in tokens if len(t) >= least], n)
    return 1 - len(set(found)) / len(found) if found else np.nan


def document_frequencies(s):
    "Word to the number of sentences it is in, among COUNTED English sentences of the bitext; their number."
    files = [pd.read_parquet(s.resources / f'train/bitext/{lang}-en.parquet', columns=['reference']).reference
             for lang in BITEXT]
    texts = pd.concat(files).drop_duplicates()
    texts = texts.sample(min(COUNTED, len(texts)), random_state=0)
    return Counter(word for text in texts for word in set(tokenize(text))), len(texts)


def measured(texts, s):
    "Four measures of the paper of each text: repetition of unigrams and trigrams, average IDF, length in tokens."
    counts, n = document_frequencies(s)
    idf = {word: np.log(n / count) for word, count in counts.items()}
    rows = []
    for tokens in map(tokenize, texts):
        rows.append((repetition(tokens, 1, least=3), repetition(tokens, 3),
                     np.mean([idf.get(t, np.log(n)) for t in tokens]) if tokens else np.nan, len(tokens)))
    return pd.DataFrame(rows, columns=['unigram repetition', 'trigram repetition', 'average IDF', 'length'])


def sampled_pairs(s, corpus='wmt'):
    "The pairs of the correlations, the same ones for all runs on a corpus."
    columns = ['pair_id', 'segment', 'source_lang', 'reference', 'translation']
    pairs = Corpus.open(corpus, s).sample(SAMPLED, columns=columns)
    return pairs.dropna(subset='translation').reset_index(drop=True)


def differences(corpus, s):
    "Means of references and of translations, their difference, and the source languages in which it has its sign."
    pairs = sampled_pairs(s, corpus)
    references, translations = (measured(pairs[side], s) for side in ('reference', 'translation'))
    each = (references - translations).groupby(pairs.source_lang.to_numpy()).mean()
    table = pd.DataFrame(dict(references=references.mean(), translations=translations.mean()))
    table['difference'] = table.references - table.translations
    table['languages'] = [int((np.sign(each[m]) == np.sign(table.difference[m])).sum()) for m in table.index]
    keep(f'differences {corpus}', PATH, pairs=len(pairs), of=len(each),
         rows=table.rename_axis('measure').reset_index().round(5).to_dict('records'))
    return table


def rho(p, measures, languages):
    "Spearman's rho of P(R) with each measure, over all and the ends of those within languages; NaN are left out."
    rows = []
    for name in measures:
        table = pd.DataFrame(dict(p=p, x=measures[name].to_numpy(), language=np.asarray(languages))).dropna()
        each = [spearmanr(part.p, part.x).statistic for _, part in table.groupby('language')]
        rows.append(dict(measure=name, rho=spearmanr(table.p, table.x).statistic, pairs=len(table),
                         low=np.nanmin(each), high=np.nanmax(each)))
    return pd.DataFrame(rows)


def correlations_of(names, s):
    "P(R) of runs beside four measures: on 100,000 pairs of their corpus, and on those that no split but the test has."
    known, frames = {}, []
    for name in names:
        run = Run.open(s.runs, name)
        corpus, model = run.config['corpus'], open_model(f"classifier:{run.folder / 'classifier'}", s)
        if corpus not in known:
            pairs = sampled_pairs(s, corpus)
            known[corpus] = pairs, {side: measured(pairs[side], s) for side in ('reference', 'translation')}
        pairs, measures = known[corpus]
        learned = pd.read_parquet(run.folder / 'pairs.parquet').query("split != 'test'").segment
        unseen, parts = ~pairs.segment.isin(learned).to_numpy(), []
        for side in measures:
            p = reference_probability(pairs[side], model)
            for some, which in (('all', unseen | True), ('unseen', unseen)):
                found = rho(p[which], measures[side][which], pairs.source_lang[which])
                parts.append(found.assign(side=f'{side}s', pairs_of=some))
        found = pd.concat(parts, ignore_index=True)
        keep(f'correlations {name}', PATH, counted=COUNTED, rows=found.round(4).to_dict('records'))
        frames.append(found.assign(run=name))
    return pd.concat(frames, ignore_index=True)


EXAMPLES = [ # of our own: a sentence as a person might write it, and as an engine with the habits of the paper might
    ('The room was cosy, and the porters could not have been kinder.',
     'The room was very nice and the staff was very nice and the room was very nice.'),
    ('Our neighbours have long championed the treaty.', 'Our neighbours have been supporters of the treaty for a long '
     'time now.'),
    ('He feared for his livelihood.', 'He was afraid that his work would be put at risk by this.'),
    ('Hail wrecked the vineyards overnight.', 'During the night, the vineyards were destroyed by the hail.')]


def probabilities(names, s):
    "P(R) of the examples, a column for each run."
    texts = [text for pair in EXAMPLES for text in pair]
    table = pd.DataFrame({name: open_model(f"classifier:{s.runs / name / 'classifier'}", s).probability(texts)
                          for name in names}, index=pd.Index(texts, name='sentence'))
    keep('examples', PATH, runs=names, rows=[dict(sentence=t, p=[round(float(x), 3) for x in row])
                                             for t, row in zip(texts, table.to_numpy())])
    return table


METRICS = {'accuracy': 'accuracy', 'accuracy_references': 'accuracy of references',
           'accuracy_translations': 'accuracy of translations'}
SETS = {'unigram repetition': 'word repetition', 'trigram repetition': 'triple repetition', 'average IDF': 'IDF',
        'length': 'length'}
SPANNED = 'mean over the seeds; the interval spans those of all'
SYSTEMS = {  # Runs of a row of our tables to its system, as the paper calls it, corpus and protocol
    ('word-s0', 'word-s1', 'word-s2'): ('AVG', 'wmt21-23', 'one classifier of ten languages'),
    ('lstm-s0', 'lstm-s1'): ('LSTM', 'wmt21-23', 'one classifier of ten languages'),
    ('back-s0', 'back-s1', 'back-s2'): ('AVG', 'back', 'four best of one small system')} | {
    (f'word-{language}',): ('AVG', 'wmt21-23', 'a classifier of one language') for language in LANGUAGES}


def spanned(values, ends):
    "The mean of some seeds, and the lowest and highest end of their intervals."
    lows, highs = zip(*ends)
    return dict(value=float(np.mean(values)), low=float(min(lows)), high=float(max(highs)))


def accuracy_rows(runs, system, corpus, protocol):
    "Rows of backtranslation.8 from the kept records of some seeds; the interval of each is Wilson's."
    language = runs[0]['selection'] or ('cs' if corpus == 'back' else '')
    each = [pd.DataFrame(run['rows']).set_index('language') for run in runs]
    for task in ([language] if language else each[0].index):
        parts = [frame.loc['all' if language else task] for frame in each]
        for column, metric in METRICS.items():
            sizes = [int(part.lists) * (2 if column == 'accuracy' else 1) for part in parts]
            values = [float(part[column]) for part in parts]
            ends = [wilson(value * n, n) for value, n in zip(values, sizes)]
            yield dict(task=task, dataset=corpus, metric=metric, system=system, protocol=protocol,
                       counterpart='News' if task in ('cs', 'de') else '', n=sizes[0], **spanned(values, ends))


def correlation_rows(frames, system, corpus, protocol):
    "Rows of backtranslation.10 from the kept records of some seeds: translations, by the pairs of each."
    whole = pd.concat(frames)
    whole = whole[(whole.side == 'translations') & whole.rho.notna()]
    for (measure, pairs_of), part in whole.groupby(['measure', 'pairs_of'], sort=False):
        spread = 1.96 / np.sqrt(part.pairs - 3)
        ends = zip(np.tanh(np.arctanh(part.rho) - spread), np.tanh(np.arctanh(part.rho) + spread))
        yield dict(task='all', dataset=SETS[measure], metric='spearman', n=int(part.pairs.iloc[0]),
                   protocol=f'{system}, {corpus}, {pairs_of} pairs', **spanned(part.rho, ends))


def origin_of(records, names):
    "Columns that all rows of some runs share."
    config = f"{', '.join(names)} of nbs/papers/judging.json" + f'; {SPANNED}' * (len(records) > 1)
    shared = {key: records[0][key] for key in ('date', 'commit', 'command')}
    seeds = ','.join(map(str, range(len(names))))
    return shared | dict(machine=records[0]['processor'], config=config, seeds=seeds)


def keep_tables():
    "Write backtranslation.8 and .10 for `paranmt results table`; the number of figures of each."
    kept, counts = read_json(PATH), Counter()
    for names, facts in SYSTEMS.items():
        runs, rhos = ([kept[f'{kind} {name}'] for name in names if f'{kind} {name}' in kept]
                      for kind in ('run', 'correlations'))
        frames = [pd.DataFrame(record['rows']) for record in rhos]
        rows = {'backtranslation.8': (runs, accuracy_rows(runs, *facts) if runs else ()),
                'backtranslation.10': (rhos, correlation_rows(frames, *facts) if rhos else ())}
        for table, (records, found) in rows.items():
            frame = pd.DataFrame(found)
            if len(frame): keep_measured(table, frame, **origin_of(records, names))
            counts[table] += len(frame)
    return dict(counts)


if __name__ == '__main__':
    what, *names = [word for word in sys.argv[1:] if word != 'keep'] or ['']
    if what == 'corpus': print(make_corpus(settings()).to_string())
    elif what == 'train': train_runs(names, settings())
    elif what == 'logistic': print(logistic(names, settings()).to_string())
    elif what == 'correlations': print(correlations_of(names, settings()).round(3).to_string())
    elif what == 'back': print(make_back(settings()))
    elif what == 'differences': print(differences(names[0], settings()).round(4).to_string())
    elif what == 'tables': print(keep_tables())
    elif what == 'examples': print(probabilities(names, settings()).round(2).to_string())
    else: sys.exit(__doc__)
