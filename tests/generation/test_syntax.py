"""The syntactically controlled network: learning by heart, copying, resuming, templates of a user, its engine."""
import json
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from paranmt_lab.cli.main import app as program
from paranmt_lab.corpora.query import Corpus
from paranmt_lab.engines.protocol import Decoding
from paranmt_lab.generation import syntax_engine
from paranmt_lab.generation.config import GeneratorConfig
from paranmt_lab.generation.syntax import ParsePieces, SyntaxLstm, best_parse, corpus_trees, count_templates
from paranmt_lab.generation.syntax_engine import SyntaxEngine
from paranmt_lab.generation.syntax_training import SyntaxLearner
from paranmt_lab.generation.training import generator_pairs, ship_generator, train_generator
from paranmt_lab.ground.models import open_model
from paranmt_lab.ground.settings import settings
from paranmt_lab.pages.harness import AppTest
from paranmt_lab.parsing.columns import parse_corpus
from paranmt_lab.parsing.trees import read_tree
from paranmt_lab.translate.data import EOS
from paranmt_lab.translate.driver import translate_corpus

VERBS, TIMES = ('sings', 'waits', 'reads'), ('today', 'often')
LABELS = {**dict.fromkeys(VERBS, '(VP (v _))'), **dict.fromkeys(TIMES, '(ADVP (e _))'), '.': '(. .)'}
ORDERS = {'S(NP VP ADVP .)': '{name} {verb} {time} .', 'S(ADVP NP VP .)': '{time} {name} {verb} .'}
SMALL = GeneratorConfig('order', 'talk', architecture='syntax', pieces=50, dim=32, hidden=32, dropout=0., steps=480,
                        label_smoothing=0., warmup=20, learning_rate=1e-2, average=.9, held_out={'talk': 4},
                        development=4, evaluate_every=0, checkpoint_every=0, batch_tokens=500, parser='orders',
                        bf16=False)


def brackets(text): return f"(S {' '.join(LABELS.get(word, '(NP (n _))') for word in text.split())})"


class Orders:
    "A parser of the language; a sentence without a full stop has no tree."
    identity = dict(parser='orders')

    def parse(self, sentences, advance=None):
        return [read_tree(brackets(text)) if text.endswith('.') else None for text in sentences]


def draw(n, seed):
    "Sentences in a random order, and the same in another one; names are random."
    rng, rows = np.random.default_rng(seed), []
    for _ in range(n):
        name = ''.join(rng.choice(list('abeimnoru'), 4)).title()
        said = dict(name=name, verb=rng.choice(VERBS), time=rng.choice(TIMES))
        rows.append([name, *(list(ORDERS.values())[k].format(**said) for k in rng.integers(2, size=2))])
    return pd.DataFrame(rows, columns=['name', 'reference', 'translation']).assign(corpus='talk')


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    "A workspace with a parsed corpus."
    s = replace(settings(), workspace=tmp_path_factory.mktemp('lab'), device='cpu', workers=1)
    corpus = Corpus.create('talk', s)
    pairs = draw(800, 0).drop(columns='name')
    for shard in (0, 1): corpus.write_pairs(shard, pairs.iloc[shard * 400:shard * 400 + 400])
    with pytest.raises(ValueError, match='no parses by orders in 2 of 2 shards; .*paranmt model train generator talk'):
        generator_pairs(corpus, SMALL)
    parse_corpus(corpus, Orders(), show=False)
    return s


@pytest.fixture(scope='module')
def run(lab):
    "The trained run."
    return train_generator(SMALL, generator_pairs(Corpus.open('talk', lab), SMALL), lab, show=False)


@pytest.fixture(scope='module')
def engine(run): return SyntaxEngine(run.folder / 'generator', parser=Orders())


@pytest.fixture
def parser(monkeypatch):
    "Lets the engine find the parser of the language by its name."
    there = syntax_engine.open_model
    monkeypatch.setattr(syntax_engine, 'open_model',
                        lambda name, *rest, **more: Orders() if name == 'orders' else there(name, *rest, **more))


def test_outputs_have_the_template_that_is_asked_for_and_new_names_are_copied(engine):
    for pairs, least in ((draw(60, 0), .85), (draw(60, 1), .7)): # of the training, and with new names
        for template, order in ORDERS.items():
            found = [hs[0].text for hs in engine.paraphrase(pairs.reference, template, Decoding(4))]
            assert np.mean([real == template for real in engine.real_templates(found)]) > .9
            words = [text.split() for text in pairs.reference]
            expected = [order.format(name=name, verb=next(w for w in row if w in VERBS),
                                     time=next(w for w in row if w in TIMES)) for name, row in zip(pairs.name, words)]
            assert np.mean([a == b for a, b in zip(found, expected)]) > least


def test_the_frequencies_of_templates_are_those_of_the_corpus(lab, engine):
    counts = count_templates(corpus_trees(Corpus.open('talk', lab), 'orders', ['translation']))
    assert set(counts.template) == set(engine.templates.template) == set(ORDERS)
    assert engine.templates.sentences.sum() <= counts.sentences.sum() == 800


def test_a_killed_training_ends_with_the_same_weights(lab):
    pairs = generator_pairs(Corpus.open('talk', lab), SMALL)
    brief = replace(SMALL, steps=12, dropout=.1, evaluate_every=6, checkpoint_every=4, patience=5)
    step = SyntaxLearner.step

    def dies(self, rows):
        if self.at.step == 6: raise KeyboardInterrupt
        yield from step(self, rows)

    whole = train_generator(replace(brief, name='whole'), pairs, lab, show=False)
    SyntaxLearner.step = dies
    try:
        with pytest.raises(KeyboardInterrupt): train_generator(replace(brief, name='killed'), pairs, lab, show=False)
    finally: del SyntaxLearner.step
    killed = train_generator(replace(brief, name='killed'), pairs, lab, show=False)
    (a, _), (b, _) = whole.checkpoint(), killed.checkpoint()
    assert any(k.startswith('adam/expander') for k in a) and all(torch.equal(a[k], b[k]) for k in a)
    for column in ('loss', 'bleu', 'held_out_parse', 'templates'):
        assert whole.metrics()[column].tolist() == killed.metrics()[column].tolist()


