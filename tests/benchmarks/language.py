"""Language identifiers on short sentences of our bitext: accuracy, pace and memory.

    PARANMT_RESOURCES=... python tests/benchmarks/language.py [sentences] [keep]   # 2,000 unless told

Eight languages with equally many sentences of 3 to 10 words, drawn from everyday talk, news, captions and stories, none
of which equals its own translation. Each identifier runs in a process of its own, for its memory; `lingua` is no
dependency of the package: pip install lingua-language-detector. `keep` writes nbs/papers/language.json.

The columns: `accuracy` of the most probable language among all that the identifier knows; `among_8` among ours alone;
`english` and `foreign` the shares of English and of other sentences whose probability of English is 0.5 or more;
`kept` the share of English ones above a bound that 1 % of the others pass;
`own` the share of foreign ones whose probability of their own language is that high, and `left` that of English ones
taken for a source sentence: they were left untranslated.
"""
import json
import subprocess
import sys
import time
from importlib.metadata import version

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from kept import ROOT, keep, needs, peak
from paranmt_lab.ground.settings import settings

LANGUAGES = 'cs', 'de', 'en', 'es', 'fi', 'fr', 'ru', 'sv'
DOMAINS = 'tatoeba', 'news', 'ntrex', 'wmt', 'multi30k', 'wesnoth'


def sentences(n):
    "n // 8 short sentences of each language."
    rng, found, folder = np.random.default_rng(0), {}, settings().resources / 'train/bitext'
    english = []
    for code in LANGUAGES:
        if code == 'en': continue
        table = pq.read_table(folder / f'{code}-en.parquet').to_pandas()
        table = table[table.corpus.str.startswith(DOMAINS) & (table.source != table.reference)]
        short = lambda side: side[side.str.split().str.len().between(3, 10)].drop_duplicates()
        found[code] = short(table.source).sample(n // 8, random_state=rng).tolist()
        english.append(short(table.reference))
    found['en'] = pd.concat(english).drop_duplicates().sample(n // 8, random_state=rng).tolist()
    return [(text, code) for code in LANGUAGES for text in found[code]]


def py3langid(codes):
    from py3langid.langid import MODEL_FILE, LanguageIdentifier
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if codes: identifier.set_languages(codes)
    return lambda text: dict(identifier.rank(text))


def lingua(codes, low=False):
    from lingua import IsoCode639_1, LanguageDetectorBuilder
    builder = LanguageDetectorBuilder.from_all_languages()
    if codes: builder = LanguageDetectorBuilder.from_iso_codes_639_1(*(getattr(IsoCode639_1, c.upper()) for c in codes))
    detector = (builder.with_low_accuracy_mode() if low else builder).build()
    return lambda text: {value.language.iso_code_639_1.name.lower(): value.value
                         for value in detector.compute_language_confidence_values(text)}


IDENTIFIERS = {'py3langid': py3langid, 'lingua': lingua, 'lingua, low accuracy': lambda codes: lingua(codes, True)}


def measured(name, pairs):
    "A row of the table."
    texts, codes = zip(*pairs)
    before = peak()
    start = time.process_time()
    probabilities = IDENTIFIERS[name](())
    probabilities('A sentence to load what is loaded at the first one.')
    opened = time.process_time()
    found = [probabilities(text) for text in texts]
    seconds = time.process_time() - opened
    memory = peak() - before
    among = [IDENTIFIERS[name](LANGUAGES)] * len(texts)
    best = [max(p, key=p.get) for p in found]
    best_of_8 = [max(p, key=p.get) for p in (f(text) for f, text in zip(among, texts))]
    right, is_english = np.array(codes), np.array(codes) == 'en'
    probable = np.array([p.get('en', 0) for p in found])
    kept = probable[is_english] > np.quantile(probable[~is_english], .99)
    english = probable >= .5
    own = np.array([p.get(code, 0) for p, code in zip(found, codes)]) >= .5
    left = np.mean([max(p.get(code, 0) for code in LANGUAGES if code != 'en') >= .5
                    for p, e in zip(found, is_english) if e])
    return dict(identifier=f"{name} {version(name.partition(',')[0].replace('lingua', 'lingua-language-detector'))}",
                sentences=len(texts), accuracy=float(np.mean(np.array(best) == right)),
                among_8=float(np.mean(np.array(best_of_8) == right)), english=float(english[is_english].mean()),
                foreign=float(english[~is_english].mean()), kept=float(kept.mean()),
                own=float(own[~is_english].mean()), left=float(left),
                open_seconds=opened - start, per_cpu_second=len(texts) / seconds, megabytes=memory)


def main(n):
    rows, drawn = [], json.dumps(sentences(n))
    for name in IDENTIFIERS:
        done = subprocess.run([sys.executable, __file__, name], input=drawn, capture_output=True, text=True)
        if done.returncode:
            print(name, 'not available:', done.stderr.splitlines()[-1])
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    keep('short sentences', ROOT / 'nbs/papers/language.json', rows=rows)


if __name__ == '__main__':
    n = int(next((word for word in sys.argv[1:] if word.isdecimal()), 2_000))
    [*one] = [word for word in sys.argv[1:] if word in IDENTIFIERS]
    if one: print(json.dumps(measured(one[0], json.load(sys.stdin))))
    else:
        needs('py3langid', 'lingua', resource='train/bitext')
        main(n)
