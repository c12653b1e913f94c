"""A syntactically controlled network (SCPN) as in `paranmt`, section 6: pairs, parses, training, figures.

    python nbs/papers/generation_syntax.py pairs
        # the corpus `syntactic`: pairs of at most twelve words that the scorer calls paraphrases
    python nbs/papers/generation_syntax.py parses
        # the parses of both sides by Link Grammar, and the parser's rate
    python nbs/papers/generation_syntax.py templates
        # generation.json, `syntax`: frequencies of templates, and how often a copy has the template of the other side
    python nbs/papers/generation_syntax.py train
        # the run and the model `syntactic`, on the pairs in both directions; minutes of a GPU
    python nbs/papers/generation_syntax.py measure
        # generation.json, `syntax_measured`: figures on held-out pairs for the reference's template and for frequent
        # ones, beside a copy and the model `canonicaliser`, and twenty examples of our own sample
    python nbs/papers/generation_syntax.py attention
        # generation.json, `syntax_attention`: weights for the first three of these examples

PARANMT_RESOURCES names the folder that holds `train/paraphrase`. Every step resumes where it was stopped.
`measure` needs the model and the corpus of `generation.py` too."""
import sys
import time

import numpy as np
import pandas as pd

from generation import EXAMPLES, FILE, SCORERS, judged
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.filters.lm_training import train_lm
from paranmt_lab.generation.engine import open_generator
from paranmt_lab.generation.syntax import corpus_trees, count_templates
from paranmt_lab.generation.training import generator_pairs, ship_generator, train_generator
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.jobs.run import Run
from paranmt_lab.parsing.columns import parse_corpus, parses_by_id
from paranmt_lab.parsing.trees import read_tree, top_levels
from paranmt_lab.recipes.generation import (
    APART,
    FREQUENT,
    HELD_OUT_EACH,
    PAIRS,
    SIZES,
    askable,
    best,
    both_directions,
    for_templates,
    generator_config,
)
from paranmt_lab.recipes.sources import need_corpus
from paranmt_lab.recipes.statistics import PARSER

WORDS = PAIRS['syntactic'].words # Of a sentence at most


def parse(s):
    "Parse the corpus, and keep the counts and the rate."
    start = time.time()
    counts = parse_corpus(Corpus.open('syntactic', s), PARSER)
    sentences = sum(side['sentences'] for side in counts.values())
    path = s.corpora / 'syntactic/parse-rate.json'
    if not path.exists(): write_json(path, dict(counts, sentences_per_second=sentences / (time.time() - start)))
    print(path.read_text(encoding='utf-8'))


def templates(s):
    "Frequencies of templates, and the share of pairs whose sides have the same one: the match of a copy."
    corpus = Corpus.open('syntactic', s)
    pairs = corpus.frame(['pair_id', 'corpus'])
    parses = parses_by_id(corpus, PARSER, pairs.pair_id)
    shapes = parses.map(lambda text: top_levels(read_tree(text)) if isinstance(text, str) else None)
    both = shapes.notna().all(axis=1)
    same = (shapes.reference == shapes.translation)[both]
    counts = count_templates(corpus_trees(corpus, PARSER))
    copies = pd.DataFrame(dict(domain=pairs.corpus[both], same=same)).groupby('domain').same.agg(['size', 'mean'])
    covered = {str(n): float(counts.covered[n - 1]) for n in (1, 5, 20, 100)}
    found = dict(made=provenance(), command='python nbs/papers/generation_syntax.py templates', pairs=len(pairs),
                 parsed=read_json(s.corpora / 'syntactic/parse-rate.json'), templates=len(counts), covered=covered,
                 frequent=counts.head(10).to_dict('records'), copies=copies.reset_index().to_dict('records'))
    write_json(FILE, read_json(FILE) | dict(syntax=found))


CONFIG = generator_config('syntactic', 'syntactic', [domain + APART for domain in PAIRS['syntactic'].held_out],
                          architecture='syntax', parser=PARSER, longest_parse=70, **SIZES['paper']['syntactic'])


def train(s):
    "Train both networks, or resume."
    run = train_generator(CONFIG, both_directions(generator_pairs(Corpus.open('syntactic', s), CONFIG)), s)
    if run.finished: print(ship_generator(run, s, 'python nbs/papers/generation_syntax.py train').to_string())


FIGURES = ['step', 'loss', 'held_out', 'bleu', 'held_out_parse', 'templates'] # Of a training
LM, LM_SENTENCES = 'syntactic-references', 8_000 # Language model for perplexities, and its sentences


def matches(asked, inputs, outputs):
    "Share of outputs with the template asked for: of all, and where the input has another template."
    asked, inputs, outputs = map(np.array, (asked, inputs, outputs))
    same, other = outputs == asked, inputs != asked
    return dict(match=100 * float(same.mean()), other=int(other.sum()),
                match_of_other=100 * float(same[other].mean()) if other.any() else None,
                no_parse=int((outputs == '').sum()))