def test_the_mixture_is_that_of_the_formula():
    torch.manual_seed(0)
    network = SyntaxLstm(GeneratorConfig('toy', dim=8, hidden=8), 20, 6).eval()
    source, parse, target = (torch.tensor([x]) for x in ([7, 12, 7, EOS], [2, 3, EOS], [12, 9, EOS]))
    with torch.no_grad():
        guides = network.guides(source, parse)
        drafts, _ = network.draft(guides, network.first_states(guides.sentence), torch.tensor([[20, 12, 9]]))
        expected = drafts.gate_NT1[0] * network.logits(drafts.features_NTD[0]).softmax(1)
        for t in range(3):
            for place, piece in enumerate(source[0]):
                expected[t, piece] += (1 - drafts.gate_NT1[0, t, 0]) * drafts.weight_NTS[0, t, place]
        assert torch.allclose(network(source, parse, target).exp(), expected, atol=1e-5)


def test_a_broken_or_wrong_parse_gives_way_to_the_template():
    long = '(S (NP n ) (VP v ) )'.split()
    assert best_parse([long[:-1], long[1:], long], 'S(NP VP)') == long
    assert best_parse([long, []], 'S(VP)') == ['(S', 'VP', ')']
    pieces = ParsePieces.of([long])
    assert pieces.decode(pieces.encode(['(S', 'VP', ')'])) == ['(S', 'VP', ')']
    assert pieces.labels == ['NP', 'S', 'VP', 'n', 'v']


@pytest.mark.parametrize('template, words', [('S(NP', 'is no template; expected a label'), ('', 'is no template'),
                                             ('S(NP XP)', r'no sentence of the corpus has XP; labels are \., ADVP'),
                                             ('(S(NP)(VP)) (X)', 'is no template')])
def test_a_bad_template_is_refused_with_what_was_expected(engine, template, words):
    with pytest.raises(ValueError, match=words): engine.table('Emma sings today .', [template])


def test_the_kind_generator_opens_it_in_driver_and_commands(lab, run, parser, monkeypatch):
    ship_generator(run, lab, 'by hand')
    engine = open_model('generator:order', lab, 'Translator')
    assert isinstance(engine, SyntaxEngine) and engine.identity['parser'] == Orders.identity
    assert 'takes templates' in (lab.models / 'order/README.md').read_text(encoding='utf-8')
    assert json.loads((lab.models / 'order/generator.json').read_text(encoding='utf-8'))['parser'] == 'orders'
    small = Corpus.create('small', lab)
    small.write_pairs(0, draw(6, 2)[['reference', 'corpus']])
    made = translate_corpus(small, 'rewritten', 'generator:order', lab, Decoding(3, 2), side='reference')
    frame = made.frame(['reference', 'translation', 'rank', 'flags'])
    assert frame.groupby('reference').size().tolist() == [2] * 6 # a paraphrase for each of the two templates
    empty, unparsed = engine.translate(['', 'Emma sings'], Decoding(2, 2))
    assert empty[0].flags == 'empty source, empty' and 'unparsed source' in unparsed[0].flags
    monkeypatch.setenv('PARANMT_WORKSPACE', str(lab.workspace))
    typed = ['generate', 'order', 'Emma sings today .', '--beam', '4', '--template']
    wide = dict(COLUMNS='200')
    shown = CliRunner().invoke(program, [*typed, '(S(ADVP)(NP)(VP)(.))', '--templates', '2'], env=wide)
    assert shown.exit_code == 0 and shown.output.count('yes') == 2 and 'today Emma sings .' in shown.output
    refused = CliRunner().invoke(program, [*typed, 'S(NP'], env=wide)
    assert refused.exit_code == 2 and 'expected a label and those below it' in refused.output


def test_the_page_generate_offers_templates_and_says_which_ones_came_out(lab, run, parser, monkeypatch):
    if not (lab.models / 'order').is_dir(): ship_generator(run, lab, 'by hand')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(lab.workspace))
    monkeypatch.setenv('PARANMT_DEVICE', 'cpu')
    app = AppTest.from_string('from paranmt_lab.pages.generate import page\npage()', default_timeout=60)
    app.query_params.update(model='generator:order', sentence='Emma sings today .', templates=['S(ADVP NP VP .)'])
    app.run()
    assert not app.exception
    [offered] = app.multiselect
    assert set(offered.options) == set(ORDERS) and offered.value == ['S(ADVP NP VP .)']
    captions = [c.value for c in app.caption if c.value.startswith('score')]
    assert 'has S\\(ADVP NP VP \\.\\)' in captions[0]
    next(button for button in app.button if button.label == 'Save').click().run()
    assert not app.exception and app.success
    saved = Corpus.open('generated', lab)
    [record] = saved.manifest('generate')['saved']
    assert (record['templates'], record['found'][0]) == (['S(ADVP NP VP .)'], 'S(ADVP NP VP .)')
    assert saved.rows == len(captions)
    assert record['engine']['model'] == 'order' and record['engine']['parser'] == Orders.identity
    words = shlex.split(app.code[0].value)[1:]
    again = CliRunner().invoke(program, words, env=dict(COLUMNS='200'))
    assert again.exit_code == 0 and 'already' in again.output, again.output
    assert saved.frame(['translation']).translation[0] == 'today Emma sings .'
