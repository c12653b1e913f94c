"""How fast sentences become vectors, beside the fastest encoders of the same kind.

    python tests/benchmarks/encoding.py [repetitions] [sentences] [keep]
        # 7, 40000; needs the extra `peers`; `keep` writes the figures to nbs/papers/speed.json

Embeddings of 300 dimensions for 50,000 words or trigrams, averaged; from Python strings to a float32 matrix. The peers
get the same words, the same matrix and a tokeniser that cuts these sentences as ours does, which is checked on their
vectors; for trigrams there is no peer, so TRIGRAM stands beside the words of the others. Texts: words drawn by Zipf's
law, 13.3 a sentence, and the project's sample, repeated. All in turn, in one process for one thread and in another for
two; seconds and CPU seconds, since other programs may be running. Ratios are of seconds within one repetition."""
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd

from kept import keep, needs

DIM, TYPES = 300, 50_000


def zipf(n, rng):
    "Sentences of 13.3 words in the mean, drawn by Zipf's law from made-up ones."
    words = sorted({''.join(rng.choice(list('etaoinshrdlucmfwypvbgk'), size))
                    for size in rng.poisson(5, 2 * TYPES) + 2})
    rng.shuffle(words)
    chance = 1 / (np.arange(TYPES) + 3)
    lengths = np.maximum(1, rng.gamma(4, 13.3 / 4, n).round().astype(int))
    flat = iter(np.array(words[:TYPES])[rng.choice(TYPES, lengths.sum(), p=chance / chance.sum())].tolist())
    return [' '.join(next(flat) for _ in range(k)) for k in lengths], words[:TYPES]


def own_sample(n):
    "References of the project's sample, again and again."
    from paranmt_lab.ground.settings import settings
    texts = pd.read_csv(settings().sample / 'bitext.cs-en.tsv', sep='\t', quoting=3).reference.tolist()
    return (texts * (n // len(texts) + 1))[:n]


def peers(words, matrix):
    "The same words and matrix in the libraries of others."
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*words, '[UNK]'])}, unk_token='[UNK]'))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=matrix)], device='cpu')
    model2vec = StaticModel(matrix, tokenizer, max_length=None)
    return {'sentence-transformers': lambda s: static.encode(s, batch_size=4096, show_progress_bar=False),
            'model2vec': lambda s: model2vec.encode(s, batch_size=4096, use_multiprocessing=False),
            'tokenizers alone': lambda s: tokenizer.encode_batch_fast(s, add_special_tokens=False)}


def ours(words, sentences, threads):
    "WORD, TRIGRAM and their tokenising alone."
    from paranmt_lab.encoders.sentence_encoder import build_encoder
    from paranmt_lab.tokens.lookup import rows_of
    from paranmt_lab.tokens.text import Vocabulary, char_ngrams
    trigrams = Vocabulary.build(map(char_ngrams, sentences), TYPES)
    word, trigram = (build_encoder(f.upper(), {f: v}, DIM)
                     for f, v in (('word', Vocabulary(words)), ('trigram', trigrams)))
    return word, {'WORD': lambda s: word.encode(s, threads=threads),
                  'TRIGRAM': lambda s: trigram.encode(s, threads=threads),
                  'WORD, rows alone': lambda s: rows_of('word', s, word.vocabularies['word'], threads),
                  'TRIGRAM, rows alone': lambda s: rows_of('trigram', s, trigrams, threads)}


def limited(threads, call):
    "A call with so many threads for torch; ours works on a batch in each, the peers leave threads to torch and Rust."
    import torch
    def limited_call(sentences):
        torch.set_num_threads(threads)
        return call(sentences)
    return limited_call


def clock(): return np.array([time.perf_counter(), time.process_time()])


def timed(calls, sentences, repetitions):
    "Seconds and CPU seconds of every call, in turn."
    found = {name: [] for name in calls}
    for call in calls.values(): call(sentences[:5000])  # kernels compiled, memory warm
    for r in range(repetitions):
        for name, call in list(calls.items())[::1 if r % 2 else -1]:
            start = clock()
            call(sentences)
            found[name].append(clock() - start)
    return {name: np.array(times) for name, times in found.items()}


def table(found, n):
    "Sentences a second, median with least and most, and how many times as fast as each peer."
    rows = {}
    for name, times in found.items():
        wall, cpu = n / times.T
        row = {'sentences/s': np.median(wall), 'least': wall.min(), 'most': wall.max(), 'a CPU second': np.median(cpu)}
        for peer in ('sentence-transformers', 'model2vec', 'tokenizers alone'):
            over = found[peer][:, 0] / times[:, 0]
            row[f'x {peer}'] = f'{np.median(over):.1f} ({over.min():.1f}-{over.max():.1f})'
        rows[name] = row
    return pd.DataFrame(rows).T.to_string(
        formatters=dict.fromkeys(['sentences/s', 'least', 'most', 'a CPU second'], '{:,.0f}'.format))


def measure(threads, repetitions, n):
    from paranmt_lab.jobs.provenance import provenance
    from paranmt_lab.tokens.text import tokenize
    facts = provenance()
    print(f"{facts['date']}, commit {facts['commit']}, {facts['device']}, {os.cpu_count()} CPUs; "
          f"threads: {threads}; {n:,} sentences, {repetitions} repetitions")
    made, words = zipf(n, np.random.default_rng(0))
    for name, sentences in ('Zipf', made), ('sample', own_sample(n)):
        known = (words if name == 'Zipf' else [*(seen := dict.fromkeys(t for s in sentences for t in tokenize(s))),
                                               *[w for w in words if w not in seen]][:TYPES])
        word, calls = ours(known, sentences, threads)
        others = peers(known, word.layer.weight_rd.detach().numpy())
        check = [s for s in sentences[:1000] if "'" not in s and '’' not in s]
        for peer in ('sentence-transformers', 'model2vec'):
            np.testing.assert_allclose(others[peer](check), word.encode(check), atol=1e-5)
        calls = ({name: limited(1, call) for name, call in calls.items()}
                 | {name: limited(threads, call) for name, call in others.items()})
        print(f'\n{name}: {np.mean([len(tokenize(s)) for s in sentences[:10_000]]):.1f} tokens a sentence')
        found = timed(calls, sentences, repetitions)
        keep(f'encoding {name} threads={threads}', text=name, threads=threads,
             sentences=n, seconds={who: times[:, 0].tolist() for who, times in found.items()})
        print(table(found, n))


def main(repetitions=7, n=40_000):
    for threads in (1, 2):
        limits = (dict.fromkeys(('OMP_NUM_THREADS', 'RAYON_NUM_THREADS', 'NUMBA_NUM_THREADS'), str(threads))
                  | {'TOKENIZERS_PARALLELISM': str(threads > 1).lower()})
        code = (f'import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); '
                f'import encoding; encoding.measure({threads}, {int(repetitions)}, {int(n)})')
        subprocess.run([sys.executable, '-W', 'ignore', '-c', code], env=os.environ | limits, check=True)
        print()


if __name__ == '__main__':
    needs('sentence_transformers', 'model2vec', 'tokenizers')
    main(*(a for a in sys.argv[1:] if a != 'keep'))
