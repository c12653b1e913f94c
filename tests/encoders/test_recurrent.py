"""What the notebooks on recurrent encoders cannot show: arbitrary batches, torch's own LSTM, long sentences, empty
batches, threads."""
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings as hypothesis_settings, strategies as st

from paranmt_lab.encoders.cosines import cosine_gradient
from paranmt_lab.encoders.gran import Gran, _gated_means_back
from paranmt_lab.encoders.layers import tensors
from paranmt_lab.encoders.names import JOINS, POOLINGS
from paranmt_lab.encoders.recurrent import Lstm, _lstm_row, _lstm_row_back, lstm_states_torch, shares, steps_of
from paranmt_lab.encoders.zoo import make_layer
from paranmt_lab.tokens.text import pack
from paranmt_lab.training.sampling import contrastive_loss

ROWS, DIM, HIDDEN = 12, 7, 5
LAYERS = {
    'lstm': dict(), 'lstm, last': dict(pooling='last'),
    'blstm, 2018': dict(bidirectional=True, join='sum', peepholes=True, reference=True),
    'blstm, max': dict(bidirectional=True, pooling='max'), 'gran': dict(cell='lstm'),
    'gran, 2017': dict(cell='lstm', peepholes=True, reference=True),
    'gran, opusparcus': dict(cell='gru', reference=True), 'gran, gru': dict(cell='gru'),
    'gran, tanh': dict(cell='gru', reference=True, candidate='tanh')}


def make(name, rows=ROWS, dim=DIM, hidden=HIDDEN, **more):
    torch.manual_seed(0)
    layer = (Gran if name.startswith('gran') else Lstm)('word', rows, dim, hidden, **LAYERS[name] | more)
    with torch.no_grad(): layer.weight_rd.mul_(100)
    return layer


@contextmanager
def torch_threads(n):
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try: yield
    finally: torch.set_num_threads(before)


def batch_of(sentences): return tensors({'word': pack(sentences)})


def gradients(layer, batch):
    layer.zero_grad()
    vector_nd = layer(batch)
    (vector_nd * torch.arange(1., layer.dim + 1)).sum().backward()
    return {name: p.grad.to_dense().clone() for name, p in layer.named_parameters()}


SENTENCES = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=9), max_size=8)


@pytest.mark.parametrize('name', LAYERS)
@hypothesis_settings(max_examples=40, deadline=None)
@given(sentences=SENTENCES)
def test_a_sentence_has_one_vector_in_any_company(name, sentences):
    layer = make(name)
    with torch.no_grad():
        together = layer(batch_of(sentences))
        assert together.shape == (len(sentences), layer.dim) and together.isfinite().all()
        for ids, vector in zip(sentences, together):
            torch.testing.assert_close(layer(batch_of([ids]))[0], vector, atol=2e-6, rtol=0)
            if not ids: assert not vector.any()


@pytest.mark.parametrize('name', LAYERS)
@hypothesis_settings(max_examples=25, deadline=None)
@given(sentences=SENTENCES.filter(lambda s: any(s)))
def test_gradients_are_those_of_the_equations(name, sentences):
    layer, batch = make(name), batch_of(sentences)
    ours = gradients(layer, batch)
    theirs = gradients_slowly(layer, sentences)
    for key, gradient in ours.items():
        torch.testing.assert_close(gradient.double(), theirs[key], atol=2e-4, rtol=1e-4, msg=key)


def gradients_slowly(layer, sentences):
    "Sentence by sentence and token by token, in double precision."
    p = {name: value.detach().double().requires_grad_() for name, value in layer.state_dict().items()}
    scale = torch.arange(1., layer.dim + 1).double()
    sum((vector_slowly(layer, p, ids) * scale).sum() for ids in sentences if ids).backward()
    return {name: value.grad if value.grad is not None else torch.zeros_like(value) for name, value in p.items()}


