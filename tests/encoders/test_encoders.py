"""What the notebooks on encoders cannot show: arbitrary text, hostile folders, other processes, interrupted writes."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings as hypothesis_settings, strategies as st
from safetensors.torch import load_file, save_file

from paranmt_lab.encoders.layers import Add, Average, Concat, tensors
from paranmt_lab.encoders.sentence_encoder import DTYPES, EncoderError, SentenceEncoder, build_encoder
from paranmt_lab.encoders.zoo import layer_of, make_layer
from paranmt_lab.ground.settings import checksum
from paranmt_lab.tokens.text import FEATURES, Vocabulary

MODELS = 'WORD', 'TRIGRAM', 'WORD+TRIGRAM', 'WORD,TRIGRAM', 'WORD,WORD+TRIGRAM'
TEXTS = ['The tram is late again.', "It isn't early, is it?", 'Ještě že nejedeme autobusem.', 'Who ate my sandwich?']
VOCABULARIES = {feature: Vocabulary.build(map(cut, TEXTS)) for feature, cut in FEATURES.items()}


@pytest.fixture
def saved(tmp_path):
    build_encoder('WORD,TRIGRAM', VOCABULARIES, 8).save(tmp_path / 'encoder')
    return tmp_path / 'encoder'


@pytest.mark.parametrize('model', MODELS)
@hypothesis_settings(max_examples=40, deadline=None)
@given(sentences=st.lists(st.text(max_size=50), max_size=12), size=st.integers(1, 5))
def test_any_text_has_a_finite_vector_of_its_own(model, sentences, size):
    encoder = build_encoder(model, VOCABULARIES, 8)
    vectors = encoder.encode(sentences, batch_size=size)
    assert vectors.shape == (len(sentences), encoder.dim) and vectors.dtype == np.float32 and np.isfinite(vectors).all()
    for sentence, vector in zip(sentences, vectors):
        np.testing.assert_allclose(encoder.encode([sentence])[0], vector, atol=1e-6)


@pytest.mark.parametrize('model', MODELS)
def test_rows_are_exactly_those_that_get_a_gradient(model):
    encoder = build_encoder(model, VOCABULARIES, 8)
    batch = tensors(encoder.features(TEXTS[:2]))
    (encoder.layer(batch) @ torch.arange(1., encoder.dim + 1)).sum().backward()
    parameters, rows = dict(encoder.layer.named_parameters()), encoder.layer.rows(batch)
    assert rows.keys() == parameters.keys()
    for name, parameter in parameters.items():
        assert sorted(set(rows[name].tolist())) == parameter.grad.abs().sum(1).nonzero().flatten().tolist(), name


def test_a_seed_makes_the_same_encoder_and_leaves_torch_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, second = (build_encoder('WORD,TRIGRAM', VOCABULARIES, 8, seed=1).encode(TEXTS) for _ in range(2))
    assert torch.equal(torch.rand(2), expected)
    assert (first == second).all()
    assert (first != build_encoder('WORD,TRIGRAM', VOCABULARIES, 8, seed=2).encode(TEXTS)).any()


def test_layers_refuse_what_cannot_be():
    for make in (Add, Concat):
        with pytest.raises(ValueError, match='at least one layer'): make()
    with pytest.raises(ValueError, match='at least 1'): Average('word', 0, 3)
    with pytest.raises(EncoderError, match='none of the word vectors'):
        build_encoder('WORD', VOCABULARIES, 2, vectors=(['zebra'], np.ones((1, 2), np.float32)))


def test_another_process_gives_the_same_bits_in_bounded_memory(saved):
    "Five batches of four million characters need no more memory than one; all texts at once would need five times it."
    program = """
