"""Whether two engines say the same, and why not where they do not.

    python tests/benchmarks/engines.py [sentences] [beam] [one engine] [other engine] [keep]
        # 500, 4, ct2:marian-cs-en-tiny:float32, hf:marian-cs-en-tiny

Real Czech sentences (newstest and Tatoeba, else the sample). For each difference the other engine's hypothesis is
judged by the first engine's own model, by forced decoding: a *tie* has the same score within 0.001, so that rounding
decides; a *search difference* has another score, so that one of the two searches missed the better one. `keep` writes
the figures to nbs/papers/translation.json."""
import sys

import pandas as pd

from kept import TRANSLATION, keep
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.ground.models import open_model
from translation import sentences


def compare(one, other, sources, beam):
    "A row a sentence: both best hypotheses, and the reason where they differ."
    found = [[hs[0] for hs in engine.translate(sources, Decoding(beam))] for engine in (one, other)]
    rows = []
    for source, a, b in zip(sources, *found):
        if a.text == b.text: reason = ''
        elif abs(a.score - b.score) < 1e-3: reason = 'tie'
        else: reason = 'the first found a better one' if a.score > b.score else 'the other found a better one'
        rows.append((source, a.text, b.text, a.score, b.score, reason))
    return pd.DataFrame(rows, columns=['source', 'one', 'other', 'score', 'other_score', 'reason'])


def main(n=500, beam=4, one='ct2:marian-cs-en-tiny:float32', other='hf:marian-cs-en-tiny'):
    rows, where = sentences(-(-int(n) // 2))
    table = compare(open_model(one), open_model(other), rows.source.tolist()[:int(n)], int(beam))
    same, equal = table.reason == '', (table.score - table.other_score).abs()
    print(f'{one} against {other}: {len(table)} sentences of {where}, beam {beam}')
    print(f'same hypothesis: {same.sum()} of {len(table)} ({same.mean():.1%}); '
          f'their scores differ by at most {equal[same].max():.1e}')
    print(table.reason[~same].value_counts().to_string() if (~same).any() else 'no difference')
    if (~same).any():
        print(f'scores of those that differ: {equal[~same].describe()[["min", "50%", "max"]].round(4).to_dict()}')
    keep(f'engines {one} {other} beam {beam}', TRANSLATION, one=one, other=other, beam=int(beam), sentences=len(table),
         same=int(same.sum()), apart=float(equal[same].max()), reasons=table.reason[~same].value_counts().to_dict())


if __name__ == '__main__': main(*(a for a in sys.argv[1:] if a != 'keep'))
