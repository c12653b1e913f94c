"""Exported encoders in a process of their own that has sentence-transformers and cannot import paranmt_lab: the same
vectors to 1e-6."""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings as hypothesis_settings, strategies as st

from paranmt_lab.encoders import portable
from paranmt_lab.encoders.export import export_encoder, is_static, model_card, tokenizer_json
from paranmt_lab.encoders.names import AS_PUBLISHED, Recurrent
from paranmt_lab.encoders.sentence_encoder import SentenceEncoder, build_encoder
from paranmt_lab.tokens.subwords import SEGMENTERS, Subwords
from paranmt_lab.tokens.text import FEATURES, POLICIES, SPLITS, Vocabulary, cut_of, tokenize

needs_peer = pytest.mark.skipif(importlib.util.find_spec('sentence_transformers') is None,
                                reason='sentence-transformers is not installed (extra `peers`)')
needs_tokenizers = pytest.mark.skipif(importlib.util.find_spec('tokenizers') is None,
                                      reason='tokenizers is not installed (extra `peers` or `translate`)')

TRAINING = ['The tram is late again.', "It isn't early, is it?",
            'Ještě že nejedeme autobusem.', 'Who ate my sandwich?', 'οδος 🚋 istanbul 5']
TEXTS = ['', ' \t', 'The tram is late again.', "It isn’t early: it's LATE, isn't it?",
         'Nothing known hereabouts', 'LATE,\xa0again.\u3000«tram»\x1fit?\x85is',
         '🚋🏽 🫨 \u200d', 'İstanbul’s ΟΔΟΣ, ΌΣΟΣ.', '5% (late) x²_y\x1c',
         'The tram is late again, who ate it? ' * 139, 'n\'t n\'the', 'Ještě že NEJEDEME autobusem.']
assert any(len(t) >= 5000 for t in TEXTS)

RECURRENT = {
    'LSTM': dict(), 'LSTM last': dict(pooling='last', hidden=7),
    'BLSTM sum mean': dict(), 'BLSTM concat mean': dict(join='concat'), 'BLSTM sum max': dict(pooling='max'),
    'BLSTM concat max': dict(join='concat', pooling='max'), 'BLSTM sum last': dict(pooling='last'),
    'BLSTM concat last': dict(join='concat', pooling='last', peepholes=True),
    'GRAN lstm': dict(hidden=9), 'GRAN gru': dict(cell='gru', variational=.2),
    'GRAN tanh': dict(cell='gru', candidate='tanh')}
AVERAGES = ['WORD', 'TRIGRAM', 'FOURGRAM', 'WORD+TRIGRAM', 'WORD,TRIGRAM', 'WORD,TRIGRAM+FOURGRAM', 'WORD,TRIGRAM,LSTM']
CASES = ([(m, p, False) for m in AVERAGES for p in POLICIES]
         + [(m, 'vector', r) for m in RECURRENT for r in (False, True)]
         + [('WORD,TRIGRAM', 'reference', True), ('LSTM', 'drop', False),
            ('GRAN lstm', 'reference', False), ('WORD,TRIGRAM,LSTM', 'reference', True),
            ('WORD', 'vector', False, 'space'), ('WORD,TRIGRAM,LSTM', 'reference', True, 'space')]
         + [(m, 'vector', False) for m in ('SUBWORD', 'WORD,MORPH-GRAN')
            if importlib.util.find_spec('sentencepiece') and importlib.util.find_spec('morfessor')])

# What runs in the other process: it refuses paranmt_lab, loads each folder, encodes in two ways, saves, loads again.
OTHER = '''
import json, sys
from pathlib import Path
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('paranmt_lab', 'numba'): raise ImportError(f'{name} is refused here')
sys.meta_path.insert(0, Refuse())
import numpy as np
from sentence_transformers import SentenceTransformer
place = Path(sys.argv[1])
texts = json.loads((place / 'texts.json').read_text())
for folder in sorted(p for p in place.iterdir() if (p / 'modules.json').is_file()):
    static = not (folder / 'paranmt_modules.py').exists()
    model = SentenceTransformer(str(folder), trust_remote_code=not static, device='cpu')
    np.save(place / f'{folder.name}.npy', model.encode(texts, batch_size=len(texts)))
    np.save(place / f'{folder.name}.small.npy', model.encode(texts, batch_size=3))
    np.save(place / f'{folder.name}.cosines.npy', model.similarity(*[model.encode(texts[2:5], batch_size=3)] * 2))
    model.save(str(place / 'again' / folder.name))
    again = SentenceTransformer(str(place / 'again' / folder.name), trust_remote_code=not static, device='cpu')
    np.save(place / f'{folder.name}.again.npy', again.encode(texts, batch_size=len(texts)))
    assert (place / 'again' / folder.name / 'README.md').read_text() == (folder / 'README.md').read_text()
    assert again.get_embedding_dimension() == model.encode('one text').shape[0]
assert 'paranmt_lab' not in sys.modules
'''


