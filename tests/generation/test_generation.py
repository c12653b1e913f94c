"""Generators of paraphrases: the search against exhaustive search, learning by heart, resuming in a process of its own,
the engine in the driver."""
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.engine import GeneratorEngine
from paranmt_lab.generation.search import beam_search, draw_samples, repetitions
from paranmt_lab.generation.seq2seq import AttentiveLstm
from paranmt_lab.generation.syntax import (
    ParsePieces,
    SyntaxLstm,
    check_template,
    count_templates,
    linearised,
    template_pieces,
    tree_of_labels,
)
from paranmt_lab.generation.training import LstmLearner, ship_generator, train_generator
from paranmt_lab.ground.models import models_at_hand, open_model
from paranmt_lab.ground.settings import settings, write_json
from paranmt_lab.jobs.run import Run
from paranmt_lab.parsing.trees import top_levels
from paranmt_lab.translate.data import EOS, UNK
from paranmt_lab.translate.driver import translate_corpus
from references import references

SLOW = references('generation.search')
TINY = GeneratorConfig('tiny', pieces=300, dim=24, hidden=24, steps=16, warmup=8, batch_tokens=600, learning_rate=5e-3,
                       evaluate_every=8, checkpoint_every=4, development=10, held_out={'talk': 5}, source_lang='en')
CHILD = """
import json, os, signal, sys
from dataclasses import replace
from pathlib import Path
import pandas as pd
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.training import LstmLearner, train_generator
from paranmt_lab.ground.settings import settings
step = LstmLearner.step
def mortal(self, rows):
    if self.at.step == int(sys.argv[3]): os.kill(os.getpid(), signal.SIGKILL)
    yield from step(self, rows)
LstmLearner.step = mortal
s = replace(settings(), workspace=Path(sys.argv[1]), device='cpu')
pairs = pd.read_parquet(s.workspace / 'pairs.parquet')
train_generator(GeneratorConfig(**json.loads(Path(sys.argv[2]).read_text())), pairs, s, show=False)
"""


@pytest.fixture(scope='module')
def pairs():
    "Paraphrases of the project's own."
    graded = pd.read_csv(settings().sample / 'graded.tsv', sep='\t', quoting=3).query('score >= 4')
    return graded.set_axis(['reference', 'translation', 'score'], axis=1).drop(columns='score').assign(corpus='talk')


@pytest.fixture(scope='module')
def trained(tmp_path_factory, pairs):
    "A workspace with the finished run `tiny`, which is a model too."
    s = replace(settings(), workspace=tmp_path_factory.mktemp('lab'), device='cpu', workers=1)
    ship_generator(train_generator(TINY, pairs, s, show=False), s, 'by hand')
    return s


@pytest.fixture(scope='module')
def network():
    "An untrained network of eight pieces."
    torch.manual_seed(3)
    network = AttentiveLstm(GeneratorConfig('toy', dim=8, hidden=8), 8).eval()
    for p in network.parameters(): p.data.mul_(6) # so that some pieces are far more probable than others
    network.hold_pad()
    return network


def after(network, source):
    "Log-probabilities of the next piece by running the whole sequence anew."
    def next_piece(pieces):
        reading, last = network.begin(source[None], 1), None
        for piece in pieces:
            reading = network.next_pieces(reading, last)[1]
            last = torch.tensor([piece])
        return network.next_pieces(reading, last)[0][0].detach().double().numpy()
    return next_piece


SOURCES = [[5, 3, 7, EOS], [2, EOS], [6, 6, 4, 2, 3, EOS]]


def padded(network): return torch.tensor([row + [network.pad] * (6 - len(row)) for row in SOURCES])


@pytest.mark.parametrize('width', [1, 3, 5])
def test_a_batched_beam_of_the_network_is_the_slow_beam_of_each_sentence(network, width):
    limits = [5, 3, 4]
    found = beam_search(network, network.begin(padded(network), width), limits, Decoding(width, width), EOS)
    for row, limit, of_one in zip(SOURCES, limits, found):
        expected = SLOW.beam_slow(after(network, torch.tensor(row)), EOS, width, limit)
        assert [f.pieces for f in of_one] == [f.pieces for f in expected]
        assert np.allclose([f.score for f in of_one], [f.score for f in expected], atol=1e-4)


