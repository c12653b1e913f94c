"""Estimators of 3-gram models: perplexity of the same references under each, and time.

    PARANMT_RESOURCES=... LMPLZ=.../lmplz IRSTLM=.../lib/irstlm python tests/benchmarks/language_models.py [keep]

40,000 references of the Czech bitext train, 5,000 others test; tokens are those of `text.tokenize`. Ours is compared
with KenLM's lmplz (to be compiled from the sources of kenlm 0.3.0, with Boost), Debian's irstlm (improved shift-beta,
its name for modified Kneser-Ney) and the packages kaldingram and knlm; what is absent is "not available". KenLM reads
all models but knlm's, which has a format and an interface of its own. Columns: perplexity of all tokens with the
sentences' ends, that of the sentences without an unknown word, CPU seconds, n-grams, those that ours has too, and the
greatest difference of a logarithm (base 10) from ours over these. `keep` writes nbs/papers/language.json.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from kept import ROOT, keep, needs
from paranmt_lab.filters.kneser_ney import estimate, read_arpa, write_arpa
from paranmt_lab.ground.settings import settings
from paranmt_lab.tokens.text import tokenize

TRAIN, TEST, ORDER = 40_000, 5_000, 3


def references():
    "Tokens of the references to train and to test on: other segments, and no text of both."
    table = pq.read_table(settings().resources / 'train/bitext/cs-en.parquet', columns=['reference']).to_pandas()
    cut = table.reference.sample(frac=1, random_state=0).map(lambda text: tuple(tokenize(text)))
    cut = cut[cut.map(bool)]
    train, known = cut[:TRAIN].tolist(), set(cut[:TRAIN])
    test = [t for t in cut[TRAIN:].drop_duplicates() if t not in known][:TEST]
    return train, test


def ours(texts, arpa, folder): write_arpa(estimate(texts, ORDER), arpa)


def run(command, **more): subprocess.run(list(map(str, command)), check=True, capture_output=True, **more)


def lmplz(texts, arpa, folder):
    program = os.environ['LMPLZ']
    with open(folder / 'train.txt') as text, open(arpa, 'w') as out:
        subprocess.run([program, '-o', str(ORDER), '-T', str(folder), '-S', '500M', '--skip_symbols'], stdin=text,
                       stdout=out, stderr=subprocess.DEVNULL, check=True)


def irstlm(texts, arpa, folder):
    program, padded = Path(os.environ['IRSTLM']) / 'bin/tlm', folder / 'padded.txt'
    padded.write_text(''.join(f"<s> {' '.join(t)} </s>\n" for t in texts), encoding='utf-8')
    run([program, f'-tr={padded}', f'-n={ORDER}', '-lm=msb', '-ps=no', '-pts=no', f'-oarpa={arpa}'], cwd=folder)


def kaldingram(texts, arpa, folder):
    run([sys.executable, '-c', 'from kaldingram.cli import main; main()', 'train', '--ngram-order', ORDER, '--text',
         folder / 'train.txt', '--lm', arpa])


def knlm(texts, arpa, folder):
    from knlm import KneserNey
    model = KneserNey(ORDER, 4)
    for t in texts: model.train(t)
    model.optimize()
    return model


ESTIMATORS = {'ours': ours, 'KenLM lmplz': lmplz, 'irstlm msb': irstlm, 'kaldingram': kaldingram, 'knlm': knlm}


def scorer(made, arpa):
    "From tokens to the logarithm (base 10) of their probability."
    if made is not None: return lambda tokens: made.evaluateSent(tokens) / np.log(10)  # the sentence's end with it
    import kenlm
    options = kenlm.Config()
    options.show_progress, options.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    model = kenlm.Model(str(arpa), options)
    return lambda tokens: model.score(' '.join(tokens))


def measured(name, train, test, folder, reference):
    "A row of the table."
    arpa, known = folder / f'{name}.arpa', {word for t in train for word in t}
    start = os.times()
    try: made = ESTIMATORS[name](train, arpa, folder)
    except (KeyError, ModuleNotFoundError, subprocess.CalledProcessError) as e:
        print(name, 'not available:', repr(e), getattr(e, 'stderr', '') or '')
        return dict(estimator=name)
    seconds = sum(os.times()[:4]) - sum(start[:4])  # of this process and those that it ran
    score = scorer(made, arpa)
    logs = np.array([score(t) for t in test])
    ends, whole = np.array([len(t) + 1 for t in test]), np.array([set(t) <= known for t in test])
    row = dict(estimator=name, perplexity=10 ** (-logs.sum() / ends.sum()),
               without_unknown=10 ** (-logs[whole].sum() / ends[whole].sum()), seconds=seconds)
    if made is not None: return row
    table = read_arpa(arpa)
    reference = reference or table
    shared = [gram for gram in table if gram in reference and gram not in (('<s>',), ('<unk>',))]
    gap = max(abs(table[g][0] - reference[g][0]) for g in shared)
    return row | dict(grams=len(table), shared=len(shared), differs=gap, table=table)


def main():
    train, test = references()
    tokens, known = sum(map(len, test)), {word for t in train for word in t}
    unknown = sum(word not in known for t in test for word in t) / tokens
    print(f'{len(train):,} references, {sum(map(len, train)):,} tokens, train; {len(test):,}, {tokens:,} tokens, test; '
          f'{unknown:.2%} of these unknown')
    rows, reference = [], None
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / 'train.txt').write_text(''.join(' '.join(t) + '\n' for t in train), encoding='utf-8')
        for name in ESTIMATORS:
            print(name, flush=True)
            row = measured(name, train, test, folder, reference)
            table = row.pop('table', None)
            reference = reference or table
            rows.append({k: x.item() if hasattr(x, 'item') else x for k, x in row.items()})
    print(pd.DataFrame(rows).round(5).to_string(index=False))
    keep('estimators', ROOT / 'nbs/papers/language.json', rows=rows, train=len(train), test=len(test), tokens=tokens,
         unknown=unknown)


if __name__ == '__main__':
    needs('kenlm', resource='train/bitext/cs-en.parquet')
    main()
