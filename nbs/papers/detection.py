"""Paraphrase detection as in `opusparcus`: segmentation, noise, transfer and distributions, on the available data.

    python nbs/papers/detection.py pairs
        # corpora: references beside systems' outputs with a share of random pairs, Finnish and Swedish bitext, and the
        # sentences that neighbours are looked for in
    python nbs/papers/detection.py run NAME ...
        # trainings, or groups of them, and the figures of each on the sets of detection; all go to detection.json
    python nbs/papers/detection.py systems NAME ...
        # encoders that are there already, on the English sets of detection
    python nbs/papers/detection.py distributions NAME ...
        # Figure 1: cosines of a sentence with a million others under some encoders; counts alone are kept
    python nbs/papers/detection.py index
        # time and memory of vectors and searches, and the recall of the index
    python nbs/papers/detection.py keep
        # the figures of opusparcus.2 to .5 and .7 go to where `paranmt results table KEY` finds them

PARANMT_RESOURCES names the folder that holds `train` and `eval`. Every step goes on where it was stopped; what is in
detection.json is not computed again."""
import json
import resource
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.corpora.pairs import segment_of
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
from paranmt_lab.evaluation.comparison import published_figures
from paranmt_lab.evaluation.detection import DETECTION, measure_set
from paranmt_lab.evaluation.results import results_frame
from paranmt_lab.evaluation.tables import keep_absent, keep_measured
from paranmt_lab.evaluation.tasks import evaluate
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import atomic, settings
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.neighbours.index import build_index, nearest, nearest_by_index, neighbours
from paranmt_lab.neighbours.vectors import build_vectors
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.training.sweep import interval

FILE = Path(__file__).with_name('detection.json')
NOISE = 0, .2, .3, .4  # Share of random pairs among the positives, as the paper's 80, 70 and 60 % clean
POSITIVES = 10_000     # Positive pairs of a training, random ones included; as many random pairs are negatives
# Most words of a sentence by corpora. The states of the GRU of `opusparcus` have no bound, and on sentences of 20
# words the loss of a seed becomes NaN (detection.ipynb), so it learns from short ones, as subtitles are
LONGEST = dict(noise=20, short=10)
MILLION = 'million'    # Corpus of the available sentences, with repeated ones up to a million
TARGET = 'okay , you don ’t get it , man .'  # The sentence of Table 4 and Figure 1
# Learning rate and batch are the paper's; sizes are what a busy machine allows
COMMON = dict(preset='opusparcus', dim=100, vocabulary=10_000, probes=0, epochs=3, limit=20_000)


def noisy_pairs(s, kind):
    "References beside outputs of systems, of which a share gets the output of another source instead."
    found = pd.read_parquet(s.resources / 'train/paraphrase/wmt21-23.parquet', columns=['segment', 'reference',
                                                                                       'hypothesis'])
    blanks = pd.concat([found.reference.str.count(' '), found.hypothesis.str.count(' ')], axis=1).max(axis=1)
    short = found[blanks < LONGEST[kind]]
    pairs = short[short.reference != short.hypothesis].sample(POSITIVES, random_state=0)
    pairs = pairs.rename(columns={'hypothesis': 'translation'}).reset_index(drop=True)
    pairs['segment'] = [segment_of('wmt21-23', str(x)) for x in pairs.segment]
    rng = np.random.default_rng(0)
    order = rng.permutation(POSITIVES)  # more noise spoils the same pairs and more of them
    for share in NOISE:
        if (name := f'{kind}-{share:g}') in list_corpora(s): continue
        spoiled, rows = pairs.copy(), order[:int(share * POSITIVES)]
        spoiled.loc[rows, 'translation'] = pairs.translation[np.roll(rows, 1)].to_numpy()
        Corpus.create(name, s).write_pairs(0, spoiled)


def bitexts(s):
    "Finnish and Swedish sentences beside their English translations."
    for lang in ('fi', 'sv'):
        if (name := f'bitext-{lang}') in list_corpora(s): continue
        pairs = pd.read_parquet(s.resources / f'train/bitext/{lang}-en.parquet').sample(frac=1, random_state=0)
        Corpus.create(name, s).write_pairs(0, pairs.assign(source_lang=lang))