def test_a_beam_that_holds_everything_finds_what_exhaustive_search_finds(network):
    found = beam_search(network, network.begin(padded(network), 450), [3] * 3, Decoding(450, 10), EOS)
    for row, of_one in zip(SOURCES, found):
        expected = SLOW.exhaustive(after(network, torch.tensor(row)), EOS, 3)[:10]
        assert np.allclose([f.score for f in of_one], [f.score for f in expected], atol=1e-4)
        assert [f.pieces for f in of_one] == [f.pieces for f in expected]


@pytest.mark.parametrize('how', [dict(beam_size=6, n_best=6), dict(method='sample', n_best=6),
                                 dict(beam_size=6, n_best=6, method='diverse', groups=3)],
                         ids=['beam', 'sample', 'diverse'])
def test_searches_never_write_the_unknown_piece_or_nothing_and_respect_limits(network, how):
    d, limits = Decoding(**how), [7, 2, 5]
    reading = network.begin(padded(network), 6)
    found = (draw_samples(network, reading, limits, d, EOS, [1, 2, 3]) if d.method == 'sample'
             else beam_search(network, reading, limits, d, EOS))
    for limit, of_one in zip(limits, found):
        for f in of_one:
            assert UNK not in f.pieces and f.pieces[0] != EOS and len(f.pieces) <= limit
            assert EOS not in f.pieces[:-1] and np.isfinite(f.log_probability)


def test_no_ngram_comes_twice_where_that_is_blocked(network):
    free = beam_search(network, network.begin(padded(network), 4), [25] * 3, Decoding(4, 4), EOS)
    blocked = beam_search(network, network.begin(padded(network), 4), [25] * 3, Decoding(4, 4, no_repeat=3), EOS)
    def repeats(f): return len({f.pieces[i:i + 3] for i in range(len(f.pieces) - 2)}) < len(f.pieces) - 2
    assert any(repeats(f) for of_one in free for f in of_one), 'the test needs a network that repeats itself'
    assert not any(repeats(f) for of_one in blocked for f in of_one)
    assert not repetitions(torch.zeros(2, 0, dtype=torch.long), 3, 5).any()


def test_twenty_pairs_are_learned_by_heart(tmp_path, pairs):
    s = replace(settings(), workspace=tmp_path, device='cpu')
    config = replace(TINY, name='heart', dim=64, hidden=64, dropout=0., label_smoothing=0., steps=350, warmup=50,
                     average=.9, held_out={'talk': 1}, development=0, evaluate_every=0, checkpoint_every=0)
    twenty = pairs.drop_duplicates('reference').head(21)
    run = train_generator(config, twenty, s, show=False)
    held = pd.read_parquet(run.folder / 'held-out.parquet').source
    learned = twenty[~twenty.reference.isin(held)]
    found = GeneratorEngine(run.folder / 'generator').translate(list(learned.reference), Decoding(4))
    assert len(learned) == 20 and [hs[0].text for hs in found] == learned.translation.tolist()


@pytest.mark.soak
def test_a_killed_training_ends_with_the_same_weights(tmp_path, trained, pairs):
    pairs.to_parquet(tmp_path / 'pairs.parquet')
    config, script = write_json(tmp_path / 'tiny.json', asdict(TINY)), [sys.executable, '-c', CHILD, str(tmp_path)]
    environment = os.environ | dict(OMP_NUM_THREADS='1', PYTHONPATH=str(Path(__file__).parents[2]))
    assert subprocess.run([*script, str(config), '10'], env=environment, timeout=100).returncode == -9
    assert subprocess.run([*script, str(config), '-1'], env=environment, timeout=100).returncode == 0
    folders = trained.workspace, tmp_path
    whole, killed = (load_file(folder / 'runs/tiny/generator/model.safetensors') for folder in folders)
    assert all(torch.equal(whole[k], killed[k]) for k in whole)
    a, b = (Run.open(folder / 'runs', 'tiny').metrics() for folder in folders)
    assert a.loss.tolist() == b.loss.tolist() and a.bleu.tolist() == b.bleu.tolist()