def vector_slowly(layer, p, ids):
    x_td = p['weight_rd'][torch.tensor(ids)]
    if isinstance(layer, Gran):
        h_td = (gru_slowly(p, x_td, layer.recurrent.candidate) if layer.cell == 'gru'
                else lstm_slowly(p, 'recurrent.', 0, x_td))
        return (x_td * (x_td @ p['gate_dd'].T + h_td @ p['gate_dh'].T + p['gate_d']).sigmoid()).mean(0)
    pool = {'mean': lambda h: h.mean(0), 'max': lambda h: h.amax(0), 'last': lambda h: h[-1]}[layer.pooling]
    vectors = [pool(lstm_slowly(p, 'lstm.', k, x_td if k == 0 else x_td.flip(0)))
               for k in range(len(p['lstm.bias_kg']))]
    return torch.cat(vectors) if layer.join == 'concat' else sum(vectors)


def lstm_slowly(p, where, k, x_td):
    w, u, b = (p[where + name][k] for name in ('input_kgd', 'recurrent_kgh', 'bias_kg'))
    peeps = p[where + 'peephole_kph'][k] if where + 'peephole_kph' in p else u.new_zeros(3, u.shape[1])
    h, states = u.new_zeros(u.shape[1]), []
    c = h
    for x in x_td:
        i, f, z, o = (w @ x + u @ h + b).chunk(4)
        c = (f + peeps[1] * c).sigmoid() * c + (i + peeps[0] * c).sigmoid() * z.tanh()
        h = (o + peeps[2] * c).sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states)


