"""A canonicaliser as in `paranmt`, section 6: its pairs, its training, its figures on held-out pairs.

    python nbs/papers/generation.py pairs
        # the corpus `canonical`: short pairs of the resources that the scorer calls paraphrases
    python nbs/papers/generation.py train NAME
        # the run and the model NAME: `canonicaliser`, `canonicaliser-transformer` on the same pairs, or
        # `canonicaliser-varied` on pairs that share few words; minutes of a GPU, a night of one core
    python nbs/papers/generation.py lm
        # models/canonical: a trigram model of 30,000 references of the training pairs, for perplexities
    python nbs/papers/generation.py measure
        # generation.json: held-out pairs, JFLEG's development set, planted errors, twenty examples of our own sample

PARANMT_RESOURCES names the folder that holds `train/paraphrase` and `eval/jfleg`. Every step goes on where it was
stopped."""
import re
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sacrebleu.metrics import BLEU

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.evaluation.gleu import gleu
from paranmt_lab.filters.language_model import perplexity
from paranmt_lab.filters.lm_training import train_lm
from paranmt_lab.filters.measures import ngram_overlap
from paranmt_lab.generation.training import generator_pairs, ship_generator, train_generator
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.jobs.run import Run
from paranmt_lab.recipes.generation import APART, BEAM, HELD_OUT_EACH, PAIRS, SIZES, best, generator_config, only_words
from paranmt_lab.recipes.sources import need_corpus

FILE = Path(__file__).with_suffix('.json')
SCORERS = 'paraphrase-scorer', 'st:all-MiniLM-L6-v2'
EXAMPLES = 20 # Sentences
SHOWN = 'canonicaliser-varied' # Generator whose attention, groups and draws are shown
WORDS = PAIRS['canonical'].words # Of a sentence at most
VARIED = .4          # Overlap of trigrams at most, in the pairs of `canonicaliser-varied`


def config(name, **changes):
    "Config of a training, as a GPU trains it in minutes."
    domains = [domain + APART for domain in PAIRS['canonical'].held_out]
    return generator_config(name, 'canonical', domains, **SIZES['paper']['canonical'] | changes)


CONFIGS = {c.name: c for c in (
    config('canonicaliser'), config('canonicaliser-varied'),
    config('canonicaliser-transformer', architecture='transformer', feed_forward=512, encoder_layers=4,
           decoder_layers=2, warmup=1_000, learning_rate=1.5e-3))}


def training_pairs(config, s):
    "Pairs of a training; held-out pairs are the same for all."
    found = generator_pairs(Corpus.open('canonical', s), config)
    if config.name != 'canonicaliser-varied': return found
    far = ngram_overlap(list(found.reference), list(found.translation)) <= VARIED
    return found[far | found.corpus.str.endswith(APART)].reset_index(drop=True)


def train(config, s):
    "Train a generator, or resume."
    run = train_generator(config, training_pairs(config, s), s)
    if run.finished: print(ship_generator(run, s, f'python nbs/papers/generation.py train {config.name}').to_string())


def judged(outputs, pairs, lm, scorers):
    "Figures of some outputs for held-out pairs."
    inputs, references = list(pairs.source), list(pairs.reference)
    figures = dict(bleu=BLEU().corpus_score(outputs, [references]).score,
                   self_bleu=BLEU().corpus_score(outputs, [inputs]).score,
                   copies=100 * float(np.mean([a == b for a, b in zip(outputs, inputs)])),
                   copies_of_words=100 * float(np.mean([only_words(a) == only_words(b)
                                                        for a, b in zip(outputs, inputs)])))
    for name, scorer in scorers.items():
        figures[f'to input, {name}'] = float(np.mean(scorer.similarity_pairwise(outputs, inputs)))
        figures[f'to reference, {name}'] = float(np.mean(scorer.similarity_pairwise(outputs, references)))
    figures['perplexity'] = float(np.nanmedian(perplexity(outputs, lm))) if lm else None
    return figures | dict(words=float(np.mean([len(text.split()) for text in outputs])))


