"""Back-translation's rate on a GPU, and the hours for the 51.4 million sentences of ParaNMT. Needs torch and
transformers; measures ctranslate2 too where it is installed.

    python tests/benchmarks/translation_gpu.py            # on a GPU
    python tests/benchmarks/translation_gpu.py --tiny
        # small models for a few seconds on the CPU, to see that it runs

Transformer-base (as OPUS-MT: 6 + 6 layers of 512) and the larger OPUS-MT (transformer-align big: 6 + 6 of 1024) with
random weights; speed does not depend on what they are. Lengths are forced, since a random model never ends: sources of
24 pieces with the spread of news (gamma), 26 pieces out for each. Beam 1, 4, 12 over batch sizes, float16; the time of
a batch is the median of `REPEAT` between synchronisations, after one that warms up. Prints a table, and for each model,
beam and engine the best batch with the hours for 51.4 million sentences, beside the paper's 10,000."""
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

if not importlib.util.find_spec('transformers'):
    sys.exit('translation_gpu.py needs transformers: pip install transformers')
import transformers
from transformers import GenerationConfig, MarianConfig, MarianMTModel

PAIRS, PAPER_HOURS, REPEAT, PIECES_IN, PIECES_OUT = 51.4e6, 10_000, 5, 24, 26
MODELS = {'base': dict(d_model=512, heads=8, inner=2048, layers=6, vocabulary=32_000),
          'big': dict(d_model=1024, heads=16, inner=4096, layers=6, vocabulary=32_000)}
TINY = {'tiny': dict(d_model=32, heads=2, inner=64, layers=1, vocabulary=500)}
BEAMS, BATCHES = (1, 4, 12), (64, 256, 1024, 2048)


def model_of(shape):
    "A Marian model with random weights, the pad last."
    torch.manual_seed(0)
    n = shape['vocabulary']
    return MarianMTModel(
        MarianConfig(vocab_size=n + 1, d_model=shape['d_model'], encoder_layers=shape['layers'],
                     decoder_layers=shape['layers'], encoder_ffn_dim=shape['inner'], decoder_ffn_dim=shape['inner'],
                     encoder_attention_heads=shape['heads'], decoder_attention_heads=shape['heads'],
                     activation_function='swish', scale_embedding=True, max_position_embeddings=512,
                     pad_token_id=n, decoder_start_token_id=n, eos_token_id=0, forced_eos_token_id=None)).eval()


def lengths(n):
    return np.sort(np.clip(np.random.default_rng(0).gamma(4, PIECES_IN / 4, n).astype(int) + 1, 2, 120))[::-1]


def with_transformers(model, device, batch, beam):
    "A function that translates one batch, all of its rows to the forced length."
    rows, n = lengths(batch), model.config.vocab_size - 1
    ids = torch.full((batch, int(rows[0])), n)
    for i, k in enumerate(rows): ids[i, :k] = torch.randint(1, n, (int(k),))
    ids, mask = ids.to(device), (ids != n).to(device)
    how = GenerationConfig(num_beams=beam, do_sample=False, min_new_tokens=PIECES_OUT,
                           max_new_tokens=PIECES_OUT, eos_token_id=0, pad_token_id=n, decoder_start_token_id=n,
                           **(dict(early_stopping=True) if beam > 1 else {}))
    @torch.inference_mode()
    def run(): return model.generate(input_ids=ids, attention_mask=mask, generation_config=how)
    return run


def converted(model, folder):
    "The same in CTranslate2, by its converter; random pieces for a vocabulary."
    import ctranslate2
    from ctranslate2.converters import transformers as loaders
    words = [f'w{i}' for i in range(model.config.vocab_size - 1)]
    words[0], words[1] = '</s>', '<unk>'
    tokenizer = type('Words', (), dict(eos_token='</s>', unk_token='<unk>', bos_token=None, get_vocab=lambda self: {
        w: i for i, w in enumerate([*words, '<pad>'])}, additional_special_tokens=[]))()
    loader = loaders.MarianMTLoader()
    spec = loader.get_model_spec(model)
    loader.set_config(spec.config, model, tokenizer)
    vocabulary = loader.get_vocabulary(model, tokenizer)
    spec.register_source_vocabulary(vocabulary), spec.register_target_vocabulary(vocabulary)
    spec.validate()
    spec.optimize(quantization='float16' if torch.cuda.is_available() else 'int8')
    Path(folder).mkdir()
    spec.save(str(folder))
    return ctranslate2.Translator(str(folder), device='cuda' if torch.cuda.is_available() else 'cpu')