def held_out_pairs(engine):
    "At most `HELD_OUT_EACH` pairs of each domain whose references have a template that the network can be asked for."
    held = pd.read_parquet(settings().runs / 'syntactic/held-out.parquet').drop_duplicates('source')
    held = held.assign(**{side: engine.real_templates(list(held[of])) for side, of in
                          (('input_template', 'source'), ('template', 'reference'))})
    known = askable(engine, held.template)
    drawn = held[known].sample(frac=1, random_state=0).groupby('corpus').head(HELD_OUT_EACH).reset_index(drop=True)
    return drawn, dict(pairs=len(held), without_template=int((~known).sum()))


def known_pairs(held, s):
    "How many of the pairs are training pairs of the canonicaliser, in either direction: its corpus held out others."
    pairs = Corpus.open('canonical', s).frame(['reference', 'translation', 'corpus'])
    pairs = pairs[~pairs.corpus.str.endswith(APART)]
    trained = set(zip(pairs.reference, pairs.translation))
    return sum((a, b) in trained or (b, a) in trained for a, b in zip(held.source, held.reference))


def systems_of(engine, held, s):
    "(system, template asked for, outputs) on the held-out pairs."
    inputs, own = list(held.source), list(held.template)
    rows = [('SCPN, template of the reference', own, for_templates(engine, inputs, own))]
    for template in engine.templates.template.head(FREQUENT):
        asked = [template] * len(inputs)
        rows.append((f'SCPN, {template}', asked, for_templates(engine, inputs, asked)))
    if (s.models / 'canonicaliser').is_dir():
        rows.append(('canonicaliser', own, best(open_generator('generator:canonicaliser', s), inputs)))
    return [*rows, ('copy of the input', own, inputs), ('reference', own, list(held.reference))]


def syntax_figures(engine, s):
    "Figures of each system, over all domains and for each one."
    held, counts = held_out_pairs(engine)
    # the model of generation.py has read the pairs that are held out here
    train_lm(Corpus.open('syntactic', s), LM, s, LM_SENTENCES, where="corpus NOT LIKE '%held out'")
    lm = open_model(f'lm:{LM}', s)
    scorers, rows = {name.rpartition(':')[2]: open_model(name, s) for name in SCORERS}, []
    for name, asked, outputs in systems_of(engine, held, s):
        real = engine.real_templates(outputs)
        for domain in ('all', *sorted(held.corpus.unique())):
            at = np.flatnonzero(np.full(len(held), True) if domain == 'all' else held.corpus == domain)
            of = lambda texts, at=at: [texts[i] for i in at]
            figures = judged(of(outputs), held.iloc[at], lm, scorers)
            rows.append(dict(domain=domain, system=name, n=len(at), **figures,
                             **matches(of(asked), of(list(held.input_template)), of(real))))
        print(rows[-len(held.corpus.unique()) - 1], flush=True)
    copies = [dict(template=t, match=100 * float((held.input_template == t).mean()))
              for t in engine.templates.template.head(FREQUENT)]
    return counts | dict(rows=rows, copies=copies, known_to_canonicaliser=known_pairs(held, s))


def syntax_examples(engine, s):
    "Sentences of our own sample, and for each a template drawn of the ten most frequent that it does not have."
    own = pd.read_csv(s.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).reference
    drawn = list(own[own.str.count(r'\S+').between(4, WORDS)].drop_duplicates().sample(EXAMPLES, random_state=0))
    rng, has = np.random.default_rng(0), engine.real_templates(drawn)
    asked = [str(rng.choice([t for t in engine.templates.template.head(10) if t != its])) for its in has]
    outputs = for_templates(engine, drawn, asked)
    similar = open_model(SCORERS[1], s).similarity_pairwise(outputs, drawn)
    return [dict(sentence=a, has=b, asked=c, paraphrase=d, found=e, match=c == e, similarity=float(x))
            for a, b, c, d, e, x in zip(drawn, has, asked, outputs, engine.real_templates(outputs), similar)]


def pictures(s):
    "generation.json, `syntax_attention`: attention to the sentence, for the first three examples of `measure`."
    engine, kept = open_generator('generator:syntactic', s), read_json(FILE)
    found = []
    for row in kept['syntax_measured']['examples'][:3]:
        read, written, weights = engine.attention(row['sentence'], row['paraphrase'])
        found.append(dict(read=read, written=written, weights=weights.double().round(decimals=3).tolist()))
    write_json(FILE, kept | dict(syntax_attention=found))


def measure(s):
    "generation.json, `syntax_measured`."
    run, engine, start = Run.open(s.runs, 'syntactic'), open_generator('generator:syntactic', s), time.process_time()
    training = dict(config=run.config, finished=run.finished,
                    metrics=run.metrics().dropna(subset='held_out')[FIGURES].to_dict('records'))
    found = dict(made=provenance(), command='python nbs/papers/generation_syntax.py measure', training=training,
                 held_out=syntax_figures(engine, s), examples=syntax_examples(engine, s))
    write_json(FILE, read_json(FILE) | dict(syntax_measured=found | dict(seconds=time.process_time() - start)))


if __name__ == '__main__':
    s, step = settings(), sys.argv[1] if len(sys.argv) > 1 else ''
    if step == 'pairs': need_corpus('syntactic', s)
    elif step == 'parses': parse(s)
    elif step == 'templates': templates(s)
    elif step == 'train': train(s)
    elif step == 'measure': measure(s)
    elif step == 'attention': pictures(s)
    else: raise SystemExit(__doc__)
