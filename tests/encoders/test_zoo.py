"""Every encoder of the zoo, by its name: equal to the equations, right gradients, the same vectors from every folder,
able to learn by heart."""
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip('sentencepiece', reason='the extra `subwords` is not installed')
pytest.importorskip('morfessor', reason='the extra `subwords` is not installed')

from test_recurrent import vector_slowly

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.export import export_encoder
from paranmt_lab.encoders.layers import Average, Combined, Concat, tensors
from paranmt_lab.encoders.names import AS_PUBLISHED, LEAVES, PARTS, RECURRENT, Recurrent
from paranmt_lab.encoders.portable import PortableEncoder
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder, build_encoder
from paranmt_lab.encoders.zoo import layer_of
from paranmt_lab.tokens.subwords import SEGMENTERS, Subwords
from paranmt_lab.tokens.text import FEATURES, Vocabulary, pack
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train

NAMES = [*PARTS, 'WORD+TRIGRAM', 'WORD,TRIGRAM', 'WORD,TRIGRAM+LSTM', 'WORD,MORPH,SUBWORD-BLSTM']
SETTINGS = ({name: [Recurrent(hidden=0 if '+' in name else 3)] for name in NAMES}
            | {'GRAN': [Recurrent(hidden=3), Recurrent(hidden=3, cell='gru'),
                        Recurrent(hidden=3, cell='gru', candidate='tanh')],
               'BLSTM': [Recurrent(hidden=3), Recurrent(hidden=3, join='concat')]})
def case(name, r, reference):
    "A case, named by encoder, by the setting that differs from its first, and by `reference`."
    gran = 'tanh' if r.candidate == 'tanh' else r.cell
    setting = gran if name == 'GRAN' else r.join
    words = [name, *([setting] if r != SETTINGS[name][0] else []), *(['reference'] if reference else [])]
    return pytest.param(name, r, reference, id=' '.join(words))


CASES = [case(name, r, reference) for name in NAMES for r in SETTINGS[name] for reference in (False, True)]
TALK = ['The tram is late again.', "It isn't early, is it?",
        'Ještě že nejedeme autobusem.', 'Who ate my sandwich?', 'late late']
ODD = TALK + ['', ' \t', 'Nothing known 猫🚋', '\ud800 İSTANBUL’S ΟΔΟΣ ▁', 'The tram is late again, who ate it? ' * 30]
VOCABULARIES = ({f: Vocabulary.build(map(cut, TALK)) for f, cut in FEATURES.items()}
                | {f: Subwords(learn(TALK, 60)) for f, learn in SEGMENTERS.items()})


def double(name, recurrent, reference, rows=5, dim=3):
    "A layer in double precision, its weights large enough to bend every gate."
    torch.manual_seed(0)
    if reference: recurrent = replace(recurrent, **AS_PUBLISHED)
    layer = layer_of(name, dict.fromkeys(LEAVES.values(), rows), dim, reference, recurrent).double()
    with torch.no_grad():
        for p in layer.parameters(): p.copy_(torch.randn_like(p) * .5)
    return layer


def batch_of(seed, rows=5):
    "Three sentences whose numbers differ from feature to feature."
    rng = np.random.default_rng(seed)
    return {f: pack([rng.integers(0, rows - 1, n).tolist() for n in (4, 1, 3)]) for f in LEAVES.values()}


def plainly(layer, packs):
    "Vectors of the sentences by the equations alone, one sentence at a time."
    if isinstance(layer, Combined):
        vectors = [plainly(part, packs) for part in layer.parts]
        if not isinstance(layer, Concat): return torch.stack(vectors).sum(0)
        return torch.cat([v if layer.reference else v / v.norm(dim=1, keepdim=True) for v in vectors], 1)
    packed, p = packs[layer.feature], layer.state_dict()
    one = ((lambda ids: p['weight_rd'][torch.tensor(ids)].mean(0)) if isinstance(layer, Average)
           else (lambda ids: vector_slowly(layer, p, ids)))
    return torch.stack([one(packed[i].tolist()) for i in range(len(packed))])