import resource, sys
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
encoder = SentenceEncoder.load(sys.argv[1])
print(encoder.encode(sys.argv[2:]).tobytes().hex())
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
encoder.encode(['late ' * 2000] * 400)
before = peak()
encoder.encode(['late ' * 2000] * 2000)
print(peak() - before)
"""
    bits, grown = subprocess.run([sys.executable, '-c', program, saved, *TEXTS],
                                 capture_output=True, check=True, text=True).stdout.split()
    assert bits == SentenceEncoder.load(saved).encode(TEXTS).tobytes().hex()
    assert int(grown) < 80, f'{grown} MB'


@pytest.mark.parametrize('dtype', DTYPES)
def test_saving_again_changes_nothing(tmp_path, dtype):
    build_encoder('WORD+TRIGRAM', VOCABULARIES, 8).save(tmp_path / 'a', dtype)
    once = SentenceEncoder.load(tmp_path / 'a')
    once.save(tmp_path / 'b', dtype)
    assert (SentenceEncoder.load(tmp_path / 'b').encode(TEXTS) == once.encode(TEXTS)).all()
    if dtype != 'int8': assert checksum(tmp_path / 'a/encoder.json') == checksum(tmp_path / 'b/encoder.json')


def test_an_interrupted_save_leaves_the_old_encoder(saved, monkeypatch):
    (saved / 'README.md').write_text('a card')
    before = {f.name: f.read_bytes() for f in saved.iterdir()}
    monkeypatch.setattr(Vocabulary, 'save', lambda *_: (_ for _ in ()).throw(OSError('disk full')))
    with pytest.raises(OSError, match='disk full'): build_encoder('WORD', VOCABULARIES, 8).save(saved)
    assert {f.name: f.read_bytes() for f in saved.iterdir()} == before
    assert SentenceEncoder.load(saved).model == 'WORD,TRIGRAM'


def test_saving_over_another_encoder(saved):
    (saved / 'README.md').write_text('a card')
    build_encoder('WORD', VOCABULARIES, 4).save(saved)
    assert SentenceEncoder.load(saved).model == 'WORD'
    assert (sorted(f.name for f in saved.iterdir())
            == ['README.md', 'encoder.json', 'vocabulary-word.parquet', 'weights.safetensors'])


def edit(folder, **changes):
    config = json.loads((folder / 'encoder.json').read_text())
    config['files'] = {name: checksum(folder / name) for name in config['files']}
    (folder / 'encoder.json').write_text(json.dumps(config | changes))


def retensor(change):
    def damage(folder):
        stored = load_file(folder / 'weights.safetensors')
        save_file(change(stored), folder / 'weights.safetensors')
        edit(folder)
    return damage


def nested(depth):
    layer = dict(type='average', feature='word', rows=3, dim=2)
    for _ in range(depth): layer = dict(type='add', parts=[layer])
    return layer


def pickled(folder):
    torch.save({'weight_rd': torch.ones(3)}, folder / 'weights.safetensors')
    edit(folder)


def symlinked(folder):
    os.rename(folder / 'weights.safetensors', folder.parent / 'elsewhere')
    (folder / 'weights.safetensors').symlink_to(folder.parent / 'elsewhere')


NAME = 'parts.0.weight_rd'
HOSTILE = {
    'empty folder': (lambda f: [p.unlink() for p in f.iterdir()], 'no encoder.json'),
    'half a json': (lambda f: (f / 'encoder.json').write_text('{"format":'), 'encoder.json'),
    'json of a list': (lambda f: (f / 'encoder.json').write_text('[]'), 'expected "format"'),
    'json without end': (lambda f: (f / 'encoder.json').write_text('[' * 200_000), 'encoder.json'),
    'deep layer': (lambda f: edit(f, layer=nested(400)), 'encoder.json|expected the files'),
    'no layer': (lambda f: edit(f, layer=None), 'not the description of a layer'),
    'a million million rows': (lambda f: edit(f, layer=dict(type='average', feature='word', rows=10**12, dim=300)),
                               'expected the files'),
    'rows beyond numbers': (lambda f: edit(f, layer=dict(type='average', feature='word', rows=10**40, dim=300)),
                            'encoder.json'),
    'rows in words': (lambda f: edit(f, layer=dict(type='average', feature='word', rows='three', dim=300)),
                      'not the description'),
    'unknown feature': (lambda f: edit(f, layer=dict(type='average', feature='../../x', rows=3, dim=3)),
                        'unknown features'),
    'feature that is a list': (lambda f: edit(f, layer=dict(type='average', feature=['word'], rows=3, dim=3)),
                               'encoder.json'),
    'no checksums': (lambda f: edit(f, files=None), 'expected the files'),
    'pickle': (pickled, 'not a safetensors file'),
    'link out of the folder': (symlinked, 'lies outside'),
    'tensor missing': (retensor(lambda t: {k: v for k, v in t.items() if k != NAME}), 'expected'),
    'tensor too many': (retensor(lambda t: t | {'x': torch.ones(1)}), 'expected'),
    'tensor of another shape': (retensor(lambda t: t | {NAME: t[NAME][:-1].clone()}), 'expected'),
    'int8 without scale': (retensor(lambda t: t | {NAME: t[NAME].to(torch.int8)}), 'expected'),
    'not a number': (retensor(lambda t: t | {NAME: t[NAME] * float('nan')}), 'not finite'),
    'fewer words': (lambda f: (Vocabulary(['a']).save(f / 'vocabulary-word.parquet'), edit(f)), 'its vocabulary 2'),
    'vocabulary of another kind': (lambda f: ((f / 'vocabulary-word.parquet').write_text('the'), edit(f)),
                                   'not a Parquet file')}


@pytest.mark.parametrize('name', HOSTILE)
def test_folders_that_are_no_encoder_are_refused(saved, name):
    damage, message = HOSTILE[name]
    damage(saved)
    with pytest.raises(ValueError, match=message): SentenceEncoder.load(saved)


@pytest.mark.parametrize('model', MODELS)
def test_config_rebuilds_the_layer(model):
    layer = layer_of(model, {'word': 5, 'trigram': 7}, 4)
    again = make_layer(json.loads(json.dumps(layer.config())))
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in layer.state_dict().items()}