def held_out_figures(engines, s):
    "Outputs for held-out pairs, beside a copy of the input and the reference itself; a row for each domain and system."
    held = pd.read_parquet(s.runs / 'canonicaliser/held-out.parquet')
    words = [held[side].str.count(r'\S+') for side in ('source', 'reference')]
    held = held[(words[0] <= WORDS) & (words[1] <= WORDS)].drop_duplicates('source')
    held = held.groupby('corpus').sample(HELD_OUT_EACH, random_state=0)
    lm = open_model('lm:canonical', s) if (s.models / 'canonical/lm.json').is_file() else None
    scorers = {name.rpartition(':')[2]: open_model(name, s) for name in SCORERS}
    systems, rates = {}, {}
    for name, engine in engines.items():
        start = time.process_time()
        systems[name] = best(engine, held.source)
        rates[name] = len(held) / (time.process_time() - start)
    systems |= {'copy of the input': list(held.source), 'reference': list(held.reference)}
    rows = []
    for domain in ('all', *sorted(held.corpus.unique())):
        of = np.ones(len(held), bool) if domain == 'all' else (held.corpus == domain).to_numpy()
        rows += [dict(domain=domain, system=name, n=int(of.sum()),
                      **judged([x for x, inside in zip(outputs, of) if inside], held[of], lm, scorers))
                 for name, outputs in systems.items()]
    return dict(rows=rows, sentences_per_cpu_second=rates)


def written(text):
    "A tokenised sentence as people write it, which is what the generators were trained on."
    text = text.replace('-lrb-', '(').replace('-rrb-', ')').replace('``', '"').replace("''", '"')
    return re.sub(r" (n't|'\w+|[.,!?;:%)])(?!\S)", r'\1', text).replace('( ', '(').strip()


def tokenised(text):
    "A sentence with blanks around its punctuation, as JFLEG has it."
    return re.sub(r"(?<=\w)(n't|'\w+)\b", r' \1', re.sub(r'([.,!?;:()"])', r' \1 ', text))


def jfleg_lines(s):
    "Sentences of learners, and four corrections of each."
    lines = lambda name: (s.resources / f'eval/jfleg/dev.{name}').read_text(encoding='utf-8').rstrip('\n').split('\n')
    return lines('src'), list(zip(*(lines(f'ref{k}') for k in range(4))))


def jfleg_figures(engines, s):
    "GLEU on JFLEG's development set; sentences of at most 20 words beside all."
    sources, references = jfleg_lines(s)
    people = [[rs[k] for rs in references] for k in range(len(references[0]))]
    outputs = dict(source=sources) | {name: [tokenised(text) for text in best(engine, [written(x) for x in sources])]
                                      for name, engine in engines.items()}
    short_ones = [i for i, text in enumerate(sources) if len(text.split()) <= WORDS]
    rows = []
    for name, of in (('all', range(len(sources))), (f'at most {WORDS} words', short_ones)):
        of_those = lambda rows: [rows[i] for i in of]
        scores = {system: gleu(*map(of_those, (sources, texts, references))) for system, texts in outputs.items()}
        person = [gleu(*map(of_those, (sources, people[k], [rs[:k] + rs[k + 1:] for rs in references])))
                  for k in range(len(people))]
        rows.append(dict(sentences=name, n=len(of)) | scores | dict(person=float(np.mean(person))))
    return rows


RULES = { # Each gives a sentence with a mistake, the wrong n-gram and the right one; None where it does not apply
    'article dropped': (r'\b(\w+ )(the|a|an) (\w+)\b', r'\1\3'),
    'wrong agreement': (r'\b(\w+) (is|are|was|were|has|have)\b', None),
    'words swapped': (r'\b(\w+) (\w+) (\w+)\b', r'\1 \3 \2'),
}
OTHER = {'is': 'are', 'are': 'is', 'was': 'were', 'were': 'was', 'has': 'have', 'have': 'has'}


