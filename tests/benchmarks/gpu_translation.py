"""Translation on a card and on the processor, for gpu.py.

`large` measures a model of the size of OPUS-MT (6 + 6 layers of 512). Its weights are random, since speed does not
depend on them; as a random model never ends, each translation has 26 pieces, for sources of 24 on average."""
import os
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch

from kept import EXTRAS
from paranmt_lab.ground.models import open_model

SHIPPED = 'ct2:marian-cs-en-tiny'
PAPER, SOURCE, TARGET = 51.4e6, 24, 26  # sentences of ParaNMT; pieces


class NotMeasured(Exception): "Why there is no figure."


def require(*modules):
    "Say what is not installed, and how to get it."
    lacking = [name for name in modules if not find_spec(name)]
    if lacking: raise NotMeasured(f"install {lacking[0]}: pip install -e '.[{EXTRAS[lacking[0]]}]'")


def translated(device, seconds, s, sources, beam, texts):
    "Translate as far as the time allows, and at least a fifth; `texts` gets the texts."
    require('ctranslate2')
    from paranmt_lab.engines.protocol import Decoding
    engine = open_model(SHIPPED, replace(s, device=device), threads=os.cpu_count())
    decoding, some = Decoding(beam), max(1, len(sources) // 5)
    engine.translate(sources[:8], decoding)
    start = time.perf_counter()
    for k in range(0, len(sources), some):
        texts += [found[0].text for found in engine.translate(sources[k:k + some], decoding)]
        if time.perf_counter() - start > seconds: break
    return dict(sentences_per_second=len(texts) / (time.perf_counter() - start), sentences=len(texts))


def agreement(device, seconds, ours, theirs):
    "Share of the sentences with the same text."
    both = list(zip(ours, theirs))
    if not both: raise NotMeasured('there are no translations of both devices')
    return dict(same=sum(a == b for a, b in both) / len(both), sentences=len(both))


def random_model(folder, width, layers):
    "Write a Marian model of random weights and random pieces as CTranslate2 reads it."
    from ctranslate2.converters import transformers as loaders
    from transformers import MarianConfig, MarianMTModel
    torch.manual_seed(0)
    n, heads = pieces_of(width), max(1, width // 64)
    model = MarianMTModel(MarianConfig(
        vocab_size=n + 1, d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, encoder_attention_heads=heads, decoder_attention_heads=heads,
        activation_function='swish', scale_embedding=True, max_position_embeddings=512, pad_token_id=n,
        decoder_start_token_id=n, eos_token_id=0, forced_eos_token_id=None)).eval()
    words = {w: i for i, w in enumerate(['</s>', '<unk>', *(f'w{i}' for i in range(2, n)), '<pad>'])}
    tokenizer = type('Words', (), dict(eos_token='</s>', unk_token='<unk>', bos_token=None,
                                       additional_special_tokens=[], get_vocab=lambda self: words))()
    loader = loaders.MarianMTLoader()
    spec = loader.get_model_spec(model)
    loader.set_config(spec.config, model, tokenizer)
    vocabulary = loader.get_vocabulary(model, tokenizer)
    spec.register_source_vocabulary(vocabulary), spec.register_target_vocabulary(vocabulary)
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))


def pieces_of(width): return 64 * width - 1  # 32,767 of the large model


def large(device, seconds, beam, folder, size):
    "Sentences a second and hours for ParaNMT, in float16 on a card and in int8 elsewhere, a sixteenth of the batch."
    require('ctranslate2', 'transformers')
    import ctranslate2
    (width, layers, batch), on_cpu = size, device == 'cpu'
    if not folder.exists(): random_model(folder, width, layers)
    model = ctranslate2.Translator(str(folder), device=device, intra_threads=os.cpu_count(),
                                   compute_type='int8' if on_cpu else 'float16')
    draw, batch = np.random.default_rng(0), max(1, batch // 16) if on_cpu else batch
    lengths = np.sort(draw.gamma(4, SOURCE / 4, batch).astype(int).clip(1, 119))[::-1]
    source = [[f'w{i}' for i in draw.integers(2, pieces_of(width), k)] + ['</s>'] for k in lengths]
    run = partial(model.translate_batch, source, beam_size=beam, min_decoding_length=TARGET,
                  max_decoding_length=TARGET, disable_unk=True)
    run()
    start, n = time.perf_counter(), 0
    while not n or time.perf_counter() - start < seconds: n += len(run())
    rate = n / (time.perf_counter() - start)
    return dict(sentences_per_second=rate, hours=PAPER / rate / 3600, batch=batch)