def encoder_of(model, policy, reference, split='words', dim=12):
    vocabularies = {f: Vocabulary.build(map(cut_of(f, split), TRAINING), policy=policy, split=split) for f in FEATURES}
    vocabularies |= {f: Subwords(learn(TRAINING, 60)) for f, learn in SEGMENTERS.items() if f.upper() in model}
    recurrent = Recurrent(**RECURRENT.get(model, {}) | (AS_PUBLISHED if reference else {}))
    encoder = build_encoder(model.partition(' ')[0], vocabularies, dim, plain=reference, recurrent=recurrent)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in encoder.layer.named_parameters():
            # expansive weights would blow up rounding over a thousand words
            p.add_(torch.randn_like(p) * (.1 if 'recurrent' in name else .3))
    return encoder


def name_of(case): return 'case_' + '_'.join(map(str, case)).replace('+', 'plus').replace(',', '_').replace(' ', '_')


def run_other(place):
    environ = ({k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'PYTHONSTARTUP')}
               | {'HF_HOME': str(place / 'cache'), 'HF_HUB_OFFLINE': '1', 'TOKENIZERS_PARALLELISM': 'false',
                  'PYTHONWARNINGS': 'ignore'})
    done = subprocess.run([sys.executable, '-c', OTHER, str(place)],
                          cwd=place, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


# One of each kind of layer, policy and cut; the others with `-m soak`
OFTEN = [('WORD', 'vector', False), ('WORD', 'reference', False), ('TRIGRAM', 'drop', False),
         ('WORD+TRIGRAM', 'vector', False), ('LSTM last', 'vector', False), ('BLSTM concat max', 'vector', True),
         ('GRAN gru', 'vector', False), ('WORD,TRIGRAM,LSTM', 'reference', True, 'space'),
         ('WORD,MORPH-GRAN', 'vector', False)]
SOME = [case for case in CASES if case in OFTEN]


def exported_to(place, cases):
    "Export some cases, and encode with them in the other process."
    (place / 'texts.json').write_text(json.dumps(TEXTS))
    for case in cases: export_encoder(encoder_of(*case), place / name_of(case))
    for name, encoder in shipped().items(): export_encoder(encoder, place / name)
    run_other(place)
    return place


@pytest.fixture(scope='module')
def exported(tmp_path_factory): return exported_to(tmp_path_factory.mktemp('exported'), SOME)


def shipped():
    "The shipped scorer, and its first part alone, which is exported without code."
    scorer = SentenceEncoder.load(Path(__file__).parents[2] / 'data/models/paraphrase-scorer')
    return dict(both=scorer, word=SentenceEncoder(scorer.layer.parts[0], scorer.vocabularies))


@needs_peer
@pytest.mark.parametrize('case', SOME, ids=name_of)
def test_another_program_gives_the_same_vectors(exported, case): assert_same_vectors(exported, case)


@needs_peer
@pytest.mark.soak
def test_another_program_gives_the_same_vectors_for_every_encoder(tmp_path):
    place = exported_to(tmp_path, CASES)
    for case in CASES: assert_same_vectors(place, case)


def assert_same_vectors(exported, case):
    "Vectors of the other process are ours, in batches of any size and from a folder that it saved."
    encoder, name = encoder_of(*case), name_of(case)
    ours, theirs = encoder.encode(TEXTS), np.load(exported / f'{name}.npy')
    assert theirs.dtype == np.float32 and theirs.shape == ours.shape
    np.testing.assert_allclose(theirs, ours, atol=1e-6, rtol=0)
    np.testing.assert_allclose(np.load(exported / f'{name}.again.npy'), ours, atol=1e-6, rtol=0)
    unit = ours[2:5] / np.linalg.norm(ours[2:5], axis=1, keepdims=True)
    # depends on the longest sentence of the batch, as in 2017
    padded = case[0].startswith('BLSTM') and case[0].endswith('last') and case[2]
    if not padded:
        np.testing.assert_allclose(np.load(exported / f'{name}.small.npy'), ours, atol=1e-6, rtol=0)
        np.testing.assert_allclose(np.load(exported / f'{name}.cosines.npy'), unit @ unit.T, atol=1e-6)


@needs_peer
def test_word_needs_no_code_where_its_policy_can_be_said(exported):
    static = {case for case in SOME if not (exported / name_of(case) / 'paranmt_modules.py').exists()}
    assert static == {('WORD', 'vector', False)}
    assert (sorted(p.name for p in (exported / name_of(('WORD', 'vector', False))).iterdir())
            == ['README.md', 'config_sentence_transformers.json', 'model.safetensors',
                'modules.json', 'tokenizer.json'])


@needs_peer
def test_the_shipped_scorer_is_handed_on(exported):
    for name, encoder in shipped().items():
        np.testing.assert_allclose(np.load(exported / f'{name}.npy'), encoder.encode(TEXTS), atol=1e-6, rtol=0)


@pytest.mark.parametrize('case', [('WORD', 'vector', False),
                                  ('WORD,TRIGRAM,LSTM', 'drop', False), ('GRAN gru', 'vector', True),
                                  ('WORD', 'reference', False, 'space')], ids=name_of)
def test_an_export_of_ours_is_read_by_ourselves(tmp_path, case):
    encoder = encoder_of(*case)
    again = SentenceEncoder.load(export_encoder(encoder, tmp_path / 'out', static=False))
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize('dtype', ['float16', 'int8'])
@pytest.mark.parametrize('case', [('WORD', 'vector', False), ('BLSTM concat mean', 'vector', False)], ids=name_of)
def test_compressed_weights_are_read_as_the_workbench_reads_them(tmp_path, case, dtype):
    folder = export_encoder(encoder_of(*case), tmp_path / 'out', dtype=dtype)
    module, ours = portable.PortableEncoder.load(folder), SentenceEncoder.load(folder)
    with torch.inference_mode(): theirs = module(module.preprocess(TEXTS))['sentence_embedding'].numpy()
    np.testing.assert_allclose(theirs, ours.encode(TEXTS), atol=1e-6, rtol=0)


@pytest.mark.parametrize('split', SPLITS)
@pytest.mark.parametrize('feature', FEATURES)
@hypothesis_settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_is_cut_alike(feature, split, text):
    assert portable.tokens_of(feature, text, split) == cut_of(feature, split)(text)


SCRIPTS = st.text(st.one_of(st.sampled_from("ndstmlrev'’ΣσςΑaİıẞß1_.\u0301\u0345\u200d²\x1c\x85\u3000 "),
                            st.characters(exclude_categories=['Cs'])), max_size=40)


@needs_tokenizers
@hypothesis_settings(max_examples=300, deadline=None)
@given(texts=st.lists(SCRIPTS, min_size=1, max_size=8), seen=st.integers(0, 8))
def test_tokenizer_json_gives_the_rows_of_any_text(texts, seen):
    "With a vocabulary of some of the very texts, as far as it can be exported so."
    from tokenizers import Tokenizer
    vocabulary = Vocabulary.build(map(tokenize, texts[:seen]))
    encoder = build_encoder('WORD', {'word': vocabulary}, 2)
    if not is_static(encoder): return
    stock = Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary)))
    assert [e.ids for e in stock.encode_batch([' ' + t for t in texts])] == [vocabulary.ids(tokenize(t)) for t in texts]


