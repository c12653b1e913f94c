"""Encoders of translation models: the same vector in any company and by either library, and an evaluation by name."""
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_hub import as_marian

from paranmt_lab.engines.marian import marian_of_ct2
from paranmt_lab.evaluation.tasks import evaluate
from paranmt_lab.ground.models import find_model, identity_of, open_model, served_kind
from paranmt_lab.ground.settings import settings

NAME = 'nmt:marian-cs-en-tiny'


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    return replace(settings(), workspace=tmp_path_factory.mktemp('lab'), resources=tmp_path_factory.mktemp('resources'),
                   device='cpu')


@pytest.fixture(scope='module')
def sentences(lab):
    "Czech sentences of many lengths, an empty one, and one of unknown characters."
    rows = pd.read_csv(lab.sample / 'bitext.cs-en.tsv', sep='\t', quoting=3, header=None, dtype=str)
    czech = next(c for c in rows if rows[c].str.contains('ř').any())
    return [*rows[czech].iloc[1:120].tolist(), '', '文字文字']


def test_a_sentence_has_the_same_vector_in_any_company(lab, sentences):
    encoder = open_model(NAME, lab, 'Encoder')
    alone = np.vstack([encoder.encode([text]) for text in sentences])
    order = np.random.default_rng(0).permutation(len(sentences))
    for size in (0, 60, 500):
        np.testing.assert_allclose(encoder.encode([sentences[i] for i in order], size), alone[order], atol=1e-5)
    assert alone.dtype == np.float32 and not alone[-2].any() and encoder.encode([]).shape == (0, encoder.dim)


def test_padding_and_end_mark_are_not_in_the_mean(lab):
    encoder, text = open_model(NAME, lab), 'Kde je ten pes?'
    [row], _ = encoder.marian.pieces.cut(text)
    ids, mask = encoder.marian.tensor([row])
    states = encoder.marian.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state[0].detach()
    np.testing.assert_allclose(encoder.encode([text, text * 9])[0], states[:-1].mean(0), atol=1e-6)


def test_the_same_weights_in_transformers_give_the_same_vectors(lab, sentences):
    folder = lab.models / 'as-transformers'
    as_marian(marian_of_ct2(find_model('marian-cs-en-tiny')), folder)
    two = [open_model(name, lab).encode(sentences[:20]) for name in (NAME, 'nmt:as-transformers')]
    np.testing.assert_allclose(*two, atol=1e-5)
    assert identity_of('nmt:as-transformers', lab)['checksum'] != identity_of(NAME, lab)['checksum']


def test_it_is_evaluated_as_any_encoder(lab):
    graded = pd.read_csv(lab.sample / 'graded.tsv', sep='\t', quoting=3)
    path = lab.resources / 'eval/sts17/en-en.tsv'
    path.parent.mkdir(parents=True)
    graded.head(40).to_csv(path, sep='\t', index=False)
    rows = evaluate(open_model(NAME, lab), ['STS17'], s=lab)
    assert set(rows.status) == {'ok'} and set(rows.n) == {40} and served_kind(NAME) == 'encoder'