@pytest.mark.parametrize('name, recurrent, reference', CASES)
def test_a_layer_says_what_its_equations_say(name, recurrent, reference):
    layer, packs = double(name, recurrent, reference), batch_of(1)
    torch.testing.assert_close(layer(tensors(packs)).detach(), plainly(layer, packs), atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize('name, recurrent, reference', CASES)
def test_gradients_are_finite_differences(name, recurrent, reference):
    layer, batch = double(name, recurrent, reference), tensors(batch_of(2))
    scale = torch.arange(1., layer.dim + 1).double() / layer.dim
    loss = lambda: (layer(batch) * scale).square().sum()
    loss().backward()
    with torch.no_grad():
        for key, p in layer.named_parameters():
            flat, slope = p.view(-1), []
            for i in range(len(flat)):
                flat[i] += 1e-5
                above = loss()
                flat[i] -= 2e-5
                slope.append((above - loss()) / 2e-5)
                flat[i] += 1e-5
            torch.testing.assert_close(p.grad.to_dense().view(-1), torch.stack(slope),
                                       atol=1e-7, rtol=1e-5, msg=lambda m: f'{key}: {m}')


@pytest.mark.parametrize('name, recurrent, reference', CASES)
def test_every_folder_gives_the_same_vectors(tmp_path, name, recurrent, reference):
    if reference: recurrent = replace(recurrent, **AS_PUBLISHED)
    encoder = build_encoder(name, VOCABULARIES, 6, plain=reference, recurrent=recurrent)
    torch.manual_seed(0)
    with torch.no_grad():
        for p in encoder.layer.parameters(): p.add_(torch.randn_like(p) * .2)
    expected = encoder.encode(ODD)
    assert encoder.model == name and np.isfinite(expected).all()
    again = SentenceEncoder.load(encoder.save(tmp_path / 'saved'))
    assert again.model == name and np.array_equal(again.encode(ODD), expected)
    export_encoder(encoder, tmp_path / 'exported', static=False)
    assert np.array_equal(SentenceEncoder.load(tmp_path / 'exported').encode(ODD), expected)
    module = PortableEncoder.load(tmp_path / 'exported')
    (tmp_path / 'handed on').mkdir()
    module.save(tmp_path / 'handed on')
    for m in module, PortableEncoder.load(tmp_path / 'handed on'):
        with torch.inference_mode():
            np.testing.assert_allclose(m(m.preprocess(ODD))['sentence_embedding'].numpy(), expected, atol=1e-6, rtol=0)


@pytest.fixture(scope='module')
def workspace(halves): return replace(halves(), workers=1)


# LSTMs and BLSTMs of subwords are layers of this list over other rows
LEARN = [*LEAVES, *RECURRENT, 'MORPH-GRAN', 'WORD+TRIGRAM', 'WORD,TRIGRAM', 'WORD,MORPH,SUBWORD-BLSTM']
OFTEN = 'WORD', 'LSTM', 'WORD,TRIGRAM'  # the others with `-m soak`


@pytest.mark.parametrize('name', [name if name in OFTEN else pytest.param(name, marks=pytest.mark.soak)
                                  for name in LEARN])
def test_two_hundred_pairs_are_learned_by_heart(workspace, name):
    "The loss over all pairs, against the hardest sentences of both sides, falls from twice the margin to almost zero."
    config = train_config(f'heart-{name}', 'halves', model=name, dim=48,
                         vocabulary=5000, batch_size=20, megabatch=2, epochs=25, margin=.1,
                         learning_rate=.02 if name in LEAVES else .005, cooldown=.7, probes=2)
    run = train(config, workspace, show=False)
    pairs = Corpus.open('halves', workspace).frame(['reference', 'translation'])
    vectors = torch.from_numpy(SentenceEncoder.load(run.folder / 'encoder')
                               .encode([*pairs.reference, *pairs.translation]))
    v = torch.nn.functional.normalize(vectors)
    cosines, n = v @ v.T, len(pairs)
    own = cosines.diagonal(n).repeat(2)
    other = cosines - 3 * torch.eye(n).repeat(2, 2)  # neither the sentence itself nor its partner
    assert (config.optimizer.margin - own + other.amax(1)).clamp_min(0).mean() < config.optimizer.margin / 10
    assert (other.amax(1) < own).float().mean() > .98


def test_the_list_is_the_zoo():
    assert set(PARTS) == set(LEAVES) | set(RECURRENT) | {f'{f.upper()}-{r}' for f in SEGMENTERS for r in RECURRENT}