def test_a_newer_letter_in_the_vocabulary_is_not_trusted_to_the_library():
    encoder = lambda token: build_encoder('WORD', {'word': Vocabulary(['tram', token])}, 2)
    assert is_static(encoder('🚋')) and is_static(encoder('\U0001fae8')) and not is_static(encoder('\U0010fffe'))


def test_an_export_says_how_words_are_cut_where_it_is_not_as_in_older_ones(tmp_path):
    keys = {split: list(json.loads((export_encoder(encoder_of('WORD', 'reference', False, split), tmp_path / split)
                                    / 'vocabulary-word.json').read_text())) for split in SPLITS}
    assert keys == {'words': ['policy', 'tokens'], 'space': ['policy', 'split', 'tokens']}
    cards = [(tmp_path / split / 'README.md').read_text() for split in SPLITS]
    assert ['words split at white space' in card for card in cards] == [False, True]


def test_an_interrupted_export_leaves_nothing_and_harms_nothing(tmp_path, monkeypatch):
    encoder = encoder_of('WORD,TRIGRAM', 'vector', False)
    export_encoder(encoder, tmp_path / 'out', card='first')
    monkeypatch.setattr(Path, 'write_text', lambda *args, **kw: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt): export_encoder(encoder, tmp_path / 'out', card='second', force=True)
    monkeypatch.undo()
    assert (tmp_path / 'out' / 'README.md').read_text() == 'first' and [p.name for p in tmp_path.iterdir()] == ['out']
    export_encoder(encoder, tmp_path / 'out', card='second', force=True)
    assert (tmp_path / 'out' / 'README.md').read_text() == 'second'


