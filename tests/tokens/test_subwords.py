"""Encoders of subwords where notebooks do not reach: any text, other processes, foreign and damaged models, trainings
that stop and go on."""
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

pytest.importorskip('sentencepiece', reason='the extra `subwords` is not installed')
pytest.importorskip('morfessor', reason='the extra `subwords` is not installed')

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders import portable
from paranmt_lab.encoders.sentence_encoder import EncoderError, SentenceEncoder, build_encoder
from paranmt_lab.ground.fields import alter
from paranmt_lab.ground.settings import checksum, read_json, write_json
from paranmt_lab.tokens.subwords import BLANK, SEGMENTERS, Subwords, folded, learn_pieces
from paranmt_lab.tokens.text import Vocabulary, pack, tokenize
from paranmt_lab.training.config import train_config
from paranmt_lab.training.loop import train
from paranmt_lab.training.origin import Origin

TALK = ['The tram is late again.', "It isn't early, is it?",
        'Ještě že nejedeme autobusem.', 'Who ate my sandwich?', 'οδος 🚋 istanbul 5']
VOCABULARIES = {feature: Subwords(learn(TALK, 60)) for feature, learn in SEGMENTERS.items()}
TEXT = st.text(st.one_of(st.sampled_from("thearmisl'’ΣσςİẞČč1_.▁\u0301\x00\x1c\x85\u3000🚋 \ud800"), st.characters()),
               max_size=60)


@pytest.mark.parametrize('feature', SEGMENTERS)
@hypothesis_settings(max_examples=150, deadline=None)
@given(texts=st.lists(TEXT, max_size=6))
def test_pieces_of_any_text_give_it_back_and_have_the_same_rows_everywhere(feature, texts):
    v = VOCABULARIES[feature]
    elsewhere, rows = portable.Subwords(v.model), v.rows(texts)
    assert len(rows) == len(texts) and (rows.lengths > 0).all()
    assert [elsewhere.rows(s) for s in texts] == [rows[i].tolist() for i in range(len(texts))]
    assert np.array_equal(rows.ids, pack(v.ids(v.pieces(s)) for s in texts).ids)
    for s in texts: assert ''.join(v.pieces(s)).replace(BLANK, ' ').removeprefix(' ') == folded(s)


@pytest.mark.parametrize('feature', SEGMENTERS)
def test_another_process_learns_the_same_bytes(feature):
    program = (f'import sys; from paranmt_lab.tokens.subwords import SEGMENTERS; '
               f'sys.stdout.write(SEGMENTERS[{feature!r}]({TALK!r}, 60).hex())')
    for seed in '1', '2':
        found = subprocess.run([sys.executable, '-c', program], capture_output=True,
                               check=True, text=True, env=os.environ | {'PYTHONHASHSEED': seed}).stdout
        assert bytes.fromhex(found) == VOCABULARIES[feature].model


def test_saving_over_another_encoder_leaves_no_vocabulary_of_it(tmp_path):
    words = dict(word=Vocabulary.build(map(tokenize, TALK)))
    for model, vocabulary in (('WORD', 'vocabulary-word.parquet'), ('SUBWORD', 'vocabulary-subword.model'),
                              ('MORPH', 'vocabulary-morph.model'), ('WORD', 'vocabulary-word.parquet')):
        build_encoder(model, words | VOCABULARIES, 4).save(tmp_path)
        assert SentenceEncoder.load(tmp_path).model == model
        assert sorted(p.name for p in tmp_path.iterdir()) == ['encoder.json', vocabulary, 'weights.safetensors']


def foreign():
    "A model as SentencePiece makes it by default, with symbols for the ends of sentences."
    import io

    import sentencepiece
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TALK), model_writer=(model := io.BytesIO()),
                                             vocab_size=60, hard_vocab_limit=False, unk_id=2, bos_id=0,
                                             eos_id=1, minloglevel=3)
    return model.getvalue()


HOSTILE = {
    'half a file': (lambda model: model[:len(model) // 2], 'not a model of SentencePiece'),
    'nothing': (lambda model: b'', 'not a model of SentencePiece'),
    'a pickle': (lambda model: b'\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.',
                 'not a model of SentencePiece'),
    'other pieces': (lambda model: learn_pieces(TALK[:2], 60), 'subword: the layer has'),
    'a foreign model': (lambda model: foreign(), 'whose unknown piece is 2, expected 0')}


@pytest.mark.parametrize('name', HOSTILE)
def test_a_model_that_does_not_fit_is_refused(tmp_path, name):
    damage, message = HOSTILE[name]
    build_encoder('SUBWORD', VOCABULARIES, 4).save(tmp_path)
    path = tmp_path / 'vocabulary-subword.model'
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(EncoderError, match='is damaged'): SentenceEncoder.load(tmp_path)
    config = read_json(tmp_path / 'encoder.json')
    write_json(tmp_path / 'encoder.json',
               config | {'files': {name: checksum(tmp_path / name) for name in config['files']}})
    with pytest.raises(EncoderError, match=message): SentenceEncoder.load(tmp_path)


@pytest.fixture(scope='module')
def workspace(halves): return replace(halves(120, 'source'), workers=1)


def weights(run): return (run.folder / 'encoder' / 'weights.safetensors').read_bytes()


@pytest.mark.parametrize('model', ['SUBWORD', 'WORD,MORPH-GRAN'])
def test_a_training_that_stops_goes_on_with_the_same_bits(workspace, model):
    config = train_config(f'whole-{model}', 'halves', model=model, dim=16, vocabulary=300,
                         batch_size=20, megabatch=2, epochs=3, learning_rate=.01, checkpoint_every=0, probes=4)
    whole = train(config, workspace, show=False)
    asked, starts, run = iter([False, True] * 100), 0, None
    while not (run and run.finished):
        run = train(alter(config, name=f'stopped-{model}'), workspace, show=False, stop=lambda: next(asked))
        starts = starts + 1
    assert starts > 2 and weights(run) == weights(whole)
    encoder = SentenceEncoder.load(run.folder / 'encoder')
    for f in encoder.vocabularies.keys() & SEGMENTERS.keys():
        assert len(encoder.vocabularies[f]) <= 301
        assert (checksum(run.folder / 'encoder' / f'vocabulary-{f}.model')
                == checksum(whole.folder / 'encoder' / f'vocabulary-{f}.model'))
    again = train(alter(config, name=f'started-{model}', model=model.split(',')[-1],
                          start=str(run.folder / 'encoder'), epochs=1, learning_rate=1e-9), workspace, show=False)
    np.testing.assert_allclose(SentenceEncoder.load(again.folder / 'encoder').encode(TALK),
                               encoder.remodelled(model.split(',')[-1]).encode(TALK), atol=1e-5)


def test_arrays_of_words_are_found_where_they_were(workspace):
    "What learners of subwords need does not enter the recipe of other features."
    from paranmt_lab.training.data import choose_pairs, recipe
    corpus = Corpus.open('halves', workspace)
    facts = recipe(choose_pairs(corpus), Origin(train_config('x', 'halves', model='WORD,TRIGRAM'), workspace))
    assert list(facts) == ['pairs', 'chosen', 'features', 'vocabulary', 'min_count', 'vectors']
