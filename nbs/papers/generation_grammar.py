"""Does the canonicaliser correct grammar? Edits by ERRANT (Bryant et al. 2017), and how published GLEU was computed.

    python nbs/papers/generation_grammar.py gleu
        # generation.json, `gleu`: JFLEG's own figures, with the draws of its script and with ours
    python nbs/papers/generation_grammar.py errant [TAGGER]
        # generation.json, `errant`: precision, recall and F0.5 of edits on JFLEG's development set

`errant` needs the library of that name, which the extra `bench` brings, and a model of spaCy for English: TAGGER is its
name or folder. Without TAGGER the words have no parts of speech, so that ERRANT aligns them by letters alone, merges
other edits than with a tagger, and gives no types. PARANMT_RESOURCES names the folder that holds `eval/jfleg`."""
import random
import sys
import time
from argparse import Namespace
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np

from generation import FILE, WORDS, jfleg_lines, tokenised, written
from paranmt_lab.evaluation.gleu import gleu, gleu_counts, gleu_of_counts
from paranmt_lab.generation.engine import open_generator
from paranmt_lab.ground.settings import read_json, settings, write_json
from paranmt_lab.jobs.provenance import provenance
from paranmt_lab.recipes.generation import best

DRAWS = 500
GENERATORS = 'canonicaliser', 'canonicaliser-transformer', 'canonicaliser-varied'
PUBLISHED = dict(source=38.21, person=55.26) # README of the JFLEG corpus, development set


def save(step, found, start):
    "Write the figures of a step beside those of the others."
    words = ' '.join(Path(word).name for word in sys.argv[1:])
    facts = dict(made=provenance(), command=f'python nbs/papers/generation_grammar.py {words}',
                 seconds=time.process_time() - start)
    write_json(FILE, read_json(FILE) | {step: facts | found})


def gleu_by_draws_of_jfleg(sources, outputs, references):
    "GLEU with the references that JFLEG's script for Python 2 draws: draw j has the seed 101 j."
    counts_NRC = np.array([[gleu_counts(s, h, r) for r in rs] for s, h, rs in zip(sources, outputs, references)])
    n, choices, _ = counts_NRC.shape
    found = []
    for j in range(DRAWS):
        rng = random.Random(101 * j)
        picked_N = [int(rng.random() * choices) for _ in range(n)]
        found.append(float(gleu_of_counts(counts_NRC[np.arange(n), picked_N].sum(0))))
    return dict(mean=100 * float(np.mean(found)), spread=100 * float(np.std(found)))


def compare_gleu(s):
    "generation.json, `gleu`."
    start, (sources, references) = time.process_time(), jfleg_lines(s)
    others = [[rs[:k] + rs[k + 1:] for rs in references] for k in range(len(references[0]))]
    people = [[rs[k] for rs in references] for k in range(len(references[0]))]
    mean_of_people = lambda score: float(np.mean([score(sources, *of) for of in zip(people, others)]))
    theirs = lambda *of: gleu_by_draws_of_jfleg(*of)['mean']
    rows = [dict(output='source', published=PUBLISHED['source'], ours=gleu(sources, sources, references),
                 with_their_draws=theirs(sources, sources, references)),
            dict(output='person', published=PUBLISHED['person'], ours=mean_of_people(gleu),
                 with_their_draws=mean_of_people(theirs))]
    spread = gleu_by_draws_of_jfleg(sources, sources, references)['spread']
    save('gleu', dict(rows=rows, spread_of_a_draw=spread, draws=DRAWS), start)
    print(rows, spread)