def test_an_export_leaves_what_people_put_into_its_folder(tmp_path):
    encoder = encoder_of('WORD', 'vector', False)
    folder = export_encoder(encoder, tmp_path / 'out', static=False)
    (folder / '.git').mkdir()
    (folder / '.git/HEAD').write_text('ref: refs/heads/main')
    (folder / 'NOTES.md').write_text('Do not lose this.')
    before = {p: p.read_bytes() for p in folder.rglob('*') if p.is_file()}
    with pytest.raises(FileExistsError, match='--force'): export_encoder(encoder, folder)
    assert {p: p.read_bytes() for p in folder.rglob('*') if p.is_file()} == before
    export_encoder(encoder, folder, force=True)
    assert (folder / '.git/HEAD').read_text() == 'ref: refs/heads/main'
    assert (folder / 'NOTES.md').read_text() == 'Do not lose this.'
    assert ({p.name for p in folder.iterdir()} - {'.git', 'NOTES.md'}
            == {p.name for p in export_encoder(encoder, tmp_path / 'new').iterdir()})
    assert sorted(p.name for p in tmp_path.iterdir()) == ['new', 'out']


def test_an_export_never_writes_into_a_folder_of_something_else(tmp_path):
    (tmp_path / 'README.md').write_text('Another project.')
    encoder = encoder_of('WORD', 'vector', False)
    with pytest.raises(FileExistsError): export_encoder(encoder, tmp_path)
    with pytest.raises(ValueError, match='is no export'): export_encoder(encoder, tmp_path, force=True)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [('README.md', 'Another project.')]


def test_a_layer_that_the_exported_program_lacks_is_refused(tmp_path, monkeypatch):
    monkeypatch.delitem(portable.LAYERS, 'gran')
    with pytest.raises(ValueError, match="WORD,GRAN cannot be exported, since portable.py lacks it: .* type 'gran'"):
        export_encoder(encoder_of('WORD,GRAN', 'vector', False), tmp_path / 'out')
    assert not list(tmp_path.iterdir())


def test_a_hostile_description_opens_no_other_file(tmp_path):
    folder = export_encoder(encoder_of('TRIGRAM', 'vector', False), tmp_path / 'out')
    config = json.loads((folder / 'encoder.json').read_text())
    for layer in ({**config['layer'], 'feature': '../../etc/passwd'},
                  {'type': '__import__'}, {'type': 'add', 'parts': []}):
        (folder / 'encoder.json').write_text(json.dumps(config | {'layer': layer}))
        with pytest.raises((ValueError, KeyError, IndexError)): portable.PortableEncoder.load(folder)


def test_the_card_of_an_encoder_of_unknown_origin_says_so():
    card = model_card(encoder_of('WORD,TRIGRAM', 'drop', False))
    assert 'library_name: sentence-transformers' in card and 'Not measured.' in card
    assert 'Not recorded here' in card and 'trust_remote_code=True' in card
    assert 'policy `drop`' in card
