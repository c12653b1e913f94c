"""Encoders of others, by name: word vectors, model2vec, ONNX, functions. They score, and run no stranger's code."""
import gzip
import json
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.published import package_folder
from paranmt_lab.evaluation.pending import evaluate_system
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.models import KINDS, full_name, identity_of, models_at_hand, open_model, split_name
from paranmt_lab.ground.settings import settings

WORDS = ['the', 'tram', 'is', 'late', 'early', 'not', '.']


@pytest.fixture
def lab(tmp_path, monkeypatch):
    "A workspace with a file of vectors and a folder of model2vec that hold the same numbers."
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    lab = replace(settings(), workspace=tmp_path, resources=tmp_path / 'resources', device='cpu')
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 4)).round(3).astype(np.float32)
    lines = ''.join(f"{word} {' '.join(map(str, v))}\n" for word, v in zip(WORDS, vectors.tolist()))
    lab.resources.mkdir()
    with gzip.open(lab.resources / 'few.txt.gz', 'wt') as f: f.write(lines)
    folder = lab.models / 'few'
    folder.mkdir(parents=True)
    tokenizer = dict(version='1.0', truncation=None, padding=None, added_tokens=[], post_processor=None, decoder=None,
                     normalizer=dict(type='Lowercase'), pre_tokenizer=dict(type='Whitespace'),
                     model=dict(type='WordLevel', unk_token='[UNK]',
                                vocab={'[UNK]': 0} | {word: i for i, word in enumerate(WORDS, 1)}))
    (folder / 'tokenizer.json').write_text(json.dumps(tokenizer))
    (folder / 'config.json').write_text('{"normalize": false}')
    from safetensors.numpy import save_file
    save_file({'embeddings': np.vstack([np.full(4, 9, np.float32), vectors])}, folder / 'model.safetensors')
    return lab


def test_two_formats_of_one_average_agree(lab):
    pytest.importorskip('model2vec')
    texts = ['The tram is late.', 'THE TRAM', 'Nobody knows, not early', '', 'x']
    ours, theirs = open_model('vectors:few.txt.gz', lab), open_model('static:few', lab)
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-6)
    np.testing.assert_allclose(ours.similarity_pairwise(texts[:2], texts[1:3]),
                               theirs.similarity_pairwise(texts[:2], texts[1:3]), atol=1e-6)
    np.testing.assert_allclose(ours.similarity(texts[:2], texts[1:3]), theirs.similarity(texts[:2], texts[1:3]),
                               atol=1e-6)
    assert theirs.encode([]).shape == (0, 4) and 'static:few' in models_at_hand(lab, 'Encoder')


def test_vectors_score_and_are_evaluated(lab):
    corpus = Corpus.create('pairs', lab)
    pairs = pd.DataFrame(dict(reference=['The tram is late.'], translation=['The tram is early.']))
    for shard in (0, 1): corpus.write_pairs(shard, pairs)
    name = full_name(f"vectors:{lab.resources / 'few.txt.gz'}")
    score(corpus, ['paraphrase_score'], [name], workers=1, show=False)
    expected = open_model(name, lab).similarity_pairwise(['The tram is late.'], ['The tram is early.'])
    np.testing.assert_allclose(corpus.frame(['paraphrase_score@few'])['paraphrase_score@few'], [expected[0]] * 2,
                               atol=1e-6)
    assert corpus.manifest('score-paraphrase_score@few')['encoder'] == identity_of(name, lab)
    rows = evaluate_system(name, lab, [], lab.sample / 'graded.tsv')
    assert set(rows.system) == {'few'} and (lab.runs / 'few/results.parquet').is_file()


def test_a_file_that_changes_is_another_encoder(lab):
    before = identity_of('vectors:few.txt.gz', lab)
    with gzip.open(lab.resources / 'few.txt.gz', 'wt') as f: f.write('the 1 2 3 4\n')
    assert identity_of('vectors:few.txt.gz', lab)['checksum'] != before['checksum']


@pytest.mark.parametrize('name, message', [
    ('vectors:none.txt', "no file of vectors 'none.txt' here or below .*resources"),
    ('static:none', 'no model .none.*static:ORGANISATION/MODEL'),
    ('onnx:few', 'few is no model in ONNX: there is no model.onnx'),
    ('onnx:./nowhere', "no folder './nowhere'"),
    ('python:json:dumps', 'would run code, and it is not among the words of this command'),
])
def test_what_is_not_there_is_refused_with_the_remedy(lab, name, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message): open_model(name, lab)


def test_a_stored_name_runs_no_code(lab, tmp_path, monkeypatch):
    "A function is imported where the command names it, and nowhere else."
    (tmp_path / 'stranger.py').write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n"
                                          'def encode(sentences): return [[len(s), 1] for s in sentences]\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, 'argv', ['paranmt', 'train', 'word', 'pairs', '--resume'])
    for read in (open_model, identity_of):
        with pytest.raises(ValueError, match='may come from a stored file'): read('python:stranger:encode', lab)
    assert not (tmp_path / 'ran').exists()
    monkeypatch.setattr(sys, 'argv', ['paranmt', 'evaluate', 'python:stranger:encode'])
    assert open_model('python:stranger:encode', lab, 'Encoder').encode(['ab']).tolist() == [[2, 1]]
    assert identity_of('python:stranger:encode', lab)['name'] == 'stranger.encode'


def test_every_kind_of_encoder_has_an_example_of_its_kind():
    kinds = {kind for kind, row in KINDS.items() if row.serves == 'encoder'}
    assert {'st', 'static', 'onnx', 'vectors', 'python'} <= kinds
    assert all(split_name(KINDS[kind].example)[0] == kind for kind in kinds)


@pytest.mark.skipif(not all(map(package_folder, ('wordllama', 'model2vec'))),
                    reason='NO ENCODER: pip install wordllama (extra `peers`)')
def test_wordllama_is_opened_without_its_code(lab):
    model = open_model('static:wordllama', lab)
    near, far = model.similarity_pairwise(['The tram is late.'] * 2, ['The tram is delayed.', 'She eats soup.'])
    assert model.dim == 256 and near > far + .3 and 'wordllama' not in sys.modules