class Annotator:
    "Edits between two sentences, by ERRANT."
    def __init__(self, tagger):
        import errant
        import spacy
        self.tagged = bool(tagger)
        self.errant = errant.load('en', spacy.load(tagger, disable=['ner']) if tagger else spacy.blank('en'))
        self.parse, self.edits = lru_cache(None)(self.errant.parse), lru_cache(None)(self.find_edits)

    def find_edits(self, source, text):
        "(beginning, end, correction) to the types of the edit, as `errant_compare` has it."
        source, text = self.parse(source), self.parse(text)
        found = (self.errant.annotate(source, text) if self.tagged
                 else self.errant.merge(self.errant.align(source, text)))
        edits = {}
        for edit in found:
            if edit.type != 'UNK': edits.setdefault((edit.o_start, edit.o_end, edit.c_str), []).append(edit.type)
        return edits if found else {(-1, -1, '-NONE-'): ['noop']}


def edit_figures(sources, outputs, references, annotator):
    "Precision, recall and F0.5 in percent: of each sentence the reference that makes F0.5 largest, as ERRANT does."
    from errant.commands.compare_m2 import computeFScore, evaluate_edits
    how, total, types = Namespace(beta=.5, verbose=False), Counter(tp=0, fp=0, fn=0), {}
    for i, (source, output, of_one) in enumerate(zip(sources, outputs, references)):
        right = {k: annotator.edits(source, text) for k, text in enumerate(of_one)}
        counts, by_type = evaluate_edits({0: annotator.edits(source, output)}, right, total, i, source, how)
        for name, n in counts.items(): total[name] += n
        for name, n in by_type.items(): types[name] = [a + b for a, b in zip(types.get(name, (0, 0, 0)), n)]
    scores = computeFScore(total['tp'], total['fp'], total['fn'], .5)
    # without an edit there is no precision; ERRANT writes 1
    precision = 100 * scores[0] if total['tp'] + total['fp'] else None
    return dict(precision=precision, recall=100 * scores[1], f=100 * scores[2], **total), types


def people_figures(sources, references, annotator):
    "Means of four people's figures, each against the other three."
    found = [edit_figures(sources, [rs[k] for rs in references], [rs[:k] + rs[k + 1:] for rs in references],
                          annotator)[0] for k in range(len(references[0]))]
    return {name: float(np.mean([of[name] for of in found])) for name in found[0]}


def compare_edits(s, tagger=''):
    "generation.json, `errant`."
    start, (sources, references) = time.process_time(), jfleg_lines(s)
    annotator, rows, by_type = Annotator(tagger), [], []
    # blanks between words differ in a few sentences, and are no edits
    systems = {'source': sources, 'source, written and tokenised again': [tokenised(written(x)) for x in sources]}
    systems |= {name: [tokenised(text) for text in best(open_generator(f'generator:{name}', s), map(written, sources))]
                for name in GENERATORS if (s.models / name).is_dir()}
    for words in (WORDS, None):
        of = [i for i, text in enumerate(sources) if not words or len(text.split()) <= words]
        some = lambda texts, of=of: [texts[i] for i in of]
        facts = dict(sentences=f'at most {words} words' if words else 'all', n=len(of))
        for name, outputs in systems.items():
            figures, types = edit_figures(some(sources), some(outputs), some(references), annotator)
            score = gleu(some(sources), some(outputs), some(references))
            rows.append(facts | dict(system=name, gleu=score, **figures))
            if annotator.tagged and not words and name in GENERATORS:
                by_type += [dict(system=name, type=kind, tp=n[0], fp=n[1], fn=n[2]) for kind, n in types.items()]
            print(rows[-1], flush=True)
        rows.append(facts | dict(system='person', **people_figures(some(sources), some(references), annotator)))
        print(rows[-1], flush=True)
    facts = annotator.errant.nlp.meta if annotator.tagged else {}
    named = {name: facts[name] for name in ('name', 'version') if name in facts}
    save('errant' if annotator.tagged else 'errant_without_tagger', dict(rows=rows, types=by_type, tagger=named), start)


if __name__ == '__main__':
    step, *rest = sys.argv[1:] or ['']
    if step == 'gleu': compare_gleu(settings())
    elif step == 'errant': compare_edits(settings(), *rest[:1])
    else: raise SystemExit(__doc__)