def test_the_kind_generator_paraphrases_references_in_the_driver(trained, pairs):
    corpus = Corpus.create('talk', trained)
    for shard in (0, 1): corpus.write_pairs(shard, pairs.iloc[shard * 10:shard * 10 + 10].drop(columns='translation'))
    rewritten = translate_corpus(corpus, 'rewritten', 'generator:tiny', trained, Decoding(3, 2), 6, 'reference')
    facts, frame = rewritten.manifest('translate'), rewritten.frame(['reference', 'translation', 'rank', 'source'])
    assert frame.source.isna().all() and frame.reference.nunique() == pairs.reference[:20].nunique()
    assert facts['job']['side'] == 'reference' and facts['job']['engine']['engine'] == 'generator'
    engine = open_model('generator:tiny', trained, 'Translator')
    first = frame.iloc[0]
    assert engine.translate([first.reference], Decoding(3, 2))[0][0].text == first.translation
    with pytest.raises(ValueError, match='no source to translate'):
        translate_corpus(corpus, 'other', 'generator:tiny', trained)
    assert list(models_at_hand(trained, 'GeneratorEngine')) == ['generator:tiny']


def test_empty_long_and_foreign_sentences_are_answered_and_flagged(trained):
    engine = open_model('generator:tiny', trained)
    texts = ['  ', 'The tram is late again. ' * 100, 'Привет, как дела сегодня?']
    empty, long, foreign = engine.translate(texts, Decoding(2))
    assert empty[0].flags == 'empty source, empty' and not empty[0].text
    assert 'split source' in long[0].flags and 'foreign script' in foreign[0].flags


def test_weights_are_safetensors_and_what_is_lacking_is_named(trained, tmp_path):
    folder = trained.models / 'tiny'
    assert {p.name for p in folder.iterdir()} == {'README.md', 'generator.json', 'model.safetensors', 'source.spm'}
    (trained.models / 'empty').mkdir(exist_ok=True)
    with pytest.raises(FileNotFoundError, match='is no generator: expected generator.json'):
        open_model('generator:empty', trained)
    assert LstmLearner(TINY, 300).model.pad == 300


def test_the_copy_mechanism_copies_only_what_is_there_and_padding_changes_nothing():
    torch.manual_seed(0)
    network = SyntaxLstm(GeneratorConfig('toy', dim=8, hidden=8), 20, 6).eval()
    short = torch.tensor([[7, 12, EOS]]), torch.tensor([[0, 2, 1]]), torch.tensor([[12, 7, EOS]])
    long = torch.tensor([[3, 4, 5, 6, EOS]]), torch.tensor([[0, 2, 0, 3, 1, 1]]), torch.tensor([[4, EOS, 20]])
    pads = 20, 6, 20
    beside = [torch.cat([torch.nn.functional.pad(a, (0, b.shape[1] - a.shape[1]), value=pad), b])
              for a, b, pad in zip(short, long, pads)]
    with torch.no_grad():
        alone = network(*short)
        assert torch.allclose(network(*beside)[:3], alone, atol=1e-5)
        assert torch.allclose(alone.exp().sum(1), torch.ones(3), atol=1e-4)
        network.gate.bias.fill_(-60)
        copied = network(*short).exp()
    assert torch.allclose(copied[:, [EOS, 7, 12]].sum(1), torch.ones(3), atol=1e-4)


def test_a_batched_beam_of_the_syntactic_network_is_the_beam_of_each_sentence():
    torch.manual_seed(4)
    network = SyntaxLstm(GeneratorConfig('toy', dim=8, hidden=8), 9, 6).eval()
    for p in network.parameters(): p.data.mul_(4)
    sources = torch.tensor([[5, 3, 7, EOS], [2, 4, EOS, 9]])
    parses = torch.tensor([[0, 2, 1, 6], [0, 3, 1, 1]])
    with torch.inference_mode():
        found = beam_search(network, network.begin(sources, parses, 3), [3, 6], Decoding(3, 3), EOS)
        for i, limit in enumerate((3, 6)):
            [alone] = beam_search(network, network.begin(sources[i:i + 1, :4 - i], parses[i:i + 1], 3), [limit],
                                  Decoding(3, 3), EOS)
            assert [f.pieces for f in alone] == [f.pieces for f in found[i]]


@pytest.mark.skipif(not shutil.which('link-parser'), reason='link-parser is not installed')
def test_templates_of_parsed_sentences_can_be_counted_typed_and_read_back():
    trees = open_model('link:en').parse(['It is raining.', 'The dog barked.', 'Where is the dog?'])
    counts = count_templates(trees)
    assert counts.sentences.sum() == sum(tree is not None for tree in trees) and counts.covered.iloc[-1] == 1
    labels = ParsePieces.of(linearised(tree) for tree in trees if tree).labels
    for template in counts.template:
        assert check_template(template, labels) == template
        assert top_levels(tree_of_labels(template_pieces(template))) == template