def sentences(s, most=1_000_000):
    "A million distinct English sentences: of the bitexts and the paraphrases."
    if 'sentences' in list_corpora(s): return
    bitext, pairs = ([pd.read_parquet(f) for f in sorted((s.resources / 'train' / kind).glob('*.parquet'))]
                     for kind in ('bitext', 'paraphrase'))
    texts = [f.reference for f in bitext]
    texts += [f[c] for f in pairs for c in ('sentence1', 'sentence2', 'reference', 'hypothesis') if c in f]
    every = pd.concat(texts).drop_duplicates().sample(frac=1, random_state=0)[:most]
    corpus = Corpus.create('sentences', s)
    for shard, start in enumerate(range(0, len(every), 100_000)):
        corpus.write_pairs(shard, pd.DataFrame(dict(reference=every[start:start + 100_000].to_numpy())))


def config_of(group, name, model, seed, **options):
    "A training of the paper's preset."
    return train_config(f'{group}-{name}-{model}-seed-{seed}', model=model, seed=seed, **COMMON | options)


def noisy(kind, model, seed):
    "Trainings by share of random pairs, the clean and the noisiest first."
    return [config_of(kind, f'{share:g}', model, seed, corpus=f'{kind}-{share:g}')
            for share in (NOISE[0], NOISE[-1], *NOISE[1:-1])]


SEGMENTED = 'WORD', 'MORPH', 'SUBWORD'
SEEDS = 0, 1, 2
GROUPS = {'noise WORD 0': noisy('noise', 'WORD', 0)}  # the first of them is an encoder of Figure 1
GROUPS |= {f'{group} {seed}': configs for seed in SEEDS for group, configs in {
    'short WORD': noisy('short', 'WORD', seed),
    'short GRAN': noisy('short', 'GRAN', seed),
    'segmentation': [config_of('segmentation', lang, model, seed, corpus=f'bitext-{lang}', first='source',
                               second='reference') for lang in ('fi', 'sv') for model in SEGMENTED],
}.items()} # Seeds outermost, so that what is cut short has whole seeds
CLEAN = 'short-0'
TASKS = {'segmentation': ['detect-Turku']} | dict.fromkeys(LONGEST, ['detect-PIT', 'detect-MRPC', 'STS17', 'STS14'])


def kept():
    "Figures so far: `trainings`, `systems`, `distributions`, `index`, each by name."
    empty = dict(trainings={}, systems={}, distributions={}, index={})
    return json.loads(FILE.read_text()) if FILE.exists() else empty


def keep(part, name, facts):
    "Write down some figures with where they come from, an entry on a line."
    made = provenance()
    command = shlex.join(['python', 'nbs/papers/detection.py', *sys.argv[1:]])
    figures = kept()
    figures[part][name] = facts | dict(command=command, **{k: made[k] for k in ('date', 'commit', 'device', 'torch')})
    parts = [f'"{part}": {{\n' + ',\n'.join(f'  {json.dumps(name)}: {json.dumps(facts)}'
                                           for name, facts in rows.items()) + '\n}' for part, rows in figures.items()]
    with atomic(FILE) as part: part.write_text('{' + ',\n'.join(parts) + '}\n')


def figures_of(encoder, tasks, s):
    "Figures of an encoder: task, dataset, metric, value, low, high, n, protocol, status."
    return as_records(evaluate(encoder, tasks, s=s))


def as_records(results):
    "Results as they are kept."
    columns = ['task', 'dataset', 'metric', 'value', 'low', 'high', 'n', 'protocol', 'status']
    rows = results.drop_duplicates(['task', 'dataset', 'metric', 'protocol'])
    return json.loads(rows[columns].round(5).to_json(orient='records'))


def turku_figures(encoder, lang, s):
    "Figures of detection in the language that an encoder was trained on."
    rows = (dict(task='detect-Turku') | row for data in DETECTION['detect-Turku'] if data.dataset[:2] == lang
            for row in measure_set(encoder.encode, data, s.resources / 'eval'))
    return as_records(results_frame(rows))


def configs_of(names):
    "Configs of groups and of single trainings, in the order of the names."
    single = {config.run.name: [config] for configs in GROUPS.values() for config in configs}
    if unknown := [name for name in names if name not in GROUPS | single]:
        raise SystemExit(f'no training or group {unknown[0]!r}; groups are {", ".join(GROUPS)}')
    return {config.run.name: config for name in names for config in (GROUPS | single)[name]}