def gru_slowly(p, x_td, candidate='leaky'):
    f = torch.tanh if candidate == 'tanh' else torch.nn.functional.leaky_relu
    w, u, b = (p['recurrent.' + name] for name in ('input_gd', 'recurrent_gh', 'bias_g'))
    n, h, states = u.shape[1], u.new_zeros(u.shape[1]), []
    b = torch.nn.functional.pad(b, (3 * n - len(b), 0))  # the program of Opusparcus has no biases of gates
    for x in x_td:
        r, z = (w[:2 * n] @ x + u[:2 * n] @ h + b[:2 * n]).sigmoid().chunk(2)
        h = (1 - z) * h + z * f(w[2 * n:] @ x + u[2 * n:] @ (r * h) + b[2 * n:])
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize('lengths', [[13, 1, 30, 7, 7, 2], [1], [300], [4, 4, 4]])
def test_equal_to_torch_lstm(lengths):
    torch.manual_seed(0)
    layer, theirs = Lstm('word', ROWS, DIM, HIDDEN, bidirectional=True), torch.nn.LSTM(DIM, HIDDEN, bidirectional=True)
    weights = dict(theirs.named_parameters())
    with torch.no_grad():
        layer.weight_rd.mul_(100)
        for k, end in enumerate(('l0', 'l0_reverse')):
            for ours, name in (('input_kgd', 'weight_ih'), ('recurrent_kgh', 'weight_hh'), ('bias_kg', 'bias_ih')):
                weights[f'{name}_{end}'].copy_(getattr(layer.lstm, ours)[k])
            weights[f'bias_hh_{end}'].zero_()
    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, ROWS, n) for n in lengths]
    embeddings = [layer.weight_rd[torch.from_numpy(s)] for s in sentences]
    h, _ = torch.nn.utils.rnn.pad_packed_sequence(
        theirs(torch.nn.utils.rnn.pack_sequence(embeddings, enforce_sorted=False))[0])
    expected = h.sum(0) / torch.tensor(lengths)[:, None]
    torch.testing.assert_close(layer(batch_of(sentences)), expected, atol=1e-6, rtol=0)
    expected.square().sum().backward()
    gradient = layer.weight_rd.grad.clone()
    layer.zero_grad()
    layer(batch_of(sentences)).square().sum().backward()
    torch.testing.assert_close(layer.weight_rd.grad, gradient, atol=1e-6, rtol=1e-5)
    for k, end in enumerate(('l0', 'l0_reverse')):
        torch.testing.assert_close(layer.lstm.recurrent_kgh.grad[k],
                                   weights[f'weight_hh_{end}'].grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize('name', LAYERS)
def test_a_batch_without_sentences_or_without_tokens(name):
    layer = make(name)
    for sentences in ([], [[], []]):
        vector_nd = layer(batch_of(sentences))
        assert vector_nd.shape == (len(sentences), layer.dim) and not vector_nd.any()
        vector_nd.sum().backward()
        with torch.no_grad(): assert torch.equal(layer(batch_of(sentences)), vector_nd)


@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.parametrize('each', (1, 3))
def test_the_same_bits_again_with_and_without_gradients_and_from_many_threads(name, each):
    with torch_threads(each): same_bits(name)


def same_bits(name):
    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, 50, n).tolist() for n in rng.integers(1, 40, 60)] + [rng.integers(0, 50, 300).tolist()]
    layer = make(name, rows=50, dim=32, hidden=24)
    expected = layer(batch_of(sentences)).detach()
    first, again = gradients(layer, batch_of(sentences)), gradients(layer, batch_of(sentences))
    assert all(torch.equal(first[key], again[key]) for key in first)
    found = [None] * 4
    def encode(i):
        with torch.inference_mode(): found[i] = layer(batch_of(sentences))
    threads = [threading.Thread(target=encode, args=[i]) for i in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert all(torch.equal(expected, f) for f in found)


@pytest.mark.parametrize('name', LAYERS)
def test_dense_and_sparse_gradients_of_the_embeddings_agree(name):
    layer, batch = make(name), batch_of([[0, 3, 3], [5], [], [3, 0]])
    dense = gradients(layer, batch)
    layer.sparse = True
    layer.zero_grad()
    (layer(batch) * torch.arange(1., layer.dim + 1)).sum().backward()
    gradient = layer.weight_rd.grad
    assert gradient.is_sparse and torch.equal(gradient.to_dense(), dense['weight_rd'])
    assert sorted(gradient._indices()[0].tolist()) == sorted(layer.rows(batch)['weight_rd'].tolist()) == [0, 3, 5]


@pytest.mark.parametrize('name', LAYERS)
def test_config_rebuilds_the_layer_and_its_state_is_the_same(name):
    layer, batch = make(name), batch_of([[1, 2], [3]])
    again = type(layer)(**{k: v for k, v in layer.config().items() if k != 'type'})
    again.load_state_dict(layer.state_dict())
    assert again.config() == layer.config() and torch.equal(again(batch), layer(batch))


@pytest.mark.parametrize('name', LAYERS)
def test_what_is_not_a_number_shows(name):
    layer = make(name)
    with torch.no_grad(): layer.weight_rd[3] = float('nan')
    vector_nd = layer(batch_of([[1, 2], [1, 3, 2]]))
    assert vector_nd[0].isfinite().all() and vector_nd[1].isnan().any()


@pytest.mark.parametrize('name', LAYERS)
def test_dropout_of_embeddings_works_in_training_alone(name):
    layer, batch = make(name), batch_of([[1, 2, 5], [3]])
    full = layer(batch)
    for what in ('dropout', 'word_dropout'):
        setattr(layer, what, .5)
        assert not all(torch.equal(layer(batch), full) for _ in range(5))
        layer(batch).sum().backward()
        layer.eval()
        assert torch.equal(layer(batch), full)
        layer.train()
        setattr(layer, what, 0.)


@pytest.mark.parametrize('pooling', POOLINGS)
@pytest.mark.parametrize('join', JOINS)
@pytest.mark.parametrize('reference', (False, True))
def test_every_way_of_pooling_and_joining(pooling, join, reference):
    torch.manual_seed(0)
    layer = Lstm('word', ROWS, DIM, HIDDEN, bidirectional=True, pooling=pooling, join=join, reference=reference)
    batch = batch_of([[1, 2, 3], [4], [5, 6, 7]])
    vector_nd = layer(batch)
    assert vector_nd.shape == (3, layer.dim) == (3, HIDDEN * (2 if join == 'concat' else 1))
    vector_nd.sum().backward()


@given(st.lists(st.integers(0, 12), max_size=20))
@hypothesis_settings(deadline=None)
def test_steps_visit_every_token_once_and_in_order(lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    steps = steps_of(offsets)
    assert sorted(steps.forward) == sorted(steps.backward) == list(range(offsets[-1]))
    for t, (a, b) in enumerate(zip(steps.start, steps.start[1:])):
        for i, (left, right) in enumerate(zip(steps.forward[a:b], steps.backward[a:b])):
            sentence = steps.order[i]
            assert left == offsets[sentence] + t and right == offsets[sentence + 1] - 1 - t


def test_double_precision_is_double():
    layer = make('blstm, 2018').double()
    sentences = [[1, 2, 3, 3], [4]]
    p = {name: value for name, value in layer.state_dict().items()}
    expected = torch.stack([vector_slowly(layer, p, ids) for ids in sentences])
    torch.testing.assert_close(layer(batch_of(sentences)).detach(), expected, atol=1e-12, rtol=0)


def test_backward_twice_where_the_graph_is_kept():
    layer, batch = make('blstm, 2018'), batch_of([[1, 2, 3], [4]])
    loss = layer(batch).square().sum()
    first = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, list(layer.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, again))


@given(st.lists(st.integers(0, 12), max_size=80), st.integers(1, 9), st.integers(1, 2))
@hypothesis_settings(deadline=None)
def test_shares_hold_every_token_once_and_equally_many_sentences(lengths, threads, directions):
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    with torch_threads(threads): dealt = shares(offsets, directions)
    assert (sorted(t for share in dealt for t in share.forward) == sorted(t for share in dealt for t in share.backward)
            == list(range(offsets[-1])))
    sizes = [len(share.order) for share in dealt]
    assert sum(sizes) == len(lengths) and max(sizes) - min(sizes) <= 1
    assert len(dealt) * directions <= max(threads, directions)


@pytest.mark.parametrize('name', LAYERS)
def test_threads_change_only_the_order_of_sums(name):
    rng = np.random.default_rng(0)
    layer, batch = make(name), batch_of([rng.integers(0, ROWS, n).tolist() for n in rng.integers(0, 30, 130)])
    found = {}
    for threads in (1, 2, 4, 7):
        with torch_threads(threads): found[threads] = layer(batch).detach(), gradients(layer, batch)
    for vector_nd, gradient in found.values():
        torch.testing.assert_close(vector_nd, found[1][0], atol=2e-6, rtol=0)
        for key, expected in found[1][1].items():
            torch.testing.assert_close(gradient[key], expected, atol=2e-4, rtol=2e-4)


def kernels_and_arrays(h, dtype):
    "Kernels that write into arrays, with arguments of `h` numbers a row."
    rng = np.random.default_rng(h)
    def numbers(*shape): return rng.standard_normal(shape).astype(dtype)
    def shares_of(*shape): return rng.random(shape).astype(dtype)
    place_t, offsets, left, right = np.array([0, 2, 2, 1, 0]), np.array([0, 3, 3, 5]), np.arange(3), np.array([3, 4, 1])
    yield _gated_means_back, [numbers(3, h), numbers(3, h), shares_of(5, h), place_t, offsets,
                              numbers(3, h), numbers(3, h), numbers(5, h)]
    yield _lstm_row, [numbers(4 * h), numbers(3, h), numbers(h), numbers(4 * h), numbers(h), numbers(h)]
    yield _lstm_row_back, [shares_of(4 * h), numbers(h), numbers(h), numbers(3, h), numbers(h), numbers(h),
                           numbers(4 * h), numbers(3, h)]
    yield cosine_gradient, [numbers(5, h), left, right, 1 + shares_of(5), numbers(3), numbers(3), numbers(5, h)]


def laid_out(arrays, rng):
    "Copies of arrays in one piece of memory, in a random order and with random gaps."
    memory = np.zeros(sum(array.nbytes + 64 for array in arrays), np.uint8)
    copies, at = [None] * len(arrays), 0
    for k in rng.permutation(len(arrays)):
        end = at + arrays[k].nbytes
        copies[k] = memory[at:end].view(arrays[k].dtype).reshape(arrays[k].shape)
        copies[k][...] = arrays[k]
        at = end + -end % 8 + 8 * int(rng.integers(5))
    return copies


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('h', [4, 13, 32])
def test_kernels_give_the_same_bits_wherever_their_arrays_lie(h, dtype):
    rng = np.random.default_rng(0)
    for kernel, arrays in kernels_and_arrays(h, dtype):
        results = set()
        for _ in range(500):
            copies = laid_out(arrays, rng)
            kernel(*copies)
            results.add(b''.join(copy.tobytes() for copy in copies))
        assert len(results) == 1, f'{kernel.__name__}: {len(results)} results by the places of its arrays'


@pytest.mark.parametrize('learns', [True, False])
def test_cudnn_is_asked_to_keep_what_a_gradient_needs(monkeypatch, learns):
    "Its backward pass refuses states that were computed outside training mode; a CPU does not mind."
    asked, run = [], torch._VF.lstm
    def noted(*arguments):
        asked.append(arguments[7])
        return run(*arguments)
    monkeypatch.setattr(torch._VF, 'lstm', noted)
    layer, offsets = make('lstm').lstm, np.array([0, 3, 4])
    weights = layer.input_kgd[0], layer.bias_kg[0], layer.recurrent_kgh[0], layer.peepholes()[0]
    with torch.set_grad_enabled(learns): lstm_states_torch(torch.randn(4, DIM), *weights, steps_of(offsets))
    assert asked == [learns]


def last_step(candidate, steps=120, rows=300, length=40, batch=32):
    "The step at which the loss is no longer finite, or `steps`, on pairs of which 40 % are random."
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    first = rng.integers(0, rows, (1000, length))
    second = rng.permuted(first, axis=1)
    noise = rng.random(1000) < .4
    second[noise] = rng.integers(0, rows, (noise.sum(), length))
    layer = Gran('word', rows, 16, 16, 'gru', reference=True, candidate=candidate)
    with torch.no_grad():
        layer.weight_rd.uniform_(-.01, .01)
        layer.recurrent.recurrent_gh.mul_(4)  # about as large as noisy pairs of words made them in a long training
    adam = torch.optim.Adam(layer.parameters(), lr=.01)
    for step in range(steps):
        at = rng.integers(0, 1000, batch)
        vector_nd = layer(batch_of(np.concatenate([first[at], second[at]]).tolist()))
        positive_n = torch.nn.functional.cosine_similarity(vector_nd[:batch], vector_nd[batch:])
        negative_n = torch.nn.functional.cosine_similarity(vector_nd[:batch], vector_nd[batch:].roll(1, 0))
        loss = contrastive_loss(positive_n, negative_n[None])
        if not loss.isfinite(): return step
        adam.zero_grad()
        loss.backward()
        adam.step()
    return steps


@pytest.mark.filterwarnings('ignore:invalid value:RuntimeWarning', 'ignore:overflow:RuntimeWarning')
def test_a_tanh_trains_where_the_leaky_relu_becomes_nan():
    assert last_step('leaky') < 100
    assert last_step('tanh') == 120


def test_a_saved_gran_without_a_candidate_is_leaky():
    config = make('gran, opusparcus').config()
    assert config.pop('candidate') == 'leaky'
    assert make_layer(config).recurrent.candidate == 'leaky'