def with_ctranslate2(translator, batch, beam, vocabulary):
    rows, draw = lengths(batch), np.random.default_rng(1)
    source = [[f'w{i}' for i in draw.integers(2, vocabulary, k - 1)] + ['</s>'] for k in rows]
    return lambda: translator.translate_batch(source, beam_size=beam, min_decoding_length=PIECES_OUT,
                                              max_decoding_length=PIECES_OUT, return_scores=True, disable_unk=True)


def seconds(run, repeat):
    "Seconds of each run, after one that warms up; none where memory does not suffice."
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    times = []
    try:
        for k in range(repeat + 1):
            wait(); start = time.perf_counter(); run(); wait()
            if k: times.append(time.perf_counter() - start)
    except (RuntimeError, MemoryError) as e:
        if 'memory' not in str(e).lower(): raise
        if torch.cuda.is_available(): torch.cuda.empty_cache()
    return times


def commit():
    try:
        return subprocess.run(['git', 'rev-parse', '--short', 'HEAD'],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError): return 'no commit'


def main(tiny):
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    fast = importlib.util.find_spec('ctranslate2') is not None
    where = torch.cuda.get_device_name() if device == 'cuda' else 'CPU'
    print(f"{date.today()}, {where}, torch {torch.__version__}, transformers {transformers.__version__}, "
          f"ctranslate2 {__import__('ctranslate2').__version__ if fast else 'not installed'}, commit {commit()}")
    print(f'sources of {PIECES_IN} pieces on average, {PIECES_OUT} pieces out, forced; '
          f'{"float16" if device == "cuda" else "float32 and int8"}; median of {1 if tiny else REPEAT} (least to most)')
    print(f"{'model':6} {'engine':13} {'beam':>4} {'batch':>6} {'sentences/s':>13} "
          f"{'least':>10} {'most':>10} {'peak GiB':>9}", flush=True)
    best = {}
    for name, shape in (TINY if tiny else MODELS).items():
        model, folder = model_of(shape), tempfile.TemporaryDirectory()
        engines = {'ctranslate2': converted(model, Path(folder.name) / 'ct2')} if fast else {}
        model = model.to(device, torch.float16 if device == 'cuda' else torch.float32)
        for engine in (*engines, 'transformers'):
            for beam in BEAMS:
                for batch in (8,) if tiny else BATCHES:
                    if device == 'cuda': torch.cuda.reset_peak_memory_stats()
                    run = (with_transformers(model, device, batch, beam) if engine == 'transformers'
                           else with_ctranslate2(engines[engine], batch, beam, shape['vocabulary']))
                    times = seconds(run, 1 if tiny else REPEAT)
                    if not times: print(f'{name:6} {engine:13} {beam:4} {batch:6}   out of memory', flush=True); break
                    rate = batch / statistics.median(times)
                    peak = (f'{torch.cuda.max_memory_allocated() / 2**30:9.1f}'
                            if device == 'cuda' and engine == 'transformers' else f"{'':9}")
                    print(f'{name:6} {engine:13} {beam:4} {batch:6} {rate:13,.1f} '
                          f'{batch / max(times):10,.1f} {batch / min(times):10,.1f} {peak}', flush=True)
                    best[name, engine, beam] = max(best.get((name, engine, beam), (0, 0)), (rate, batch))
        folder.cleanup()
    print(f"\n{'model':6} {'engine':13} {'beam':>4} {'best batch':>10} "
          f"{'sentences/s':>13} {'hours for 51.4 million':>23} {'times the paper':>16}")
    for (name, engine, beam), (rate, batch) in best.items():
        print(f'{name:6} {engine:13} {beam:4} {batch:10} {rate:13,.1f} '
              f'{PAIRS / rate / 3600:23,.1f} {PAPER_HOURS / (PAIRS / rate / 3600):16,.0f}')


if __name__ == '__main__':
    if not torch.cuda.is_available() and '--tiny' not in sys.argv:
        sys.exit('no GPU here: nothing was measured (--tiny runs small models on the CPU, to see that it works)')
    main('--tiny' in sys.argv)