def facts_of(config, made):
    "Of a finished training: what it was, and its seconds."
    return dict(group=config.run.name.partition('-')[0], model=config.encoder.model, seed=config.run.seed,
                corpus=config.data.corpus, pairs=made.finished['pairs'], figures=[],
                config={k: v for k, v in made.config.items() if k not in ('name', 'seed', 'corpus', 'model')})


def run(names, s):
    "Trainings that are not in the file yet, with figures of STS; then their figures of detection, which take longer."
    for name, config in configs_of(names).items():
        if name in kept()['trainings']: continue
        wall, cpu = time.perf_counter(), time.process_time()
        made = train(config, s, show=False)
        facts = facts_of(config, made) | dict(seconds=round(time.perf_counter() - wall, 1),
                                              processor_seconds=round(time.process_time() - cpu, 1))
        if similar := [task for task in TASKS[facts['group']] if task.startswith('STS')]:
            facts['figures'] = figures_of(SentenceEncoder.load(made.folder / 'encoder'), similar, s)
        keep('trainings', name, facts)
        print(name, facts['seconds'], 's,', facts['processor_seconds'], 's of processor', flush=True)
    for name in configs_of(names): detect(name, s)


def detect(name, s):
    "Add figures of detection and transfer to those of a training, if its encoder is on this machine."
    facts, folder = kept()['trainings'][name], s.runs / name / 'encoder'
    wanted = TASKS[facts['group']] + ['SICK-R'] * (facts['corpus'] == CLEAN)  # of Table 7, which has no noise
    missing = set(wanted) - {row['task'] for row in facts['figures']}
    if not missing: return
    if not folder.is_dir(): return print(f'{name}: no figures of {", ".join(missing)}, its encoder is not in {folder}')
    cpu = time.process_time()
    encoder, corpus = SentenceEncoder.load(folder), facts['corpus']
    facts['figures'] += (turku_figures(encoder, corpus[-2:], s) if missing == {'detect-Turku'}
                         else figures_of(encoder, sorted(missing), s))
    keep('trainings', name, facts)
    print(name, *missing, round(time.process_time() - cpu, 1), 's of processor', flush=True)


def systems(names, s):
    "Encoders that are there already."
    for name in names:
        if name in kept()['systems']: continue
        start = time.perf_counter()
        figures = figures_of(open_model(name, s, 'Encoder'), ['detect-MRPC', 'detect-PIT'], s)
        keep('systems', name, dict(seconds=round(time.perf_counter() - start, 1), figures=figures))
        print(name, round(time.perf_counter() - start), 's', flush=True)


NEGATION = r"(?i)\b(?:no|not|never|nobody|nothing|none|cannot)\b|n[’']t\b"


def distributions(names, s):
    "Figure 1: how similar encoders find the target and the available sentences; counts and cosines alone are kept."
    corpus = Corpus.open(MILLION, s)
    negated_share = corpus.frame(['reference'], limit=100_000).reference.str.contains(NEGATION).mean()
    for name in names:
        if name in kept()['distributions']: continue
        encoder = open_model(name, s)
        found = neighbours(build_vectors(corpus, encoder, show=False), encoder, TARGET, 1000)
        negated = found.table.sentence.str.contains(NEGATION)
        shares = dict(nearest_10=negated[:10].mean(), nearest_1000=negated.mean(), all=negated_share)
        keep('distributions', name, dict(
            compared=found.compared, counts=found.distribution.sentences.tolist(),
            nearest=[round(float(x), 3) for x in found.table.cosine.head(10)],
            negated={k: round(float(x), 3) for k, x in shares.items()}))


def timed(call):
    "The value of a call, and its seconds of wall and processor."
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, round(time.perf_counter() - wall, 2), round(time.process_time() - cpu, 2)


def memory(): return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


def million(s):
    "The available sentences, repeated with a number up to a million."
    if MILLION in list_corpora(s): return
    texts = Corpus.open('sentences', s).frame(['reference']).reference
    corpus = Corpus.create(MILLION, s)
    for shard in range(10):
        rows = range(shard * 100_000, (shard + 1) * 100_000)
        corpus.write_pairs(shard, dict(reference=[f"{texts[k % len(texts)]} {k // len(texts) or ''}".strip()
                                                  for k in rows]))


