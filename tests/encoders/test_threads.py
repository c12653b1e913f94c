"""Two threads are taken only where they pay, and whichever way is taken, the bits are the same."""
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders import kernels as threads
from paranmt_lab.ground.settings import settings
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train

WORDS = [f'word{i}' for i in range(500)]


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, '_choices', {})
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def kernel(clock, seconds, name, calls):
    "Takes seconds of a clock that does not depend on what else the machine does."
    def call():
        clock.now += seconds
        calls.append(name)
    return call


@pytest.mark.parametrize('several, one, winner', [(.004, .001, 'one'), (.001, .004, 'several')])
def test_the_faster_way_is_taken(two_threads, monkeypatch, several, one, winner):
    """Beside a busy process a second thread costs more than it gives: one thread has to do the work then."""
    calls, clock = [], SimpleNamespace(now=0.)
    monkeypatch.setattr(threads, 'time', SimpleNamespace(perf_counter=lambda: clock.now))
    parallel, plain = kernel(clock, several, 'several', calls), kernel(clock, one, 'one', calls)
    for _ in range(60): threads.faster(('kernel', 2), 1000, parallel, plain)
    assert calls[-20:].count(winner) == 20


def test_a_neighbour_that_comes_and_goes_is_noticed(two_threads):
    """Slow calls start a trial at once; a quiet machine is noticed at the next trial."""
    choice, way_at = threads.ThreadChoice(), []
    for call in range(12_000):
        way = choice.ask()
        neighbour = 4_000 <= call < 6_000
        cost = 0.001
        if way: cost = 0.0035 if neighbour else 0.0006
        choice.note(1, cost)
        way_at.append(way)
    assert np.mean(way_at[1_000:4_000]) > 0.98
    assert np.mean(way_at[4_100:6_000]) < 0.02
    assert np.mean(way_at[9_000:]) > 0.98


@pytest.fixture
def lab(tmp_path):
    s = replace(settings(), workspace=tmp_path, resources=tmp_path / 'nowhere', device='cpu', workers=2)
    rng = np.random.default_rng(0)
    sentences = [' '.join(rng.choice(WORDS, 8)) for _ in range(1_200)]
    Corpus.create('pairs', s).write_pairs(0, {'reference': sentences[::2], 'translation': sentences[1::2]})
    return s


def test_training_gives_the_same_bits_whichever_way_each_kernel_takes(lab, two_threads, monkeypatch):
    """The choice depends on the clock, and the trained encoder must not."""
    def parameters(name, ask):
        monkeypatch.setattr(threads.ThreadChoice, 'ask', ask)
        monkeypatch.setattr(threads.ThreadChoice, 'note', lambda *args: None)
        config = train_config(name, 'pairs', model='WORD,TRIGRAM', dim=32,
                             epochs=2, batch_size=20, megabatch=15, min_count=1)
        run = train(config, lab, show=False)
        return (run.folder / 'encoder' / 'weights.safetensors').read_bytes()
    rng = np.random.default_rng(1)
    several = parameters('several', lambda self: True)
    assert parameters('one', lambda self: False) == several
    assert parameters('mixed', lambda self: bool(rng.integers(2))) == several