def planted(sentence, rule):
    "A sentence with a mistake, the wrong words and the right ones."
    pattern, into = RULES[rule]
    found = re.search(pattern, sentence)
    if not found: return None
    right = found.group()
    wrong = f'{found.group(1)} {OTHER[found.group(2)]}' if into is None else found.expand(into)
    return None if wrong == right else (sentence[:found.start()] + wrong + sentence[found.end():], wrong, right)


def planted_figures(engine, s):
    "Share of planted mistakes that are repaired, and of clean words that are kept, on held-out references."
    held = pd.read_parquet(s.runs / 'canonicaliser/held-out.parquet').drop_duplicates('source')
    clean = held.source[held.source.str.count(r'\S+').between(5, 15)].sample(150, random_state=0)
    rows, kept = [], dict(zip(clean, best(engine, clean)))
    for rule in RULES:
        errors = {text: found for text in clean if (found := planted(text, rule))}
        outputs = best(engine, [wrong for wrong, _, _ in errors.values()])
        has = lambda text, words: f' {words.lower()} ' in f" {re.sub(r'[^a-z0-9]+', ' ', text.lower())} "
        repaired = [has(out, right) and not has(out, wrong) for out, (_, wrong, right) in zip(outputs, errors.values())]
        left = [has(out, wrong) for out, (_, wrong, _) in zip(outputs, errors.values())]
        clean_kept = [has(kept[text], right) for text, (_, _, right) in errors.items()]
        rows.append(dict(rule=rule, n=len(errors), repaired=100 * float(np.mean(repaired)),
                         left=100 * float(np.mean(left)), right_words_kept_in_clean=100 * float(np.mean(clean_kept))))
    return rows


def examples(engines, s):
    "Twenty sentences of our own sample, drawn and not chosen, and the attention of the first three."
    own = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).reference
    drawn = own[own.str.count(r'\S+') <= WORDS].drop_duplicates().sample(EXAMPLES, random_state=0)
    shown = pd.DataFrame(dict(sentence=list(drawn)) | {name: best(e, drawn) for name, e in engines.items()})
    engine = engines[SHOWN]
    diverse = engine.translate(list(drawn), Decoding(BEAM, 2, method='diverse', groups=4, diversity=1.))
    sampled = engine.translate(list(drawn), Decoding(n_best=1, method='sample', temperature=.7, top_k=20))
    shown = shown.assign(diverse=[ds[-1].text for ds in diverse], sampled=[ss[0].text for ss in sampled])
    pictures = []
    for row in shown.head(3).itertuples():
        read, written, weights = engine.attention(row.sentence, shown[SHOWN][row.Index])
        pictures.append(dict(read=read, written=written, weights=weights.double().round(decimals=3).tolist()))
    return dict(rows=shown.to_dict('records'), attention=pictures)


def training_facts(name, s):
    "How a generator was trained."
    run = Run.open(s.runs, name)
    metrics = run.metrics()[['step', 'loss', 'held_out', 'bleu', 'rate']].drop_duplicates('step', keep='last')
    return dict(config=run.config, finished=run.finished, seconds=read_json(run.folder / 'progress.json')['seconds'],
                metrics=metrics.to_dict('records'))


def measure(s):
    "generation.json."
    engines = {name: open_model(f'generator:{name}', s) for name in CONFIGS}
    planted = [dict(system=name, **row) for name, engine in engines.items() for row in planted_figures(engine, s)]
    found = dict(made=provenance(), command='python nbs/papers/generation.py measure',
                 training={name: training_facts(name, s) for name in CONFIGS},
                 held_out=held_out_figures(engines, s), jfleg=jfleg_figures(engines, s),
                 planted=planted, examples=examples(engines, s))
    write_json(FILE, read_json(FILE) | found)


if __name__ == '__main__':
    s, step = settings(), sys.argv[1] if len(sys.argv) > 1 else ''
    if step == 'pairs': need_corpus('canonical', s)
    elif step == 'train': train(CONFIGS[sys.argv[2]], s)
    elif step == 'lm':
        train_lm(Corpus.open('canonical', s), 'canonical', s, 30_000, where="corpus NOT LIKE '%held out'")
    elif step == 'measure': measure(s)
    else: raise SystemExit(__doc__)