def index(s):
    "Time and memory of vectors and searches among a million sentences, and the recall of the index."
    million(s)
    name = MILLION
    corpus, encoder = Corpus.open(name, s), open_model('paraphrase-scorer', s)
    facts = dict(memory_before=memory())
    vectors, *facts['vectors'] = timed(lambda: build_vectors(corpus, encoder, show=False))
    facts |= dict(sentences=len(vectors), dim=vectors.dim, memory_vectors=memory())
    rows = np.random.default_rng(0).choice(len(vectors), 50, replace=False)
    queries = vectors.rows(rows)
    timed(lambda: nearest(vectors.blocks(), queries[0], 11)) # the files come into memory
    true, *exact = timed(lambda: [nearest(vectors.blocks(), q, 11).rows for q in queries])
    facts |= dict(exact=[x / len(queries) for x in exact], memory_exact=memory())
    made, *facts['index'] = timed(lambda: build_index(vectors, show=False))
    sizes = {p: sum(f.stat().st_size for f in vectors.folder.glob(p)) for p in ('vectors-*.npy', 'index.faiss')}
    facts |= dict(cells=made.nlist, memory_index=memory(), megabytes={p: round(n / 1e6) for p, n in sizes.items()})
    for probes in (1, 4, 8, 16, 32, 64):
        found, *took = timed(lambda: [nearest_by_index(made, vectors, q, 11, probes).rows for q in queries])
        share = np.mean([np.isin(f, t).mean() for f, t in zip(found, true)])
        facts[f'probes {probes}'] = dict(recall=round(float(share), 4), seconds=[x / len(queries) for x in took])
    keep('index', name, facts)


def _over(of):
    "Mean and interval: over seeds, or that of the test pairs, for a single seed or where seeds make no difference."
    if of.value.nunique() > 1: return dict(zip(('value', 'low', 'high'), interval(of.value)))
    return of[['value', 'low', 'high']].iloc[0].to_dict()


def over_seeds():
    "Means over seeds by training and figure: group, model, corpus, task, dataset, metric, value, low, high, n."
    rows = pd.DataFrame([{k: facts[k] for k in ('group', 'model', 'corpus', 'seed')} | figure
                         for facts in kept()['trainings'].values() for figure in facts['figures']])
    rows = rows.astype(dict(value=float, low=float, high=float))
    other = (rows.group == 'segmentation') & (rows.dataset.str[:2] != rows.corpus.str[-2:])
    rows = rows[~other]  # an encoder of Finnish says nothing about Swedish
    by = ['group', 'model', 'corpus', 'task', 'dataset', 'metric', 'protocol', 'status']
    return pd.DataFrame([dict(zip(by, key)) | _over(of) | dict(n=of.n.iloc[0], seeds=','.join(map(str, of.seed)))
                         for key, of in rows.groupby(by, sort=False, dropna=False)])


WHOLE = 'mean', 'en-en'  # Data sets that are not a part of a year
STORIES = {('detect-PIT', 'accuracy, threshold'): 'PIT, threshold', ('detect-MRPC', 'accuracy'): 'MRPC, MLP',
           ('detect-MRPC', 'accuracy, threshold'): 'MRPC, threshold', ('STS17', 'pearson'): 'STS 2017, r',
           ('STS14', 'pearson'): 'STS 2014, r'}


def noise_by_seed(kind='short'):
    "Figures in per cent of each training under noise: story, model, share, seed, points."
    rows = [dict(story=STORIES.get((row['task'], row['metric'])), model=facts['model'], seed=facts['seed'],
                 share=float(facts['corpus'].partition('-')[2]), points=100 * row['value'])
            for facts in kept()['trainings'].values() if facts['group'] == kind for row in facts['figures']
            if row['value'] is not None and (row['dataset'] in WHOLE or row['task'].startswith('detect'))]
    return pd.DataFrame(rows).dropna().drop_duplicates()


def noise_losses():
    "Points that the most noise costs a seed, and GRAN's loss less WORD's: mean, interval over seeds, seeds."
    points = noise_by_seed().pivot(index=['story', 'seed'], columns=['model', 'share'], values='points')
    lost = {model: points[model, NOISE[0]] - points[model, NOISE[-1]] for model in ('WORD', 'GRAN')
            if {(model, NOISE[0]), (model, NOISE[-1])} <= set(points.columns)}
    if len(lost) == 2: lost['GRAN less WORD'] = lost['GRAN'] - lost['WORD']
    rows = pd.DataFrame(lost).melt(ignore_index=False, var_name='loss of').dropna().reset_index()
    return pd.DataFrame([dict(zip(('story', 'loss of', 'mean', 'low', 'high'), (*key, *interval(of.value))))
                         | dict(seeds=len(of)) for key, of in rows.groupby(['story', 'loss of'], sort=False)])


def of_table(key):
    "Our figures for one of the paper's tables."
    every = over_seeds()
    every = every[~every.metric.str.contains('standard deviation') & every.value.notna()]
    segmentation, noise = (every[every.group == name] for name in ('segmentation', 'short'))
    if key == 'opusparcus.2':
        rows = segmentation.assign(system=segmentation.model, training='bitext with English')
    else: rows = noise.assign(system=noise.model, training=[f"{100 - 100 * float(c.partition('-')[2]):g} % clean"
                                                            for c in noise.corpus])
    whole = rows.metric.isin(['accuracy', 'f1']) | rows.metric.str.contains('majority|threshold')
    if key == 'opusparcus.3': rows = rows[whole | ((rows.task == 'STS17') & (rows.dataset == 'en-en'))]
    if key == 'opusparcus.7':
        wanted = (whole & (rows.task == 'detect-MRPC')) | ((rows.task == 'STS14') & (rows.dataset == 'mean'))
        wanted |= (rows.task == 'SICK-R') & (rows.metric == 'pearson')
        rows = rows[wanted & (rows.training == '100 % clean')]
    columns = ['task', 'dataset', 'metric', 'value', 'low', 'high', 'n', 'protocol', 'system', 'training', 'seeds']
    return rows.reindex(columns=columns)


PRESET = f"preset opusparcus, {COMMON['dim']} dimensions, {COMMON['vocabulary']:,} types, {COMMON['epochs']} epochs"
SEEDED = '95 % interval over seeds, or over test pairs where there is one seed'
CONFIGS = {
    'opusparcus.2': f'{PRESET}, on 20,000 pairs of fi-en or sv-en, English as the second side; {SEEDED}',
    'opusparcus.3': f'{PRESET}, on {POSITIVES:,} pairs of wmt21-23 of at most {LONGEST["short"]} words, a share of '
                    f'them random; {SEEDED}',
    'opusparcus.7': f'the trainings of opusparcus.3 without noise; no Morfessor; {SEEDED}'}


NEIGHBOURS = 'Opusparcus, whose development set the neighbours come from, is not here, nor encoders trained on it'


def printed_neighbours(name, s):
    "Cosines of the sentence of opusparcus.4 with the neighbours that the paper prints, under another encoder."
    paper = published_figures().query("run == 'opusparcus.4'").drop_duplicates(['task', 'dataset'])
    cosines = open_model(name, s, 'Encoder').similarity_pairwise(paper.task.tolist(), paper.dataset.tolist())
    facts = dict(metric='cosine', protocol="the paper's neighbours, not our nearest", system='shipped scorer')
    return paper[['task', 'dataset']].assign(value=cosines, **facts)


def keep_tables(s):
    "Write our figures of all tables where `paranmt results table` finds them."
    for key in ('opusparcus.4', 'opusparcus.5'): keep_absent(key, NEIGHBOURS)
    keep_measured('opusparcus.4', printed_neighbours('paraphrase-scorer', s), config='the encoder in data/models',
                  command='python nbs/papers/detection.py keep', machine='2 shared CPU cores')
    for key, config in CONFIGS.items():
        if len(rows := of_table(key)):
            keep_measured(key, rows, command='python nbs/papers/detection.py run', machine='2 shared CPU cores',
                          config=config)


if __name__ == '__main__':
    what, *names = sys.argv[1:] or ['help']
    s = settings()
    if what == 'pairs':
        for kind in LONGEST: noisy_pairs(s, kind)
        for make in (bitexts, sentences): make(s)
    elif what == 'run': run(names or GROUPS, s)
    elif what == 'systems': systems(names, s)
    elif what == 'distributions':
        million(s)
        distributions(names, s)
    elif what == 'index': index(s)
    elif what == 'keep': keep_tables(s)
    else: print(__doc__)
